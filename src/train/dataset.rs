//! Windows of recordings to train on: particles of two frames, the robot's plan, the true flow.

use std::path::Path;
use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::augment::{Augmentation, choose};
use super::episode::Episode;
use super::skipped::Skipped;
use crate::cloud::SensorNoise;
use crate::frames::FramesConfig;
use crate::model::{ModelConfig, Scene};
use crate::motion::MotionEstimator;
use crate::particles::Particles;
use crate::recording::{BodyKind, Recording, Truth, carry};
use crate::{Error, Result};

type Vec3 = [f32; 3];

/// Motion in a step beyond which an object point counts as moving, in metres.
pub const MOVING_M: f32 = 0.002;

/// What is done to windows on loading.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatasetConfig {
    /// Steps ahead that windows can reach.
    pub max_horizon: usize,
    /// Noise of the cameras, drawn anew for each recording; they are read once with it.
    pub noise: SensorNoise,
    /// Whether each recording draws the noise's strength, from 0 to twice that of `noise`.
    pub varies_noise: bool,
    /// Largest rotation about the vertical, in radians; each window draws up to it, either way.
    pub rotation_rad: f32,
    /// Share of windows in which objects move.
    pub active_share: f64,
}

impl Default for DatasetConfig {
    fn default() -> Self {
        Self {
            max_horizon: 5,
            noise: SensorNoise::default(),
            varies_noise: true,
            rotation_rad: 0.6,
            active_share: 0.8,
        }
    }
}

impl DatasetConfig {
    /// Noise of the recording at `path`.
    pub(super) fn noise_of(&self, path: &Path) -> SensorNoise {
        let noise = self.noise.of_recording(path);
        if self.varies_noise { noise.with_drawn_strength() } else { noise }
    }
}

/// Recordings of one split in memory.
pub struct Dataset {
    config: DatasetConfig,
    model: ModelConfig,
    frames: FramesConfig,
    episodes: Vec<Arc<Episode>>,
    windows: Vec<(u32, u32)>,
    active: Vec<u32>,
    skipped: Skipped,
}

/// A window: the start of a roll-out and where every particle truly goes.
#[derive(Debug, Default, Clone)]
pub struct Window {
    /// Start of the roll-out, and the robot's motion.
    pub scene: Scene,
    /// True positions after each step, `[horizon][n]`.
    pub targets: Vec<Vec<Vec3>>,
    /// Whether each particle is one of an object that moves in each step, `[horizon][n]`.
    pub moving: Vec<Vec<bool>>,
    /// What each particle belongs to.
    pub kinds: Vec<BodyKind>,
    /// True positions one step back, `[n]`.
    pub back: Vec<Vec3>,
    motion: MotionEstimator,
}

impl Dataset {
    /// An empty data set, for recordings that `frames` are made of.
    pub fn new(config: DatasetConfig, model: ModelConfig, frames: FramesConfig) -> Self {
        let (episodes, windows, active) = (Vec::new(), Vec::new(), Vec::new());
        let skipped = Skipped::default();
        Self { config, model, frames, episodes, windows, active, skipped }
    }

    /// Adds a recording if it has truth and its split is `split`; tells whether it was added.
    ///
    /// # Errors
    /// What makes the recording unusable.
    pub fn add(&mut self, path: &Path, split: &str) -> Result<bool> {
        let is_wanted = |truth: Option<&Truth>| truth.is_some_and(|truth| truth.split == split);
        let recording = Recording::open_if(path, self.frames.clone(), is_wanted)?;
        let Some(recording) = recording else { return Ok(false) };
        let read = self.read(&recording)?;
        self.push(read);
        Ok(true)
    }

    pub(super) fn read(&self, recording: &Recording) -> Result<(Episode, Skipped)> {
        Episode::read(recording, self.config, self.model)
    }

