//! Which vector instructions the loops and matrix products take: the widest that the processor has,
//! or those that the environment variable [`VARIABLE`] names.
//!
//! The variable is for measurements: it lets a processor with AVX-512 tell what one with AVX2 does.

use std::sync::OnceLock;

use pulp::Arch;

use crate::{Error, Result};

/// Environment variable that holds the choice; unset or empty, the widest are taken.
pub const VARIABLE: &str = "FORECLOUD_SIMD";

/// Vector instructions, narrowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionSet {
    /// None: one number at a time, or what every processor of this kind has.
    Scalar,
    /// AVX2 with FMA, on x86-64: 8 numbers.
    Avx2,
    /// AVX-512, on x86-64: 16 numbers.
    Avx512,
    /// NEON, on 64-bit Arm: 4 numbers.
    Neon,
}

impl InstructionSet {
    /// All, narrowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Neon];

    /// The name that [`VARIABLE`] takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// The widest that this processor has.
    pub fn widest() -> Self {
        Self::ALL.into_iter().rfind(|set| set.arch().is_some()).unwrap_or(Self::Scalar)
    }

    /// What is in use: read from the environment once. Where that is wrong, a warning is logged and
    /// the widest are taken; programs call [`InstructionSet::from_environment`] first.
    pub fn in_use() -> Self {
        choice().set
    }

    /// What [`VARIABLE`] names, or the widest.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown name and for instructions that this processor lacks.
    pub fn from_environment() -> Result<Self> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Self::widest()),
            Some(name) => Self::from_name(&name.to_string_lossy()),
        }
    }

    fn from_name(name: &str) -> Result<Self> {
        if name.is_empty() {
            return Ok(Self::widest());
        }
        let found = Self::ALL.into_iter().find(|set| set.name() == name);
        if let Some(set) = found.filter(|set| set.arch().is_some()) {
            return Ok(set);
        }
        let here: Vec<_> = Self::ALL.into_iter().filter(|set| set.arch().is_some()).collect();
        let here: Vec<_> = here.into_iter().map(Self::name).collect();
        let what = if found.is_some() { "this processor lacks" } else { "there is no" };
        let problem = format!(
            "{what} '{name}': take {}, or unset it for the widest that this processor has",
            here.join(" or ")
        );
        Err(Error::Config { key: VARIABLE.into(), problem })
    }

    /// `pulp`'s name for it, if this processor has it.
    fn arch(self) -> Option<Arch> {
        match self {
            Self::Scalar => Some(Arch::Scalar),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => pulp::x86::V3::try_new().map(Arch::V3),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => pulp::x86::V4::try_new().map(Arch::V4),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => Some(Arch::new()).filter(|arch| !matches!(arch, Arch::Scalar)),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }
}

/// What is in use.
#[derive(Clone, Copy)]
struct Choice {
    set: InstructionSet,
    arch: Arch,
    /// The set, where the processor has wider ones.
    held_back: Option<InstructionSet>,
}

/// What `pulp` is to run on.
#[inline(always)]
pub(crate) fn arch() -> Arch {
    choice().arch
}

/// The set in use where the processor has wider ones: libraries that choose by themselves are to be
/// held back.
#[inline(always)]
pub(crate) fn held_back() -> Option<InstructionSet> {
    choice().held_back
}

#[inline(always)]
fn choice() -> Choice {
    static CHOICE: OnceLock<Choice> = OnceLock::new();
    *CHOICE.get_or_init(choose)
}

#[cold]
fn choose() -> Choice {
    let widest = InstructionSet::widest();
    let set = InstructionSet::from_environment().unwrap_or_else(|error| {
        tracing::warn!("{error}; the widest are taken");
        widest
    });
    let arch = set.arch().unwrap_or(Arch::Scalar);
    Choice { set, arch, held_back: Some(set).filter(|set| *set != widest) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use pulp::{Simd, WithSimd};

    use super::*;

    /// Numbers in a vector of the instructions that a kernel runs on.
    struct Lanes;

    impl WithSimd for Lanes {
        type Output = usize;

        fn with_simd<S: Simd>(self, _: S) -> usize {
            S::F32_LANES
        }
    }

    #[test]
    fn every_set_that_is_here_runs_at_its_width() {
        for (set, lanes) in InstructionSet::ALL.into_iter().zip([1, 8, 16, 4]) {
            let Some(arch) = set.arch() else { continue };
            assert_eq!(arch.dispatch(Lanes), lanes, "{set:?}");
            assert_eq!(InstructionSet::from_name(set.name()).unwrap(), set);
        }
        assert_eq!(InstructionSet::from_name("").unwrap(), InstructionSet::widest());
    }

    #[test]
    fn unknown_names_and_those_of_other_processors_are_told() {
        let message = |name: &str| InstructionSet::from_name(name).unwrap_err().to_string();
        for (name, what) in [("sse9", "there is no 'sse9'"), ("AVX2", "there is no 'AVX2'")] {
            let message = message(name);
            assert!(message.starts_with("FORECLOUD_SIMD: "), "{message}");
            assert!(message.contains(what) && message.contains("scalar"), "{message}");
        }
        let absent = InstructionSet::ALL.into_iter().filter(|set| set.arch().is_none());
        for set in absent {
            let message = message(set.name());
            assert!(message.contains("this processor lacks"), "{message}");
        }
    }

    /// What a process of its own, this test again, has in use.
    #[test]
    fn the_environment_is_obeyed() {
        const INNER: &str = "FORECLOUD_SIMD_TEST";
        if std::env::var_os(INNER).is_some() {
            println!("runs on {} lanes", crate::base::simd::dispatch(Lanes));
            return;
        }
        let lanes_with = |name: &str| {
            let name_of_this =
                concat!(module_path!(), "::the_environment_is_obeyed").split_once("::").unwrap().1;
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([name_of_this, "--exact", "--nocapture"]);
            let output = command.env(INNER, "1").env(VARIABLE, name).output().unwrap();
            assert!(output.status.success());
            let text = String::from_utf8(output.stdout).unwrap();
            let words = text.split("runs on ").nth(1).unwrap_or_else(|| panic!("{text}"));
            words.split_whitespace().next().unwrap().parse::<usize>().unwrap()
        };
        let widest = InstructionSet::widest().arch().unwrap().dispatch(Lanes);
        assert_eq!((lanes_with("scalar"), lanes_with("")), (1, widest));
        if InstructionSet::Avx2.arch().is_some() {
            assert_eq!(lanes_with("avx2"), 8);
        }
        assert_eq!(lanes_with("sse9"), widest, "a library warns and goes on");
    }
}
