//! Windows of recordings to train on: particles of two frames, the robot's plan, the true flow.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nalgebra::Isometry3;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::augment::{Augmentation, Noise, choose};
use crate::cloud::Cloud;
use crate::frames::{Frame, FramesConfig};
use crate::kinematics::Robot;
use crate::message::Stamp;
use crate::model::{ModelConfig, Scene};
use crate::motion::MotionEstimator;
use crate::particles::Particles;
use crate::plan::{self, Horizon};
use crate::recording::{BodyKind, Recording, carry};
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
    /// Standard deviation of the depth at distance 0, in metres; each window draws up to twice it.
    pub noise_base_m: f32,
    /// Growth of the standard deviation with the square of the distance, 1/m; likewise.
    pub noise_quadratic: f32,
    /// Largest rotation about the vertical, in radians; each window draws up to it, either way.
    pub rotation_rad: f32,
    /// Share of windows in which objects move.
    pub active_share: f64,
}

impl Default for DatasetConfig {
    fn default() -> Self {
        Self {
            max_horizon: 5,
            noise_base_m: 0.0005,
            noise_quadratic: 0.0005,
            rotation_rad: 0.6,
            active_share: 0.8,
        }
    }
}

/// One frame of a recording, reduced to what windows need.
pub(super) struct Sample {
    stamp: Stamp,
    pub(super) positions: Vec<Vec3>,
    pub(super) colors: Vec<[u8; 3]>,
    pub(super) cameras: Vec<u8>,
    bodies: Vec<u16>,
    pub(super) camera_centers: Vec<Vec3>,
    poses: Vec<Isometry3<f64>>,
    kinematic: Vec<Vec3>,
    kinematic_ahead: Vec<Vec<Vec3>>,
    joints: Vec<f64>,
    is_active: bool,
}

/// One recording in memory.
struct Episode {
    kinds: Vec<BodyKind>,
    samples: Vec<Sample>,
}

