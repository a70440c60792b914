//! Arguments of `forecloud replay`.

use anyhow::{Context, Result, ensure};
use forecloud::engine::backend::Device;
use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::vision::cloud::{SensorNoise, Workspace};
use forecloud::vision::frames::{CameraInput, CameraTopics};
use forecloud_bag::shards::Shard;
use forecloud_eval::Published;
use forecloud_video::VideoModel;
use std::path::{Path, PathBuf};

use super::model_file;
use super::numbers::{must, within, wrong};
use super::say::say;
use super::topics::PredictArgs;
use super::train_video::VIDEO;

/// Predict recordings, and measure the errors against their truth or against what was seen later.
#[derive(clap::Args)]
#[command(after_help = "\
Errors are mean distances in mm between predicted and true positions after each step, over all points of \
all frames; for static points they are the motion predicted for them. Without truth (topics under /truth), \
predictions are compared with what the cameras saw later: the share of points that the cameras saw through \
(wrong), and the Chamfer distance. docs/src/reference/measures.md explains how to read them.

Existing files are replaced only if Forecloud wrote them, and recordings never.

Exit codes:
  0  all recordings were predicted
  1  no result: an error, nothing could be predicted, or --predictions differ
  2  wrong arguments
  3  a partial result: recordings were skipped, or --predictions lack frames

Examples:
  forecloud replay data/demo_tumble
  forecloud replay --out results data/demo_tumble
  forecloud replay --json --horizon 10 push_* > errors.json
  forecloud replay --no-truth data/demo_tumble
  forecloud replay --predictions node.mcap data/demo_tumble
  forecloud replay --render --out results data/demo_tumble
  forecloud replay --shard 1/4 --out shards push_*; forecloud merge shards
  forecloud replay --workspace -1,-1,-0.1 1,1,1.5 my_bag
  forecloud replay -p robot:=none my_bag
  forecloud replay --cameras front --input points --remap /front/points:=/lidar/points my_bag")]
pub struct Args {
    /// rosbag2 folders or .mcap files
    #[arg(required = true, value_name = "BAG")]
    pub(super) bags: Vec<PathBuf>,
    /// Model file [default: the shipped models/small.safetensors]
    #[arg(long, value_name = "FILE")]
    pub(super) model: Option<PathBuf>,
    /// Steps to predict, from 1 to 100 [default: 5, or as published]
    #[arg(long, value_name = "STEPS", value_parser = within(PredictorConfig::HORIZON))]
    pub(super) horizon: Option<usize>,
    /// Scene particles, up to 1048576 [default: as the model was trained, or as published]
    #[arg(long, value_name = "N", value_parser = within(PredictorConfig::N_PARTICLES))]
    pub(super) particles: Option<usize>,
    /// Seed of the particles' draw [default: 0, or as published]
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// What to predict on: auto (a GPU where one answers), cpu, cuda or cuda:INDEX
    #[arg(long, default_value_t = Device::default())]
    pub(super) device: Device,
    /// Box to predict: lowest and highest x,y,z in the world frame, in metres [default: the model's; if
    /// less than a quarter of what the cameras see lies in it, a box around what they see in the first
    /// frame]
    #[arg(long, num_args = 2, value_names = ["MIN", "MAX"], allow_hyphen_values = true, value_parser = parse_corner)]
    pub(super) workspace: Option<Vec<Corner>>,
    /// Threads to predict on, at most as many as there are cores [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,
    /// Compare with predictions that a node published (one BAG); fails if they differ
    #[arg(long, value_name = "FILE")]
    pub(super) predictions: Option<PathBuf>,
    /// Ignore the truth, and measure as without it
    #[arg(long)]
    pub(super) no_truth: bool,
    /// Add noise to the depth images, from 0 to 10: 1 is a typical camera's (RealSense D435) [default: 0]
    #[arg(long, value_name = "STRENGTH", conflicts_with = "predictions")]
    pub(super) sensor_noise: Option<f32>,
    /// Save a PNG of truth (or what was seen later) beside prediction, for the frame with most motion
    #[arg(long, value_name = "FILE")]
    pub(super) picture: Option<PathBuf>,
    /// Folder for a page of results, to open in a browser, with tables (CSV), predictions (MCAP) and a
    /// picture; created if needed, earlier results in it are replaced
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Draw what the cameras will see, for one frame per half second, and compare it with what they saw
    /// (SSIM, PSNR); with --out also as pictures
    #[arg(long)]
    pub(super) render: bool,
    /// Renderer, as `forecloud train-video` writes it [default: video.safetensors beside the model, else
    /// the shipped models/video.safetensors]
    #[arg(long, value_name = "FILE", requires = "render")]
    pub(super) video: Option<PathBuf>,
    /// Process shard I of N of the recordings (I from 1), chosen by name alone, and store the results in
    /// --out for `forecloud merge`; a second run does only what is missing
    #[arg(
        long,
        value_name = "I/N",
        requires = "out",
        conflicts_with_all = ["picture", "render", "predictions", "json"]
    )]
    pub(super) shard: Option<Shard>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) topics: PredictArgs,
}