    /// Adds a recording that was read, with all of its windows: they start at frames that have
    /// others one step before, of the same cameras (as [`crate::observation::Memory::one_step_back`]
    /// tells why), and one step after, where the cameras don't matter, as bodies carry the truth.
    pub(super) fn push(&mut self, (episode, mut skipped): (Episode, Skipped)) {
        let index = self.episodes.len() as u32;
        for (t, sample) in episode.samples.iter().enumerate() {
            match (episode.before(t), episode.after(t, 1)) {
                (Ok(_), Some(_)) => {
                    if sample.is_active {
                        self.active.push(self.windows.len() as u32);
                    }
                    self.windows.push((index, t as u32));
                }
                (Ok(_), None) => skipped.without_after += 1,
                (Err(true), _) => skipped.other_cameras += 1,
                (Err(false), _) => skipped.without_before += 1,
            }
        }
        self.skipped.merge(skipped);
        self.episodes.push(Arc::new(episode));
    }

    /// How the frames of its recordings are made.
    pub(super) fn frames(&self) -> &FramesConfig {
        &self.frames
    }

    /// The same recordings for a model of other layers, masks, or fewer particles; they are shared,
    /// not copied.
    ///
    /// # Errors
    /// [`Error::Config`] names what was fixed when the recordings were read.
    pub fn for_model(&self, model: ModelConfig) -> Result<Self> {
        let n_kept = self.model.n_motion.max(self.model.n_particles);
        let differs = [
            ("n_particles", model.n_particles > n_kept),
            ("n_motion", model.n_motion.max(model.n_particles) > n_kept),
            ("n_kinematic", model.n_kinematic != self.model.n_kinematic),
            ("kinematic_detail", model.kinematic_detail != self.model.kinematic_detail),
            ("support_stride", model.support_stride != self.model.support_stride),
            ("step_secs", model.step_secs != self.model.step_secs),
            ("plan_lag_secs", model.plan_lag_secs != self.model.plan_lag_secs),
            ("workspace", model.workspace != self.model.workspace),
        ];
        if let Some((key, _)) = differs.iter().find(|(_, differs)| *differs) {
            let problem = "not that for which the recordings were read: read them again".into();
            return Err(Error::Config { key: format!("model.{key}"), problem });
        }
        Ok(Self {
            config: self.config,
            model,
            frames: self.frames.clone(),
            episodes: self.episodes.clone(),
            windows: self.windows.clone(),
            active: self.active.clone(),
            skipped: self.skipped.clone(),
        })
    }

    /// Number of recordings.
    pub fn n_recordings(&self) -> usize {
        self.episodes.len()
    }

    /// Number of windows.
    pub fn n_windows(&self) -> usize {
        self.windows.len()
    }

    /// Number of windows in which objects move.
    pub fn n_active(&self) -> usize {
        self.active.len()
    }

    /// Frames that are in no window, or that no window starts at.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Whether there is a frame in time for each of `horizon` steps of a window.
    fn reaches(&self, index: u32, horizon: usize) -> bool {
        let (episode, t) = self.windows[index as usize];
        let episode = &self.episodes[episode as usize];
        (1..=horizon).all(|steps| episode.after(t as usize, steps).is_some())
    }

    /// Draws a window of `horizon` steps, with noise and augmentation, active ones preferred;
    /// false if there is none so long.
    pub fn draw(&self, rng: &mut ChaCha8Rng, horizon: usize, window: &mut Window) -> bool {
        // Windows at a recording's end are too short for long roll-outs: draw again.
        for _ in 0..64 {
            let active = !self.active.is_empty() && rng.random_bool(self.config.active_share);
            let index = if active {
                self.active[rng.random_range(0..self.active.len())]
            } else {
                rng.random_range(0..self.windows.len()) as u32
            };
            if self.reaches(index, horizon) {
                let augmentation = Augmentation::draw(rng, &self.config, &self.model);
                return self.fill(index as usize, horizon, rng, Some(augmentation), window);
            }
        }
        false
    }

    /// Window `index` of `horizon` steps with noise, but neither rotated nor mirrored; false if
    /// the recording is too short for it.
    pub fn get(
        &self,
        index: usize,
        rng: &mut ChaCha8Rng,
        horizon: usize,
        window: &mut Window,
    ) -> bool {
        if index >= self.windows.len() || !self.reaches(index as u32, horizon) {
            return false;
        }
        self.fill(index, horizon, rng, None, window)
    }