/// Recordings of one split in memory.
pub struct Dataset {
    config: DatasetConfig,
    model: ModelConfig,
    frames: FramesConfig,
    episodes: Vec<Arc<Episode>>,
    windows: Vec<(u32, u32)>,
    active: Vec<u32>,
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

/// Folders below `folder` that hold a recording, sorted; `folder` itself if it is one.
///
/// # Errors
/// [`Error::Io`] if the folder can't be read.
pub fn recordings_in(folder: &Path) -> Result<Vec<PathBuf>> {
    if folder.join("metadata.yaml").is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let io = |cause| Error::Io { path: folder.to_owned(), cause };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.join("metadata.yaml").is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

impl Dataset {
    /// An empty data set, for recordings that `frames` are made of.
    pub fn new(config: DatasetConfig, model: ModelConfig, frames: FramesConfig) -> Self {
        let (episodes, windows, active) = (Vec::new(), Vec::new(), Vec::new());
        Self { config, model, frames, episodes, windows, active }
    }

    /// Adds a recording if it has truth and its split is `split`; tells whether it was added.
    ///
    /// # Errors
    /// What makes the recording unusable.
    pub fn add(&mut self, path: &Path, split: &str) -> Result<bool> {
        let recording = Recording::open(path, self.frames.clone())?;
        if recording.truth().is_none_or(|truth| truth.split != split) {
            return Ok(false);
        }
        let episode = self.read(&recording)?;
        let index = self.episodes.len() as u32;
        for (t, pair) in episode.samples.windows(2).enumerate() {
            let step = pair[1].stamp.secs_since(pair[0].stamp);
            let in_time = (step - self.model.step_secs).abs() < 0.25 * self.model.step_secs;
            if in_time && t + 2 < episode.samples.len() {
                if pair[1].is_active {
                    self.active.push(self.windows.len() as u32);
                }
                self.windows.push((index, t as u32 + 1));
            }
        }
        self.episodes.push(Arc::new(episode));
        Ok(true)
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

    fn read(&self, recording: &Recording) -> Result<Episode> {
        let wrong = |problem: &str| Error::Bag {
            path: recording.bag().path().to_owned(),
            problem: problem.to_owned(),
        };
        let urdf = recording.robot_description()?.ok_or(Error::NoRobot)?;
        let mut reader = Reader {
            config: self.config,
            model: self.model,
            robot: Robot::from_urdf(&urdf, self.model.n_kinematic, "world")?,
            cloud: Cloud::default(),
            particles: Particles::default(),
            samples: Vec::new(),
        };
        let truth = recording.truth().ok_or_else(|| wrong("no truth"))?;
        recording.play(|frame, ids| {
            let poses =
                truth.poses(frame.stamp).ok_or_else(|| wrong("frame without true poses"))?;
            let ids = ids.ok_or_else(|| wrong("frame without true body ids"))?;
            reader.add(&frame, poses.to_vec(), |source| ids.id(source))
        })?;
        let kinds: Vec<BodyKind> = truth.bodies.iter().map(|body| body.kind).collect();
        let mut samples = reader.samples;
        mark_active(&mut samples, &kinds);
        Ok(Episode { kinds, samples })
    }

    /// Whether the frames of a window of `horizon` steps are all there, none missing between.
    fn reaches(&self, index: u32, horizon: usize) -> bool {
        let (episode, t) = self.windows[index as usize];
        let samples = &self.episodes[episode as usize].samples;
        let (start, step) = (t as usize, self.model.step_secs);
        samples.get(start + horizon).is_some_and(|last| {
            let elapsed = last.stamp.secs_since(samples[start].stamp);
            (elapsed - horizon as f64 * step).abs() < 0.25 * step
        })
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
                self.fill(index as usize, horizon, rng, Some(augmentation), window);
                return true;
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
        self.fill(index, horizon, rng, None, window);
        true
    }

    fn fill(
        &self,
        index: usize,
        horizon: usize,
        rng: &mut ChaCha8Rng,
        augmentation: Option<Augmentation>,
        window: &mut Window,
    ) {
        let (episode, t) = self.windows[index];
        let episode = &self.episodes[episode as usize];
        let (samples, t) = (&episode.samples, t as usize);
        let noise = Noise::draw(rng, &self.config);
        let (mut cloud_before, mut cloud_now) = (Particles::default(), Particles::default());
        noise.cloud(rng, &samples[t - 1], &mut cloud_before);
        noise.cloud(rng, &samples[t], &mut cloud_now);
        let (mut chosen, n) = (Vec::new(), self.model.n_particles);
        let (mut history, mut now) = (Particles::default(), Particles::default());
        choose(rng, cloud_before.len(), n, &mut chosen);
        history.pick(&cloud_before, &chosen);
        choose(rng, cloud_now.len(), n, &mut chosen);
        now.pick(&cloud_now, &chosen);
        window.set_truth(episode, t, horizon, &chosen, &now);
        let rows = [&samples[t - 1].kinematic, &samples[t].kinematic];
        window.scene.kinematic.clear();
        window.scene.kinematic.extend(rows.into_iter().cloned());
        window.scene.kinematic.extend(samples[t].kinematic_ahead.iter().take(horizon).cloned());
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
    }
}

impl Window {
    /// True positions and motion of the particles `now`, which are the points `chosen` of frame
    /// `t`. Noise shifts a particle, and its target with it.
    fn set_truth(
        &mut self,
        episode: &Episode,
        t: usize,
        horizon: usize,
        chosen: &[u32],
        now: &Particles,
    ) {
        let start = &episode.samples[t];
        let kind = |id: u16| episode.kinds.get(usize::from(id)).copied();
        self.kinds.clear();
        let bodies = chosen.iter().map(|&i| start.bodies[i as usize]);
        self.kinds.extend(bodies.map(|id| kind(id).unwrap_or(BodyKind::Static)));
        self.targets.resize_with(horizon, Vec::new);
        self.moving.resize_with(horizon, Vec::new);
        let mut before: Vec<Vec3> = chosen.iter().map(|&i| start.positions[i as usize]).collect();
        self.back.clear();
        self.back.extend(chosen.iter().zip(&now.positions).map(|(&i, noisy)| {
            let (clean, id) = (start.positions[i as usize], start.bodies[i as usize]);
            let there = carry(clean, id, &start.poses, &episode.samples[t - 1].poses);
            std::array::from_fn(|a| noisy[a] + (there[a] - clean[a]))
        }));
        for h in 0..horizon {
            let poses = &episode.samples[t + h + 1].poses;
            let (targets, moving) = (&mut self.targets[h], &mut self.moving[h]);
            targets.clear();
            moving.clear();
            for (p, &i) in chosen.iter().enumerate() {
                let (clean, id) = (start.positions[i as usize], start.bodies[i as usize]);
                let there = carry(clean, id, &start.poses, poses);
                let noisy = now.positions[p];
                targets.push(std::array::from_fn(|a| noisy[a] + (there[a] - clean[a])));
                let moved = distance(&there, &before[p]) > MOVING_M;
                moving.push(moved && self.kinds[p] == BodyKind::Object);
                before[p] = there;
            }
        }
    }
}

/// Reads frames into samples.
struct Reader {
    config: DatasetConfig,
    model: ModelConfig,
    robot: Robot,
    cloud: Cloud,
    particles: Particles,
    samples: Vec<Sample>,
}

impl Reader {
    fn add(
        &mut self,
        frame: &Frame,
        poses: Vec<Isometry3<f64>>,
        body: impl Fn(u32) -> u16,
    ) -> Result<()> {
        let workspace = self.model.workspace;
        self.cloud.from_cameras(&frame.cameras, &workspace, None)?;
        let n = self.model.n_motion.max(self.model.n_particles);
        self.particles.sample(&self.cloud, n, 0, frame.stamp.nanos(), &workspace);
        let mut joints = Vec::new();
        let order = self.robot.order(&frame.joints.names)?;
        order.apply(&frame.joints.positions, &mut joints)?;
        let mut kinematic = Vec::new();
        self.robot.place(&joints, &mut kinematic)?;
        let kinematic_ahead = self.ahead(frame, &joints)?;
        let particles = &self.particles;
        // By the camera's number, as the sources of the points have it.
        let mut camera_centers = Vec::new();
        for view in &frame.cameras {
            camera_centers.resize(view.camera + 1, [0.0; 3]);
            let center = view.world_from_camera.translation.vector.cast::<f32>();
            camera_centers[view.camera] = center.into();
        }
        self.samples.push(Sample {
            stamp: frame.stamp,
            positions: particles.positions.clone(),
            colors: particles.colors.iter().map(|c| c.map(|c| (c * 255.0) as u8)).collect(),
            cameras: particles.sources.iter().map(|source| (source >> 24) as u8).collect(),
            bodies: particles.sources.iter().map(|&source| body(source)).collect(),
            camera_centers,
            poses,
            kinematic,
            kinematic_ahead,
            joints,
            is_active: false,
        });
        Ok(())
    }

    /// Kinematic particles at each step ahead, as the plan of this frame leads.
    fn ahead(&mut self, frame: &Frame, joints: &[f64]) -> Result<Vec<Vec<Vec3>>> {
        let mut velocities = Vec::new();
        if let Some(before) = self.samples.last() {
            let secs = frame.stamp.secs_since(before.stamp);
            plan::velocities(joints, &before.joints, secs, &mut velocities)?;
        } else {
            velocities.resize(joints.len(), 0.0);
        }
        let horizon = Horizon {
            step_secs: self.model.step_secs,
            n_steps: self.config.max_horizon,
            lag_secs: self.model.plan_lag_secs,
        };
        let (names, mut ahead) = (self.robot.joint_names().to_vec(), Vec::new());
        plan::forecast(
            joints,
            &names,
            Some(&velocities),
            &frame.plan,
            frame.stamp,
            &horizon,
            &mut ahead,
        )?;
        let place = |joints: &[f64]| {
            let mut row = Vec::new();
            self.robot.place(joints, &mut row).map(|()| row)
        };
        ahead.chunks_exact(joints.len().max(1)).map(place).collect()
    }
}

/// Marks the samples of which at least 2 % of the object points move in the next step.
fn mark_active(samples: &mut [Sample], kinds: &[BodyKind]) {
    for t in 1..samples.len() {
        let (before, after) = samples.split_at_mut(t);
        let (sample, next) = (&mut before[t - 1], &after[0]);
        let (mut n_object, mut n_moving) = (0, 0);
        for (position, &id) in sample.positions.iter().zip(&sample.bodies) {
            if kinds.get(usize::from(id)) == Some(&BodyKind::Object) {
                let there = carry(*position, id, &sample.poses, &next.poses);
                n_object += 1;
                n_moving += usize::from(distance(&there, position) > MOVING_M);
            }
        }
        sample.is_active = n_moving > 0 && 50 * n_moving >= n_object;
    }
}

pub(super) fn distance(a: &Vec3, b: &Vec3) -> f32 {
    (0..3).map(|axis| (a[axis] - b[axis]).powi(2)).sum::<f32>().sqrt()
}