/// A corner as `--workspace` takes it.
pub(super) fn corner(corner: Corner) -> String {
    let texts = corner.map(|x| format!("{:.2}", if x == 0.0 { 0.0 } else { x }));
    texts.join(",")
}

/// x, y, z of a corner of the workspace (m).
pub(super) type Corner = [f32; 3];

fn parse_corner(text: &str) -> Result<Corner, String> {
    let values: Result<Vec<f32>, _> = text.split(',').map(|value| value.trim().parse()).collect();
    let corner = values.ok().and_then(|values| Corner::try_from(values).ok());
    corner.ok_or_else(|| "expected x,y,z in metres, such as -0.5,-0.5,0".into())
}

impl Args {
    /// Checks all that can be without a file, before any work; tells on stderr what has no effect.
    pub(super) fn check(&self) -> Result<()> {
        self.topics.check()?;
        if self.workspace.is_some() {
            self.topics.must_not_set_workspace("--workspace")?;
        }
        must(self.predictions.is_none() || self.bags.len() == 1, || {
            "--predictions belongs to one recording, not to several".to_owned()
        })?;
        let has_depth = |camera: &CameraTopics| camera.input != CameraInput::Points;
        if self.noise()?.is_some() && !self.topics.config()?.topics.cameras.iter().any(has_depth) {
            say(
                "note: --sensor-noise has no effect: cameras of --input points send no depth images",
            );
        }
        Ok(())
    }

    /// The folder of the page, if there is to be one.
    pub(super) fn page(&self) -> Option<&Path> {
        self.out.as_deref().filter(|_| self.shard.is_none())
    }

    /// None for a strength of 0.
    pub(super) fn noise(&self) -> Result<Option<SensorNoise>> {
        let Some(strength) = self.sensor_noise else { return Ok(None) };
        let noise = SensorNoise { strength, ..SensorNoise::default() };
        noise.validate().map_err(|error| wrong(format!("--sensor-noise: {error}")))?;
        Ok((strength > 0.0).then_some(noise))
    }

    /// What draws pictures, and its file, if they are asked for; `model` is the model's file.
    pub(super) fn video(&self, model: &Path) -> Result<Option<(VideoModel, PathBuf)>> {
        if !self.render {
            return Ok(None);
        }
        let beside = model.with_file_name(VIDEO);
        let path = match &self.video {
            Some(path) => path.clone(),
            None if beside.is_file() => beside,
            None => model_file::shipped(model_file::VIDEO).unwrap_or(beside),
        };
        let video = VideoModel::load(&path).context(
            "--render needs a renderer: train one with `forecloud train-video`, and name it with --video",
        )?;
        Ok(Some((video, path)))
    }

    /// What a node published, if that is to be compared.
    pub(super) fn published(&self, model: &Model) -> Result<Option<Published>> {
        let Some(path) = &self.predictions else { return Ok(None) };
        let published = Published::read(path).context("cannot read the published predictions")?;
        let theirs = published.first().map_or("", |first| &first.model_hash);
        ensure!(
            theirs == model.hash,
            "the node ran model {theirs}, replay would run {}: name the node's with --model \
             (`forecloud info` shows a model file's hash)",
            model.hash
        );
        Ok(Some(published))
    }

    /// What the arguments leave open is as published, else the default.
    pub(super) fn config(&self, published: Option<&Published>) -> PredictorConfig {
        let first = published.and_then(Published::first);
        let default = self.topics.predictor();
        let horizon = published.map(Published::n_steps);
        let n_particles = published.map(Published::n_particles);
        let workspace = self.workspace.as_deref().and_then(|corners| match corners {
            [min, max] => Some(Workspace { min: *min, max: *max }),
            _ => None,
        });
        PredictorConfig {
            horizon: self.horizon.or(horizon).unwrap_or(default.horizon),
            n_particles: self.particles.or(n_particles).unwrap_or(default.n_particles),
            seed: self.seed.or(first.map(|first| first.seed)).unwrap_or(default.seed),
            device: self.device,
            workspace,
            ..default
        }
    }
}
