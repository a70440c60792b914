//! Feature maps φ of linear attention: its kernel is φ(q)·φ(k) (Katharopoulos et al. 2020).

use serde::{Deserialize, Serialize};

use super::favor::MAX_FEATURES;
use super::relu::{relu_backward, relu_forward};
use crate::base::simd::exp::exp;
use crate::base::simd::vectorized;
use crate::{Error, Result};

/// What makes queries and keys non-negative features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FeatureMap {
    /// max(x, 0), the papers' setting.
    #[default]
    Relu,
    /// ELU + 1: x + 1 where x > 0, else e^x; never zero (Katharopoulos et al. 2020).
    Elu,
    /// x², element by element, as in the comparison of kernels of Choromanski et al. 2022 (Fig. 8:
    /// x², ELU + 1 and ReLU). Not ReLU squared, which is a hidden activation elsewhere and, as a
    /// kernel, only ReLU's with other weights: its zeros are ReLU's.
    Squared,
    /// FAVOR+: positive orthogonal random features of the softmax kernel (Choromanski et al. 2021).
    Favor {
        /// Features m of a head.
        n_features: usize,
        /// Seed of the projections; they are drawn once and never trained.
        seed: u64,
    },
}

impl FeatureMap {
    /// All, FAVOR+ with the settings that it has unless others are given: what the tool's options
    /// and the tests run through.
    pub const ALL: [Self; 4] =
        [Self::Relu, Self::Elu, Self::Squared, Self::Favor { n_features: 64, seed: 0 }];

    /// Its name in options and model files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Elu => "elu",
            Self::Squared => "squared",
            Self::Favor { .. } => "favor",
        }
    }

    /// Checks the number of features.
    ///
    /// # Errors
    /// [`Error::Config`] unless it is in 1..=1024.
    pub fn validate(self) -> Result<()> {
        match self {
            Self::Favor { n_features, .. } if !(1..=MAX_FEATURES).contains(&n_features) => {
                let problem = format!("{n_features} random features are not in 1..={MAX_FEATURES}");
                Err(Error::Config { key: "model.layers.feature_map".into(), problem })
            }
            _ => Ok(()),
        }
    }

    /// Whether the gradient needs the map's input: its output does not tell it.
    pub const fn keeps_input(self) -> bool {
        match self {
            Self::Relu | Self::Elu => false,
            Self::Squared | Self::Favor { .. } => true,
        }
    }
}

vectorized! {
/// x = φ(x), element by element, of the first `n_mapped` columns of rows of `width` numbers; any map
/// but FAVOR+ (see [`super::favor`]).
pub fn feature_map_forward(map: FeatureMap, x: &'a mut [f32], width: usize, n_mapped: usize) {
    for row in x.chunks_exact_mut(width) {
        let x = &mut row[..n_mapped];
        match map {
            FeatureMap::Elu => {
                for x in x {
                    *x = if *x > 0.0 { *x + 1.0 } else { exp(*x) };
                }
            }
            FeatureMap::Squared => x.iter_mut().for_each(|x| *x *= *x),
            FeatureMap::Relu => relu_forward(x),
            FeatureMap::Favor { .. } => {} // not element by element
        }
    }
}
}

vectorized! {
/// The first `n_mapped` columns of `dy`, of rows of `dy_width` numbers, become the input's gradient.
/// `kept`, rows of `kept_width` numbers: the map's input where it
/// [keeps it](FeatureMap::keeps_input), else its output.
pub fn feature_map_backward(
    map: FeatureMap,
    kept: &'a [f32],
    kept_width: usize,
    dy: &'a mut [f32],
    dy_width: usize,
    n_mapped: usize,
) {
    for (kept, dy) in kept.chunks_exact(kept_width).zip(dy.chunks_exact_mut(dy_width)) {
        let (kept, dy) = (&kept[..n_mapped], &mut dy[..n_mapped]);
        match map {
            FeatureMap::Elu => {
                for (dy, &y) in dy.iter_mut().zip(kept) {
                    *dy *= y.min(1.0); // e^x is its own derivative
                }
            }
            FeatureMap::Squared => dy.iter_mut().zip(kept).for_each(|(dy, x)| *dy *= 2.0 * x),
            FeatureMap::Relu => relu_backward(kept, dy),
            FeatureMap::Favor { .. } => {}
        }
    }
}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::check::*;

    /// φ in f64; none of FAVOR+, which is not element by element.
    fn plain(map: FeatureMap) -> Option<fn(f64) -> f64> {
        match map {
            FeatureMap::Relu => Some(|x| x.max(0.0)),
            FeatureMap::Elu => Some(|x| if x > 0.0 { x + 1.0 } else { x.exp() }),
            FeatureMap::Squared => Some(|x| x * x),
            FeatureMap::Favor { .. } => None,
        }
    }

    #[test]
    fn feature_maps_and_their_gradients() {
        let (x, dy) = (numbers(37, 1), numbers(37, 2));
        for map in FeatureMap::ALL {
            let Some(plain) = plain(map) else { continue };
            let plain = |x: &[f64]| x.iter().copied().map(plain).collect::<Vec<_>>();
            let mut y = x.clone();
            feature_map_forward(map, &mut y, 37, 37);
            assert_close_of(map.name(), &y, &plain(&f64s(&x)), 1e-6);
            let mut dx = dy.clone();
            let kept = if map.keeps_input() { &x } else { &y };
            feature_map_backward(map, kept, 37, &mut dx, 37, 37);
            assert_gradient_of(map.name(), &dx, &x, &dy, plain);
        }
    }

    #[test]
    fn all_maps_are_listed_under_their_names() {
        assert_eq!(FeatureMap::ALL.map(FeatureMap::name).to_vec(), names_in_files::<FeatureMap>());
    }

    #[test]
    fn refuses_numbers_of_features_and_unknown_maps() {
        for n_features in [0, MAX_FEATURES + 1] {
            assert!(FeatureMap::Favor { n_features, seed: 0 }.validate().is_err());
        }
        assert!(FeatureMap::Favor { n_features: 1, seed: 0 }.validate().is_ok());
        assert!(serde_json::from_str::<FeatureMap>(r#""gelu""#).is_err());
        let map: FeatureMap =
            serde_json::from_str(r#"{"favor":{"n_features":8,"seed":3}}"#).unwrap();
        assert_eq!(map, FeatureMap::Favor { n_features: 8, seed: 3 });
    }
}
