//! Windows of recordings to train on: particles of two frames, the robot's plan, the true flow.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::augment::{Augmentation, choose};
use super::config::{DatasetConfig, MOVING_M, Teacher};
use super::episode::{Aids, Episode};
use super::moving_camera::make_comparable;
use super::pixels::Pixels;
use super::rig::Rig;
use super::skipped::Skipped;
use crate::flow_labels::LabelCache;
use forecloud::base::geometry::{Vec3, distance, minus};
use forecloud::engine::model::ModelConfig;
use forecloud::engine::rollout_input::{RolloutInput, move_all};
use forecloud::predict::moving_camera::rest_unseen;
use forecloud::predict::robot_forecast::link;
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::frames::FramesConfig;
use forecloud::vision::motion::MotionEstimator;
use forecloud::vision::particles::Particles;
use forecloud::{Error, Result};
use forecloud_bag::recording::{BodyKind, Recording, carry};
use forecloud_video::Kept;

/// Recordings of one split in memory.
pub struct Dataset {
    config: DatasetConfig,
    model: ModelConfig,
    frames: FramesConfig,
    meshes: MeshSearch,
    episodes: Vec<Arc<Episode>>,
    windows: Vec<(u32, u32)>,
    active: Vec<u32>,
    skipped: Skipped,
    known: Option<Arc<Dataset>>,
    labels: Option<LabelCache>,
    pixels: Option<Pixels>,
    on_frame: Option<OnFrame>,
}

/// What is called for each frame that is read, and once more when hindsight has told of it.
pub type OnFrame = Arc<dyn Fn() + Send + Sync>;

/// Share of the windows that are drawn from what is to be remembered, where there is such.
const KNOWN_SHARE: f64 = 0.5;

/// A window: the start of a roll-out and where every particle truly goes.
#[derive(Debug, Default, Clone)]
pub struct Window {
    /// Start of the roll-out, and the robot's motion.
    pub scene: RolloutInput,
    /// True positions after each step, `[horizon][n]`, or what hindsight takes them to be.
    pub targets: Vec<Vec<Vec3>>,
    /// How sure these are, 0 to 1, `[horizon][n]`: 1 with truth.
    pub weights: Vec<Vec<f32>>,
    /// Whether each particle is one of an object that moves in each step, `[horizon][n]`.
    pub moving: Vec<Vec<bool>>,
    /// What each particle belongs to.
    pub kinds: Vec<BodyKind>,
    /// True positions one step back, `[n]`; as estimated, where hindsight teaches.
    pub back: Vec<Vec3>,
    /// Whether targets teach: not where pixels alone do.
    pub is_labelled: bool,
    /// What the cameras saw at its start and after each step, `[horizon + 1]`, where that is kept.
    pub(super) shots: Vec<Option<Arc<Kept>>>,
    /// Time of its start.
    pub(super) stamp_ns: i64,
    /// From the world to where the model has it.
    origin: Vec3,
    augmentation: Option<Augmentation>,
    motion: MotionEstimator,
    /// Which points of the frame its particles are.
    chosen: Vec<u32>,
}

impl Dataset {
    /// An empty data set, for recordings that `frames` are made of.
    pub fn new(config: DatasetConfig, model: ModelConfig, frames: FramesConfig) -> Self {
        let (episodes, windows, active) = (Vec::new(), Vec::new(), Vec::new());
        let (meshes, skipped) = (MeshSearch::default(), Skipped::default());
        Self {
            config,
            model,
            frames,
            meshes,
            episodes,
            windows,
            active,
            skipped,
            known: None,
            labels: None,
            pixels: None,
            on_frame: None,
        }
    }

    /// Every other window that is drawn, on average, is one of `known`: recordings of what a model that is
    /// trained on shall not forget ("experience replay"). They count nowhere else.
    pub fn remember(self, known: Dataset) -> Self {
        Self { known: Some(Arc::new(known)), ..self }
    }

    /// Looks for the meshes of the robots in `meshes`.
    pub fn with_meshes(self, meshes: MeshSearch) -> Self {
        Self { meshes, ..self }
    }

    /// Calls `on_frame` while recordings are read.
    pub fn with_progress(self, on_frame: OnFrame) -> Self {
        Self { on_frame: Some(on_frame), ..self }
    }

    /// Keeps what hindsight tells of its recordings there, and looks there first.
    pub fn with_labels(self, labels: LabelCache) -> Self {
        Self { labels: Some(labels), ..self }
    }

    /// Keeps pictures of what its cameras saw, for `pixels` to teach by.
    pub fn with_pixels(self, pixels: Pixels) -> Self {
        Self { pixels: Some(pixels), ..self }
    }