    fn fill(
        &self,
        index: usize,
        horizon: usize,
        rng: &mut ChaCha8Rng,
        augmentation: Option<Augmentation>,
        window: &mut Window,
    ) -> bool {
        let (episode, t) = self.windows[index];
        let episode = &self.episodes[episode as usize];
        let (samples, t) = (&episode.samples, t as usize);
        let Ok(before) = episode.before(t) else { return false };
        let (mut cloud_before, mut cloud_now) = (samples[before].cloud(), samples[t].cloud());
        let (mut chosen, n) = (Vec::new(), self.model.n_particles);
        let (mut history, mut now) = (Particles::default(), Particles::default());
        choose(rng, cloud_before.len(), n, &mut chosen);
        history.pick(&cloud_before, &chosen);
        choose(rng, cloud_now.len(), n, &mut chosen);
        now.pick(&cloud_now, &chosen);
        window.set_truth(episode, [before, t], horizon, &chosen);
        if episode.place_robot([before, t], horizon, &mut window.scene.kinematic).is_err() {
            return false;
        }
        window.scene.start.kinematic_links.clear();
        window.scene.start.kinematic_links.extend(episode.robot.links());
        window.scene.start.kinematic_stride = self.model.kinematic_detail;
        if let Some(augmentation) = augmentation {
            for cloud in [&mut now, &mut history, &mut cloud_now, &mut cloud_before] {
                augmentation.apply(&mut cloud.positions);
            }
            window.targets.iter_mut().for_each(|positions| augmentation.apply(positions));
            augmentation.apply(&mut window.back);
            window.scene.kinematic.iter_mut().for_each(|positions| augmentation.apply(positions));
        }
        window.scene.set_particles(&now, &history, self.model.n_history);
        if self.model.mask.walks.is_some() {
            window.scene.walk_seed.seed = rng.random();
        }
        if self.model.n_motion > 0 {
            let clouds = [&cloud_before, &cloud_now];
            window.scene.set_motion(&mut window.motion, &now, clouds);
        }
        true
    }
}

impl Window {
    /// True positions and motion of the particles that are the points `chosen` of frame `t`: as
    /// measured, carried along by the body that their pixels show.
    fn set_truth(
        &mut self,
        episode: &Episode,
        [before, t]: [usize; 2],
        horizon: usize,
        chosen: &[u32],
    ) {
        let start = &episode.samples[t];
        let kind = |id: u16| episode.kinds.get(usize::from(id)).copied();
        self.kinds.clear();
        let bodies = chosen.iter().map(|&i| start.bodies[i as usize]);
        self.kinds.extend(bodies.map(|id| kind(id).unwrap_or(BodyKind::Static)));
        self.targets.resize_with(horizon, Vec::new);
        self.moving.resize_with(horizon, Vec::new);
        let mut last: Vec<Vec3> = chosen.iter().map(|&i| start.positions[i as usize]).collect();
        self.back.clear();
        let poses = &episode.samples[before].poses;
        self.back.extend(chosen.iter().map(|&i| {
            let (from, id) = (start.positions[i as usize], start.bodies[i as usize]);
            carry(from, id, &start.poses, poses)
        }));
        for h in 0..horizon {
            // As `Dataset::reaches` has checked, there is a frame for each step.
            let poses = &episode.samples[episode.after(t, h + 1).unwrap_or(t)].poses;
            let (targets, moving) = (&mut self.targets[h], &mut self.moving[h]);
            targets.clear();
            moving.clear();
            for (p, &i) in chosen.iter().enumerate() {
                let (from, id) = (start.positions[i as usize], start.bodies[i as usize]);
                let there = carry(from, id, &start.poses, poses);
                targets.push(there);
                let moved = distance(&there, &last[p]) > MOVING_M;
                moving.push(moved && self.kinds[p] == BodyKind::Object);
                last[p] = there;
            }
        }
    }
}

pub(super) fn distance(a: &Vec3, b: &Vec3) -> f32 {
    (0..3).map(|axis| (a[axis] - b[axis]).powi(2)).sum::<f32>().sqrt()
}
