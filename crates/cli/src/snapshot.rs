//! A frame of a recording that plans start from.

use anyhow::{Context, Result, bail};
use forecloud::engine::backend::Device;
use forecloud::planner::candidates::{Candidates, Snapshot};
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::Predictor;
use forecloud::robot::kinematics::Robot;
use forecloud_bag::recording::Recording;
use std::path::PathBuf;

use super::numbers::{of_settings, within};
use super::say::say;
use super::topics::PredictArgs;
use super::{model_file, threads};

/// Which frame, and how it is read.
#[derive(clap::Args)]
pub struct SnapshotArgs {
    /// rosbag2 folder or .mcap file
    #[arg(value_name = "BAG")]
    bag: PathBuf,
    /// Seconds from the recording's first frame after which plans start, at the first frame that can be
    /// predicted [default: 0]
    #[arg(long, value_name = "SECS", default_value_t = 0.0, hide_default_value = true, value_parser = within(0.0..=1e9))]
    at: f64,
    /// Model file [default: the shipped models/small.safetensors]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Scene particles of the frame, up to 1048576 [default: as the model was trained]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = within(PredictorConfig::N_PARTICLES))]
    particles: usize,
    /// Seed of the particles' draw
    #[arg(long, default_value_t = 0)]
    particle_seed: u64,
    /// Threads, at most as many as there are cores [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Where to roll out plans: auto (a GPU where one answers), cpu, cuda or cuda:INDEX
    #[arg(long, default_value_t = Device::default())]
    device: Device,
    #[command(flatten)]
    pub topics: PredictArgs,
}

impl SnapshotArgs {
    /// Threads to work on.
    pub fn n_threads(&self) -> usize {
        threads::bounded(self.threads.map(usize::from))
    }

    /// What plans are rolled out on.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Says on stderr what plans were rolled out on, where another device than the CPU was asked for.
    pub fn tell_device(&self, candidates: &Candidates) {
        if self.device != Device::Cpu {
            say(format_args!("device: {}", candidates.device()));
        }
    }

    /// Tells where a roll-out has fewer particles than `thin` asks for.
    pub fn tell_thin(&self, thin: usize, default: usize, snapshot: &Snapshot) {
        let n = snapshot.n_particles();
        if thin > n && thin != default {
            say(format_args!("note: --thin {thin} has no effect: the frame has {n} particles"));
        }
    }

    /// Predicts from the frame; `names` refuses what the robot lacks, before the recording is played.
    pub fn take(
        &self,
        command: &str,
        names: impl FnOnce(&Robot) -> forecloud::Result<()>,
    ) -> Result<Snapshot> {
        let (model, _) = model_file::load(self.model.as_deref())?;
        let frames = self.topics.config()?;
        let world_link = frames.world_link().to_owned();
        let asked = self.topics.workspace(model.config.workspace);
        let mut config = PredictorConfig {
            n_particles: self.particles,
            seed: self.particle_seed,
            horizon: 1,
            workspace: asked,
            ..self.topics.predictor()
        };
        config.validate_for(&model.config).map_err(of_settings)?;
        let recording = Recording::open(&self.bag, frames)
            .map_err(|error| self.topics.with_command(error, command))?;
        let Some(mut urdf) = recording.robot_description()? else {
            bail!("{} has no robot description: plans need a robot", self.bag.display());
        };
        // One that can't be used is told where the predictor takes it.
        if let Ok(robot) = Robot::from_urdf(&urdf, 1, &world_link) {
            names(&robot).map_err(of_settings)?;
        }
        let place = match asked {
            Some(_) => None,
            None => recording.place(&model.config.workspace)?,
        };
        if let Some(place) = place {
            config = config.placed(place);
        }
        let mut predictor = Predictor::new(model, config).map_err(of_settings)?;
        predictor.set_meshes(self.topics.meshes());
        predictor.set_robot(&urdf, &world_link)?;
        let mut first = None;
        let mut taken: Result<Option<Snapshot>> = Ok(None);
        // An error ends the play.
        let mut last_secs = 0.0;
        let played = recording.play(|frame, _| {
            let secs = frame.stamp.secs_since(*first.get_or_insert(frame.stamp));
            last_secs = secs;
            if let Some(newest) = &frame.robot_description
                && **newest != *urdf
            {
                // One that can't be used changes nothing.
                urdf = newest.to_string();
                let _ = predictor.set_robot(&urdf, &world_link);
            }
            let step_secs = predictor.model().config.step_secs;
            if secs < self.at - 2.0 * step_secs {
                return Ok(());
            }
            match predictor.step(&frame) {
                Ok(Some(_)) if secs >= self.at - 1e-6 => {
                    taken = predictor.snapshot().map(Some).map_err(Into::into);
                    Err(())
                }
                Ok(_) => Ok(()),
                Err(error) => {
                    taken = Err(error.into());
                    Err(())
                }
            }
        });
        let taken = taken.with_context(|| format!("cannot predict {}", self.bag.display()))?;
        let Some(snapshot) = taken else {
            // None: an error ended the play.
            let cause = played.ok().and_then(|(_, problems)| Some(problems.first()?.text()));
            let (bag, at) = (self.bag.display(), self.at);
            match (first, cause) {
                (None, Some(cause)) => {
                    bail!("{bag}: no frame can be made of its messages: {cause}")
                }
                (None, None) => bail!("{bag}: no frame can be made of its messages"),
                (Some(_), _) if at > last_secs => bail!(
                    "{bag}: no frame after {at} s: choose an earlier --at, as the last one is at {last_secs:.1} s"
                ),
                (Some(_), cause) => bail!(
                    "{bag}: no frame after {at} s has another one a step ({} s) before it, which predictions \
                     need{}",
                    predictor.model().config.step_secs,
                    cause.map_or(String::new(), |cause| format!(": {cause}"))
                ),
            }
        };
        Ok(snapshot)
    }
}