    /// Adds a recording if its split is `split`, or it tells of none and the teacher needs no truth; tells
    /// whether it was added.
    ///
    /// # Errors
    /// What makes the recording unusable; as [`DatasetConfig::validate`].
    pub fn add(&mut self, path: &Path, split: &str) -> Result<bool> {
        let glimpse = Recording::glimpse(path)?;
        let is_usable = match glimpse.truth() {
            Some(truth) => truth.split == split,
            None => self.config.teacher != Teacher::Truth,
        };
        if !is_usable {
            return Ok(false);
        }
        let episode = self.read(&glimpse.open(self.frames.clone())?)?;
        self.push(episode);
        Ok(true)
    }

    /// Adds a recording, whatever its split.
    ///
    /// # Errors
    /// What makes the recording unusable; as [`DatasetConfig::validate`].
    pub fn add_recording(&mut self, recording: &Recording) -> Result<()> {
        let episode = self.read(recording)?;
        self.push(episode);
        Ok(())
    }

    /// # Errors
    /// What makes the recording unusable; as [`DatasetConfig::validate`].
    pub(super) fn read(&self, recording: &Recording) -> Result<Episode> {
        self.config.validate()?;
        let meshes = self.meshes.beside(recording.bag().path());
        let aids = Aids {
            meshes: &meshes,
            labels: self.labels.as_ref(),
            pixels: self.pixels.as_ref(),
            on_frame: &|| self.on_frame.iter().for_each(|tell| tell()),
        };
        Episode::read(recording, self.config, self.model, &aids)
    }

    /// Adds a recording that was read, with all of its windows: they start at frames that have
    /// others one step before, of the same cameras (as [`forecloud::predict::history::History::one_step_back`]
    /// tells why), and one step after, where the cameras don't matter, as bodies carry the truth.
    pub(super) fn push(&mut self, episode: Episode) {
        self.insert(Arc::new(episode));
    }

