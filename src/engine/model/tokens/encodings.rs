//! Positional encodings as features of tokens: where in the tokens' graph each lies.

use serde::{Deserialize, Serialize};

use super::{TokenConfig, Tokens};
use crate::Result;
use crate::engine::registry::{EncodingKind, named};

/// Which positional encodings tokens are told, beside [`super::Inputs`].
///
/// Of the tokens' k-NN graph; within a roll-out no gradient flows through them, and none is lost where the
/// neighbours stay the same, as the encodings then do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Encodings {
    /// None.
    #[default]
    None,
    /// Some that are registered ([`crate::engine::registry::register`]).
    Registered(EncodingKind),
}

impl Encodings {
    /// All of them, with those that are registered.
    pub fn all() -> Vec<Self> {
        let registered = EncodingKind::all().into_iter().map(Self::Registered);
        std::iter::once(Self::None).chain(registered).collect()
    }

    /// Its name in model files and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Registered(kind) => kind.name(),
        }
    }

    /// Features a token.
    pub fn width(self) -> usize {
        match self {
            Self::None => 0,
            Self::Registered(kind) => kind.width(),
        }
    }
}

impl From<Encodings> for &'static str {
    fn from(encodings: Encodings) -> Self {
        encodings.name()
    }
}

impl TryFrom<String> for Encodings {
    type Error = String;

    fn try_from(name: String) -> std::result::Result<Self, String> {
        named("encodings", &name, &Self::all(), 1, Self::name)
    }
}

impl Tokens {
    /// Fills the last features of every row, if `config` has encodings.
    pub(super) fn encode_graph(&mut self, config: &TokenConfig) -> Result<()> {
        let Encodings::Registered(kind) = config.encodings else { return Ok(()) };
        let encoded = kind.encode(&self.positions, config.k)?;
        let (width, all) = (kind.width(), config.n_features());
        for (row, encoded) in self.features.chunks_exact_mut(all).zip(encoded.chunks_exact(width)) {
            row[all - width..].copy_from_slice(encoded);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::lab::encodings::{BOTH, EIGENVECTORS, HEAT};
    use crate::engine::model::Inputs;
    use crate::engine::model::tokens::tests::{ONE, THREE, state};

    #[test]
    fn encodings_are_told_behind_all_else_and_change_nothing_of_it() {
        let at = state(9, 6, 5, 1);
        for (plain, encodings) in [
            (ONE, HEAT),
            (THREE, EIGENVECTORS),
            (TokenConfig { inputs: Inputs::Paper, ..THREE }, BOTH),
        ] {
            let config = TokenConfig { encodings, ..plain };
            assert_eq!(config.n_features(), plain.n_features() + encodings.width());
            let encode = |config: &TokenConfig| {
                let mut tokens = Tokens::default();
                tokens.encode(&at, config).unwrap();
                tokens
            };
            let (told, before) = (encode(&config), encode(&plain));
            let n = plain.n_features();
            let mut of_graph = Vec::new();
            let rows = told.features.chunks_exact(config.n_features());
            for (row, before) in rows.zip(before.features.chunks_exact(n)) {
                assert_eq!(&row[..n], before);
                of_graph.extend_from_slice(&row[n..]);
            }
            let Encodings::Registered(kind) = encodings else { unreachable!("registered") };
            let want = kind.encode(&told.positions, config.k).unwrap();
            assert_eq!(of_graph, want);
            let width = encodings.width();
            for column in 0..width {
                let size: f32 = want.iter().skip(column).step_by(width).map(|x| x * x).sum();
                assert!(size > 0.0 && size.is_finite(), "{column} of {}", encodings.name());
            }
        }
    }

    #[test]
    fn names_are_those_of_model_files() {
        let all = Encodings::all();
        assert_eq!(all, [Encodings::None, HEAT, EIGENVECTORS, BOTH]);
        for encodings in all {
            let json = serde_json::to_string(&encodings).unwrap();
            assert_eq!(json, format!("\"{}\"", encodings.name()));
            assert_eq!(serde_json::from_str::<Encodings>(&json).unwrap(), encodings);
        }
    }
}
