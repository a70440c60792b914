//! What predictions run on: the CPU, or a GPU where there is one.

mod batch;
#[cfg(feature = "cuda")]
pub mod cuda;
mod probe;

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::engine::model::{Mode, Model, Rollout};
use crate::engine::rollout_input::RolloutInput;
use crate::vision::cloud::raw::{self, RawCamera};
use crate::vision::frames::CameraFrame;
use crate::vision::particles::{CpuSampler, ParticleSampler, Particles, Sampling};
use crate::{Error, Result};
pub use batch::Steps;
pub(crate) use batch::{BatchRollout, Turns};

/// Which device predictions are to run on: `auto`, `cpu`, `cuda` or `cuda:INDEX` in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// The first GPU where one answers and runs the model, else the CPU, also if the GPU fails later.
    Auto,
    /// The CPU: the default, as a card may be another program's.
    #[default]
    Cpu,
    /// This GPU, as the driver counts them, and nothing else.
    Cuda(u16),
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let index = text.strip_prefix("cuda:").map(str::parse);
        match (text, index) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(Ok(index))) => Ok(Self::Cuda(index)),
            _ => {
                let problem = format!("'{text}' is none of auto, cpu, cuda and cuda:INDEX");
                Err(Error::Config { key: "device".into(), problem })
            }
        }
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl TryFrom<String> for Device {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

/// Roll-outs of one model on a device beside the CPU.
pub trait Rollouts: Send {
    /// As [`Rollout::run_while`].
    ///
    /// # Errors
    /// As there, and [`Error::Device`] if the device fails.
    fn run_while(
        &mut self,
        scene: &RolloutInput,
        n_steps: usize,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()>;

    /// As [`Rollout::displacements`].
    fn displacements(&self, t: usize) -> &[[f32; 3]];

    /// As [`Rollout::sigmas`].
    fn sigmas(&self, t: usize) -> Option<&[f32]>;

    /// As [`Rollout::n_steps`].
    fn n_steps(&self) -> usize;

    /// The device, for people: `cuda:0 (Orin)`.
    fn name(&self) -> &str;
}

/// Roll-outs of several scenes at once on a device beside the CPU.
pub trait SideBySide: Send {
    /// Predicts so many steps of each of `scenes` into `steps`, one for each, as [`Rollout::run`] does of one.
    /// All scenes have as many particles, points of the robot and links.
    ///
    /// # Errors
    /// As there, of a scene that has one; [`Error::Shape`] for too many tokens, or scenes of other sizes than
    /// the first; [`Error::Device`] if the device fails, and the next run starts afresh then.
    fn run(&mut self, scenes: &[(&RolloutInput, usize)], steps: &mut [Steps]) -> Result<()>;

    /// The device, for people: `cuda:0 (Orin)`, and how many scenes it takes at once where memory bounds them.
    fn name(&self) -> &str;
}

/// Particles from images on a device beside the CPU.
pub(crate) trait RawSampler: Send {
    /// As [`ParticleSampler::sample`], but for where the cameras stand.
    ///
    /// # Errors
    /// [`Error::Device`] if the device fails, [`Error::Shape`] for more than it takes.
    fn sample(
        &mut self,
        cameras: &[RawCamera],
        sampling: &Sampling,
        samples: [(&mut Particles, usize); 2],
    ) -> Result<()>;
}

/// A device beside the CPU.
struct Other {
    rollouts: Box<dyn Rollouts>,
    sampler: Box<dyn RawSampler>,
}

/// Makes particles and runs roll-outs on the device that was asked for.
pub struct Backend {
    device: Device,
    cpu: Rollout,
    cpu_sampler: CpuSampler,
    other: Option<Other>,
    fallback: Option<String>,
    is_missed: bool,
}

impl Backend {
    /// Roll-outs of `model` on `device`.
    ///
    /// # Errors
    /// [`Error::Device`] if a GPU was asked for that can't be used, or computes something else than
    /// the CPU; see [`Backend::fallback`] for
    /// [`Device::Auto`].
    pub fn new(model: &Model, device: Device) -> Result<Self> {
        let mut cpu = Rollout::new(model.config.rollout(), Mode::Inference);
        let (mut other, mut fallback, mut is_missed) = (None, None, false);
        match device {
            Device::Cpu => {}
            Device::Cuda(index) => other = Some(open_trusted(model, index, &mut cpu)?),
            // Without GPUs in this build there is nothing to miss.
            Device::Auto if !cfg!(feature = "cuda") => {}
            Device::Auto => match open_trusted(model, 0, &mut cpu) {
                Ok(opened) => other = Some(opened),
                Err(error) => {
                    fallback = Some(error.to_string());
                    is_missed = has_card();
                }
            },
        }
        let cpu_sampler = CpuSampler::default();
        Ok(Self { device, cpu, cpu_sampler, other, fallback, is_missed })
    }

    /// Predicts as [`Rollout::run_while`] does. Where `auto` runs on a GPU that fails, this run and all
    /// later ones are the CPU's.
    ///
    /// # Errors
    /// As there, and [`Error::Device`] if a GPU that was asked for fails.
    pub fn run_while(
        &mut self,
        weights: &[f32],
        scene: &RolloutInput,
        n_steps: usize,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Result<()> {
        if let Some(other) = &mut self.other {
            let done = other.rollouts.run_while(scene, n_steps, &mut goes_on);
            if !self.drop_failed_device(&done) {
                return done;
            }
        }
        self.cpu.run_while(weights, scene, n_steps, goes_on)
    }

    /// Drops the other device if it failed with `done` and the CPU may take its place; whether it did,
    /// and the CPU has to do this again.
    fn drop_failed_device(&mut self, done: &Result<()>) -> bool {
        let Err(error @ Error::Device { .. }) = done else { return false };
        if self.device != Device::Auto {
            return false;
        }
        self.fallback = Some(error.to_string());
        self.other = None;
        self.is_missed = true;
        true
    }

    /// Displacements of step `t` of the last run (m), `[n]`.
    pub fn displacements(&self, t: usize) -> &[[f32; 3]] {
        match &self.other {
            Some(other) => other.rollouts.displacements(t),
            None => self.cpu.displacements(t),
        }
    }

    /// As [`Rollout::sigmas`], of step `t` of the last run.
    pub fn sigmas(&self, t: usize) -> Option<&[f32]> {
        match &self.other {
            Some(other) => other.rollouts.sigmas(t),
            None => self.cpu.sigmas(t),
        }
    }

    /// Steps of the last run.
    pub fn n_steps(&self) -> usize {
        self.other.as_ref().map_or_else(|| self.cpu.n_steps(), |other| other.rollouts.n_steps())
    }

    /// What it runs on, for people: `cpu`, or `cuda:0 (Orin)`.
    pub fn name(&self) -> &str {
        self.other.as_ref().map_or("cpu", |other| other.rollouts.name())
    }

    /// The name, and why it is the CPU where a GPU was tried.
    pub fn describe(&self) -> String {
        match &self.fallback {
            Some(fallback) => format!("{} ({fallback})", self.name()),
            None => self.name().to_owned(),
        }
    }

    /// Why `auto` runs on the CPU though this build knows GPUs, with the remedy; none on a GPU.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// As [`Backend::fallback`] where there is a GPU, which is worth a warning: it does not run this
    /// model, is too old, or has failed. None on machines without one.
    pub fn missed(&self) -> Option<&str> {
        self.fallback().filter(|_| self.is_missed)
    }
}

impl ParticleSampler for Backend {
    /// Clouds, depth images that are not registered to their colour images, and cameras whose numbers
    /// don't ascend are the CPU's on every device. Where `auto` runs on a GPU that fails, this and all
    /// that follows is the CPU's, and the last roll-out is forgotten.
    fn sample(
        &mut self,
        cameras: &[CameraFrame],
        sampling: &Sampling,
        samples: [(&mut Particles, usize); 2],
    ) -> Result<()> {
        let [(first, n_first), (second, n_second)] = samples;
        if let Some(other) = self.other.as_mut().filter(|_| raw::are_raw(cameras)) {
            let raw = self.cpu_sampler.optics().raw(cameras)?;
            let samples = [(&mut *first, n_first), (&mut *second, n_second)];
            let done = other.sampler.sample(&raw, sampling, samples);
            if done.is_ok() {
                raw::eyes(cameras, &mut first.eyes);
                second.eyes.clone_from(&first.eyes);
            }
            if !self.drop_failed_device(&done) {
                return done;
            }
        }
        self.cpu_sampler.sample(cameras, sampling, [(first, n_first), (second, n_second)])
    }
}

/// Opens a GPU and tries it on a small image and a small scene.
fn open_trusted(model: &Model, index: u16, cpu: &mut Rollout) -> Result<Other> {
    let mut opened = open_cuda(model, index)?;
    probe::probe(model, cpu, opened.rollouts.as_mut())?;
    probe::probe_sampler(opened.sampler.as_mut(), opened.rollouts.name())?;
    Ok(opened)
}

#[cfg(feature = "cuda")]
fn open_cuda(model: &Model, index: u16) -> Result<Other> {
    let gpu = std::sync::Arc::new(cuda::Gpu::open(index.into())?);
    let rollouts = Box::new(cuda_rollout(model, gpu.clone())?);
    Ok(Other { rollouts, sampler: Box::new(cuda::Sampler::new(gpu)) })
}

#[cfg(feature = "cuda")]
fn open_cuda_side_by_side(model: &Model, index: u16) -> Result<Box<dyn SideBySide>> {
    let gpu = std::sync::Arc::new(cuda::Gpu::open(index.into())?);
    Ok(Box::new(cuda_rollout(model, gpu)?))
}

#[cfg(feature = "cuda")]
fn cuda_rollout(model: &Model, gpu: std::sync::Arc<cuda::Gpu>) -> Result<cuda::Rollout> {
    cuda::Rollout::new(gpu, model.config.rollout(), &model.weights, cuda::Precision::Half)
}

#[cfg(feature = "cuda")]
fn has_card() -> bool {
    cuda::Gpu::count() > 0
}

#[cfg(not(feature = "cuda"))]
fn has_card() -> bool {
    false
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(_model: &Model, index: u16) -> Result<Other> {
    Err(built_without(index))
}

#[cfg(not(feature = "cuda"))]
fn open_cuda_side_by_side(_model: &Model, index: u16) -> Result<Box<dyn SideBySide>> {
    Err(built_without(index))
}

#[cfg(not(feature = "cuda"))]
fn built_without(index: u16) -> Error {
    let problem = "this program was built without GPUs: build it with `--features cuda`, or take \
                   device: cpu";
    Error::Device { device: Device::Cuda(index).to_string(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for text in ["auto", "cpu", "cuda:0", "cuda:12"] {
            let device: Device = text.parse().unwrap();
            assert_eq!(device.to_string(), text);
            assert_eq!(serde_json::to_string(&device).unwrap(), format!("\"{text}\""));
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:70000", "cuda:0 ", "CPU"] {
            let message = text.parse::<Device>().unwrap_err().to_string();
            assert!(message.contains("auto, cpu, cuda"), "{message}");
        }
        assert!(serde_json::from_str::<Device>("\"tpu\"").is_err());
    }
}