    fn insert(&mut self, episode: Arc<Episode>) {
        let index = self.episodes.len() as u32;
        let mut skipped = episode.skipped.clone();
        let starts = episode.samples.iter().enumerate().filter(|(_, sample)| sample.has_points());
        for (t, sample) in starts {
            let after =
                episode.after(t, 1).filter(|_| !episode.in_hindsight || sample.flow.is_some());
            match (episode.before(t), after) {
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
        self.episodes.push(episode);
    }

    /// Cuts its recordings into stretches of this length (s), which count as recordings from then on.
    pub(super) fn cut(&mut self, stretch_secs: f64) {
        let episodes = self.clear();
        for episode in episodes {
            // Nobody shares them yet.
            match Arc::try_unwrap(episode) {
                Ok(episode) => {
                    episode.cut(stretch_secs).into_iter().for_each(|stretch| self.push(stretch))
                }
                Err(shared) => self.insert(shared),
            }
        }
    }

    /// Takes all its recordings out.
    fn clear(&mut self) -> Vec<Arc<Episode>> {
        self.windows.clear();
        self.active.clear();
        self.skipped = Skipped::default();
        std::mem::take(&mut self.episodes)
    }

    /// Which stretches its recordings are, from 1, in order; 0 for whole ones.
    pub(super) fn stretches(&self) -> impl Iterator<Item = u32> {
        self.episodes.iter().map(|episode| episode.stretch)
    }

    /// Places of its recordings, in order.
    pub fn recordings(&self) -> impl Iterator<Item = &Path> {
        self.episodes.iter().map(|episode| episode.path.as_path())
    }

    /// Names of its recordings, in order; of stretches, with their number.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.episodes.iter().map(|episode| episode.name())
    }

    /// Recordings of what is to be remembered ([`Dataset::remember`]).
    pub fn remembered(&self) -> Option<&Dataset> {
        self.known.as_deref()
    }

    /// Takes out the recordings at these places of [`Dataset::recordings`]; returns them, without what
    /// they hold: paths and stretches.
    pub(super) fn take_out(&mut self, places: &BTreeSet<usize>) -> Vec<(PathBuf, u32)> {
        let mut taken = Vec::new();
        for (place, episode) in self.clear().into_iter().enumerate() {
            match places.contains(&place) {
                true => taken.push((episode.path.clone(), episode.stretch)),
                false => self.insert(episode),
            }
        }
        taken
    }

    pub(super) fn episodes(&self) -> impl Iterator<Item = &Arc<Episode>> {
        self.episodes.iter()
    }

    /// Names of the files that labels of its recordings are kept in ([`Dataset::with_labels`]).
    pub fn label_files(&self) -> impl Iterator<Item = &str> {
        self.episodes.iter().filter_map(|episode| episode.label_file.as_deref())
    }

    /// How the frames of its recordings are made.
    pub fn frames(&self) -> &FramesConfig {
        &self.frames
    }

    /// The same recordings for a model of other layers, masks, or fewer particles; they are shared,
    /// not copied.
    ///
    /// # Errors
    /// [`Error::Config`] names what was fixed when the recordings were read.
    pub fn for_model(&self, model: ModelConfig) -> Result<Self> {
        let n_kept = self.model.n_motion.max(self.model.n_particles);
        let reach = |model: &ModelConfig| model.reach(self.config.max_horizon);
        let differs = [
            ("n_particles", model.n_particles > n_kept),
            ("n_motion", model.n_motion.max(model.n_particles) > n_kept),
            ("n_kinematic", model.n_kinematic != self.model.n_kinematic),
            ("kinematic_detail", model.kinematic_detail != self.model.kinematic_detail),
            ("support_stride", model.support_stride != self.model.support_stride),
            ("step_secs", model.step_secs != self.model.step_secs),
            ("plan_lag_secs", model.plan_lag_secs != self.model.plan_lag_secs),
            ("workspace", model.workspace != self.model.workspace),
            ("chunk", reach(&model) > reach(&self.model)),
        ];
        if let Some((key, _)) = differs.iter().find(|(_, differs)| *differs) {
            let problem =
                "differs from the one that the recordings were read for: read them again".into();
            return Err(Error::Config { key: format!("model.{key}"), problem });
        }
        let known = self.known.as_ref().map(|known| known.for_model(model).map(Arc::new));
        Ok(Self {
            known: known.transpose()?,
            config: self.config,
            model,
            frames: self.frames.clone(),
            meshes: self.meshes.clone(),
            labels: self.labels.clone(),
            pixels: self.pixels.clone(),
            on_frame: self.on_frame.clone(),
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

    /// Place in [`Dataset::recordings`] of that of window `index`.
    ///
    /// # Panics
    /// If there is no such window.
    pub(super) fn recording_of(&self, index: usize) -> usize {
        self.windows[index].0 as usize
    }

    /// What was found of cameras and clocks, of each recording that hindsight teaches or that has something to tell.
    pub fn rigs(&self) -> impl Iterator<Item = &Rig> {
        self.episodes.iter().filter_map(|episode| episode.rig())
    }

    /// Number of recordings that hindsight teaches.
    pub fn n_in_hindsight(&self) -> usize {
        self.episodes.iter().filter(|episode| episode.in_hindsight).count()
    }

    /// Time from the start of a window to that of the next (s).
    pub fn step_secs(&self) -> f64 {
        self.model.step_secs
    }

    /// Frames whose pictures are kept ([`Dataset::with_pixels`]).
    pub fn n_pictured(&self) -> usize {
        let samples = self.episodes.iter().flat_map(|episode| &episode.samples);
        samples.filter(|sample| sample.shot.is_some()).count()
    }

    /// What tells where points go.
    pub fn teacher(&self) -> Teacher {
        self.config.teacher
    }

    /// Frames that are in no window, or that no window starts at.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Steps that its windows reach, at most `most`.
    pub fn longest(&self, most: usize) -> usize {
        let windows = 0..self.windows.len() as u32;
        let reached = |steps: &usize| windows.clone().any(|index| self.reaches(index, *steps));
        (1..=most).rev().find(reached).unwrap_or(0)
    }

    /// Whether there is a frame in time for each of `horizon` steps of a window.
    fn reaches(&self, index: u32, horizon: usize) -> bool {
        let (episode, t) = self.windows[index as usize];
        let episode = &self.episodes[episode as usize];
        match episode.in_hindsight {
            true => episode.is_followed(t as usize, horizon),
            false => (1..=horizon).all(|steps| episode.after(t as usize, steps).is_some()),
        }
    }

    /// Draws a window of `horizon` steps, with noise and augmentation, active ones preferred;
    /// false if there is none so long.
    pub fn draw(&self, rng: &mut ChaCha8Rng, horizon: usize, window: &mut Window) -> bool {
        if self.windows.is_empty() {
            return false;
        }
        if let Some(known) = self.known.as_ref().filter(|_| rng.random_bool(KNOWN_SHARE)) {
            return known.draw(rng, horizon, window);
        }
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

    /// The window that [`Dataset::get`] gives with the same `rng`, with the truth's targets though
    /// hindsight teaches: to measure the one by the other. False where there is no truth.
    pub fn get_true(
        &self,
        index: usize,
        rng: &mut ChaCha8Rng,
        horizon: usize,
        window: &mut Window,
    ) -> bool {
        if !self.get(index, rng, horizon, window) {
            return false;
        }
        let (episode, t) = self.windows[index];
        let (episode, t) = (&self.episodes[episode as usize], t as usize);
        let Ok(before) = episode.before(t) else { return false };
        let chosen = std::mem::take(&mut window.chosen);
        let has_truth = episode.knows_truth([before, t], horizon);
        if has_truth {
            window.set_truth(episode, [before, t], horizon, &chosen);
            let origin = &episode.samples[t].place.origin;
            window.targets.iter_mut().for_each(|positions| move_all(positions, origin));
            move_all(&mut window.back, origin);
        }
        window.chosen = chosen;
        has_truth
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
        let (mut chosen, n) = (std::mem::take(&mut window.chosen), self.model.n_particles);
        choose(rng, cloud_before.len(), n, &mut chosen);
        let mut history = pick(&cloud_before, &chosen);
        choose(rng, cloud_now.len(), n, &mut chosen);
        let mut now = pick(&cloud_now, &chosen);
        match episode.in_hindsight {
            true if window.set_labels(episode, t, horizon, &chosen).is_err() => return false,
            true => {}
            false => window.set_truth(episode, [before, t], horizon, &chosen),
        }
        let clouds = [&mut cloud_before, &mut cloud_now];
        let frames = [&samples[before], &samples[t]];
        let camera_moved = samples[before].looked != samples[t].looked;
        let unseen = make_comparable(frames, clouds, [&mut history, &mut now], &window.kinds);
        window.is_labelled = self.config.teacher != Teacher::Video;
        window.stamp_ns = samples[t].stamp.nanos();
        (window.origin, window.augmentation) = (samples[t].place.origin, augmentation);
        window.shots.clear();
        if self.pixels.is_some() {
            window.shots.push(samples[t].shot.clone());
            window.shots.extend((1..=horizon).map(|steps| episode.shot_after(t, steps)));
        }
        let n_rows = self.model.reach(horizon);
        if episode.place_robot([before, t], n_rows, &mut window.scene.kinematic).is_err() {
            return false;
        }
        window.scene.start.kinematic_links.clear();
        if let Some(robot) = &episode.robot {
            link(&mut window.scene, robot, &samples[t].place.workspace);
        }
        window.scene.start.kinematic_stride = self.model.kinematic_detail;
        let origin = &samples[t].place.origin;
        for cloud in [&mut now, &mut history, &mut cloud_now, &mut cloud_before] {
            move_all(&mut cloud.positions, origin);
            move_all(&mut cloud.eyes, origin);
            cloud.support_m = cloud.support_m.map(|z| z - origin[2]);
        }
        window.targets.iter_mut().for_each(|positions| move_all(positions, origin));
        move_all(&mut window.back, origin);
        window.scene.set_robot_origin(origin);
        if let Some(augmentation) = augmentation {
            for cloud in [&mut now, &mut history, &mut cloud_now, &mut cloud_before] {
                augmentation.apply(&mut cloud.positions);
                augmentation.apply(&mut cloud.eyes);
            }
            window.targets.iter_mut().for_each(|positions| augmentation.apply(positions));
            augmentation.apply(&mut window.back);
            window.scene.kinematic.iter_mut().for_each(|positions| augmentation.apply(positions));
        }
        now.support_m = cloud_now.support_m;
        window.scene.set_particles(&now, &history, self.model.n_history);
        now.sources.clear();
        if self.model.mask.walks.is_some() {
            window.scene.walk_seed.seed = rng.random();
        }
        if self.model.n_motion > 0 {
            let clouds = [&cloud_before, &cloud_now];
            window.scene.set_motion(&mut window.motion, &now, (clouds, camera_moved), None);
            let start = &mut window.scene.start;
            rest_unseen(&unseen, &start.velocities, &mut start.velocity_known);
        }
        if episode.in_hindsight {
            let start = &window.scene.start;
            let back = start.positions.iter().zip(&start.velocities).map(|(p, v)| minus(p, v));
            window.back.clear();
            window.back.extend(back);
        }
        window.chosen = chosen;
        true
    }
}

impl Window {
    /// Moves points from the world frame to where the model has them.
    pub(super) fn place(&self, positions: &mut [Vec3]) {
        move_all(positions, &self.origin);
        self.augmentation.iter().for_each(|augmentation| augmentation.apply(positions));
    }

    /// Forgets that it was turned.
    #[cfg(test)]
    pub(super) fn unturn(&mut self) {
        self.augmentation = None;
    }

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
        self.weights.resize_with(horizon, Vec::new);
        for weights in &mut self.weights {
            weights.clear();
            weights.resize(chosen.len(), 1.0);
        }
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

/// The particles of `from` at the places `chosen`.
fn pick(from: &Particles, chosen: &[u32]) -> Particles {
    let mut picked = Particles::default();
    picked.positions.extend(chosen.iter().map(|&i| from.positions[i as usize]));
    picked.colors.extend(chosen.iter().map(|&i| from.colors[i as usize]));
    picked.sources.extend(chosen.iter().map(|&i| from.sources[i as usize]));
    picked
}
