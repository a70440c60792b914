//! Samplers and sides of a kernel as options of a command.

use crate::theory::series::Side;
use clap::ValueEnum;
use forecloud::engine::graph::walks::Sampler;

#[derive(Clone, Copy, PartialEq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SideName {
    Symmetric,
    Asymmetric,
}

#[derive(Clone, Copy, PartialEq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SamplerName {
    Iid,
    Antithetic,
    Repelling,
    #[value(name = "antithetic+repelling")]
    AntitheticRepelling,
}

impl From<SamplerName> for Sampler {
    fn from(name: SamplerName) -> Self {
        match name {
            SamplerName::Iid => Self::Iid,
            SamplerName::Antithetic => Self::Antithetic,
            SamplerName::Repelling => Self::Repelling,
            SamplerName::AntitheticRepelling => Self::AntitheticRepelling,
        }
    }
}

impl From<SideName> for Side {
    fn from(name: SideName) -> Self {
        match name {
            SideName::Symmetric => Self::Symmetric,
            SideName::Asymmetric => Self::Asymmetric,
        }
    }
}
