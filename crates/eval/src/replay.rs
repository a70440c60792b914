//! Recordings played to the predictor, in-process, each prediction held against the truth, or
//! against what was seen later where there is none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::hindsight::{Group, Hindsight};
use crate::method::Method;
use crate::observed::Eye;
use crate::part::{Part, Terms};
use crate::published::{self, Published, Setup};
use crate::report::Device;
use crate::rig_check::{check_first, moving_world};
use crate::survey::{Survey, Surveyor};
use crate::{TrueMotion, baselines};
use forecloud::base::keep_workers_hot::keep_workers_hot;
use forecloud::engine::model::Model;
use forecloud::message::Stamp;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::{Prediction, Predictor};
use forecloud::predict::rig::Item;
use forecloud::robot::kinematics::{MeshSearch, Mounting, RobotMode};
use forecloud::vision::cloud::{SensorNoise, Workspace};
use forecloud::vision::frames::{CameraFrame, Frame, FrameCounts, FramesConfig, Problem};
use forecloud::{Error, Result};
use forecloud_bag::recording::{BodyIds, Recording, Truth};

/// What the rig of a recording is checked by: its first so many seconds.
const CHECKED_SECS: f64 = 20.0;

/// What became of one recording.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct BagResult {
    /// The recording.
    pub path: PathBuf,
    /// Its task; none if it has no truth, or if that is ignored.
    pub task: Option<String>,
    /// Frames that were predicted.
    pub n_predicted: u64,
    /// Of those: frames that were held against the truth.
    pub n_evaluated: u64,
    /// Of the predicted ones: those in which all that is seen moves alike, as where the world frame moves.
    #[serde(default)]
    pub n_moving_world: u64,
    /// Of the predicted ones: frames held against what was seen later, for want of truth.
    pub n_in_hindsight: u64,
    /// Of the predicted ones: frames that the truth says nothing of, or not of one step before.
    pub n_without_truth: u64,
    /// Topics that its truth lacks ([`Recording::truth_lack`]).
    #[serde(default)]
    pub truth_lack: Vec<String>,
    /// Frames without a history frame one step back: the first one, and those behind a gap or where
    /// cameras fall out or come back.
    pub n_without_history: u64,
    /// Of those: frames that have one by other cameras.
    pub n_other_cameras: u64,
    /// Frames that have the robot.
    #[serde(default)]
    pub n_with_robot: u64,
    /// Frames that lack it, although the robot is described.
    #[serde(default)]
    pub n_without_robot: u64,
    /// What is suspicious of its rig, in its first seconds: [`crate::rig_check`].
    #[serde(default)]
    pub rig: Vec<Item>,
    /// What became of its messages.
    pub frames: FrameCounts,
    /// Why messages and frames were dropped: the first of each kind, causes before what follows from
    /// them.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// What its reader, the robot's description and the world frame give cause to warn of.
    pub warnings: Vec<String>,
    /// Where its points are, and how its frames follow each other.
    pub survey: Survey,
}

/// A recording that could not be played.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SkippedBag {
    /// The recording.
    pub path: PathBuf,
    /// Why, and the remedy.
    pub reason: String,
}

/// Frames that could not be predicted, or judged, for one cause.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Failure {
    /// Message of the first one.
    pub first: String,
    /// How many there were.
    pub count: u64,
    /// Its kind: the name of [`Error`]'s variant.
    pub cause: String,
}

impl Failure {
    /// Whether too few points were left in the workspace.
    pub(super) fn is_too_few_points(&self) -> bool {
        self.cause == cause(&Error::TooFewPoints { needed: 0, got: 0 })
    }
}

/// One frame as it was replayed.
#[derive(Debug)]
pub struct Replayed<'a> {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// What its cameras saw.
    pub cameras: &'a [CameraFrame],
    /// The recording's task.
    pub task: Option<&'a str>,
    /// What the model predicts; none without history or after a failure.
    pub prediction: Option<&'a Prediction>,
    /// What truly happens to the predicted particles; none if the recording does not tell.
    pub truth: Option<&'a TrueMotion>,
}

/// Plays recordings and keeps what comes of it.
pub struct Replay {
    model: Model,
    config: PredictorConfig,
    frames: FramesConfig,
    pub(super) published: Option<Published>,
    ignores_truth: bool,
    /// The workspace that was asked for; without one it follows the cameras of each recording.
    asked: Option<Workspace>,
    /// Whether the box of the recording at hand is what its cameras see, rather than the model's.
    follows_cameras: bool,
    device: String,
    noise: Option<SensorNoise>,
    meshes: MeshSearch,
    /// What was found in the recordings so far.
    pub(super) parts: Vec<Part>,
    /// What is being found in the recording at hand.
    part: Part,
    pub(super) skipped: Vec<SkippedBag>,
}

impl Replay {
    /// A replay of `model`; `published` are predictions to compare with, of one recording.
    pub fn new(
        model: Model,
        config: PredictorConfig,
        frames: FramesConfig,
        published: Option<Published>,
    ) -> Self {
        Self {
            model,
            config,
            frames,
            published,
            ignores_truth: false,
            asked: config.workspace,
            follows_cameras: false,
            device: String::new(),
            noise: None,
            meshes: MeshSearch::default(),
            parts: Vec::new(),
            part: Part::default(),
            skipped: Vec::new(),
        }
    }

    /// Takes recordings as if they had no truth.
    pub fn ignore_truth(mut self, ignore: bool) -> Self {
        self.ignores_truth = ignore;
        self
    }

    /// Adds `noise` to the depth images, drawn anew for each recording, before anything looks at
    /// them; the truth of a point is that of its pixel's body.
    pub fn with_noise(mut self, noise: Option<SensorNoise>) -> Self {
        self.noise = noise;
        self
    }

    /// Looks for the meshes of the robots in `meshes`.
    pub fn with_meshes(mut self, meshes: MeshSearch) -> Self {
        self.meshes = meshes;
        self
    }

    /// Notes a recording that can't be played, for the report.
    pub fn skip(&mut self, path: &Path, reason: String) {
        self.skipped.push(SkippedBag { path: path.to_owned(), reason });
    }

    /// Unless a workspace is set: takes the one that fits what the cameras of `recording` see first
    /// ([`Workspace::proposal`]), and returns it if it is not the model's.
    ///
    /// # Errors
    /// As [`Workspace::proposal`].
    pub fn follow_cameras(&mut self, recording: &Recording) -> Result<Option<Workspace>> {
        if self.asked.is_some() {
            return Ok(None);
        }
        let usual = self.model.config.workspace;
        let asked = PredictorConfig { workspace: None, origin: [0.0; 3], ..self.config };
        self.config = recording.place(&usual)?.map_or(asked, |place| asked.placed(place));
        let proposed = self.config.workspace.filter(|proposed| *proposed != usual);
        self.follows_cameras = proposed.is_some();
        Ok(proposed)
    }

    /// How recordings are played.
    pub fn config(&self) -> &PredictorConfig {
        &self.config
    }

    /// Plays one recording; `watch` sees each frame.
    ///
    /// Frames that can't be predicted or judged are counted and kept by cause.
    ///
    /// # Errors
    /// As [`Recording::open`], [`SensorNoise::validate`], [`Predictor::new`] and
    /// [`Predictor::set_robot`].
    pub fn add(&mut self, recording: &Recording, mut watch: impl FnMut(&Replayed)) -> Result<()> {
        // What a recording that failed has left is of no report.
        self.part = Part { follows_cameras: self.follows_cameras, ..Part::default() };
        let mut predictor = Predictor::new(self.model.clone(), self.config)?;
        let meshes = self.meshes.beside(recording.bag().path());
        predictor.set_meshes(meshes.clone());
        let mut warnings = recording.bag().warnings().to_vec();
        let takes_robot = self.model.config.n_kinematic > 0;
        let urdf = recording.robot_description()?.filter(|_| self.config.robot != RobotMode::None);
        if let Some(urdf) = &urdf {
            warnings.extend_from_slice(predictor.set_robot(urdf, self.frames.world_link())?);
        }
        if takes_robot && self.config.robot == RobotMode::Optional {
            warnings.extend(recording.robot_lack());
        }
        let mut in_use = urdf.as_deref().map(Arc::<str>::from);
        let mut surveyor = Surveyor::new(self.workspace(), recording.frames_config());
        let truth = recording.truth().filter(|_| !self.ignores_truth);
        self.part.coverage.next_recording();
        let task = truth.map(|truth| truth.task.as_str());
        let mut hindsight = truth.is_none().then(|| self.hindsight(urdf.as_deref(), &meshes));
        let mut bag = BagResult::new(recording.bag().path(), task);
        bag.truth_lack = truth.map_or(Vec::new(), |_| recording.truth_lack());
        // What can't be checked is told where it is predicted.
        let checked = check_first(recording, &self.meshes, CHECKED_SECS);
        bag.rig = checked.map_or(Vec::new(), |report| report.findings().cloned().collect());
        let noise = self.noise.map(|noise| noise.of_recording(recording.bag().path()));
        noise.map_or(Ok(()), |noise| noise.validate())?;
        let (frames, problems) = recording.play(|mut frame, ids| -> Result<()> {
            if let Some(Err(error)) = noise.map(|noise| noise.apply(&mut frame)) {
                self.fail(&error);
                return Ok(());
            }
            if let Some(newest) = frame.robot_description.as_ref().filter(|_| in_use.is_some())
                && in_use.as_ref() != Some(newest)
            {
                // The newest at a frame's time counts; one that can't be used changes nothing.
                match predictor.set_robot(newest, self.frames.world_link()) {
                    Ok(more) => {
                        warnings.extend_from_slice(more);
                        if let Some(hindsight) = &mut hindsight {
                            hindsight.set_robot(newest, self.frames.world_link(), &meshes);
                        }
                    }
                    Err(error) => warnings.push(format!("a later robot description: {error}")),
                }
                in_use = Some(newest.clone());
            }
            // What is wrong with the frame is told where it is predicted.
            let _ = surveyor.watch(&frame);
            let has_robot = predictor.sees_robot(&frame);
            bag.n_with_robot += u64::from(has_robot);
            bag.n_without_robot += u64::from(takes_robot && urdf.is_some() && !has_robot);
            if let Some(hindsight) = &mut hindsight {
                hindsight.observe(&frame).unwrap_or_else(|error| self.fail(&error));
            }
            let prediction = self.predict(&mut predictor, &frame, &mut bag);
            if let Some((hindsight, prediction)) = hindsight.as_mut().zip(prediction) {
                match self.groups(prediction) {
                    Ok(groups) => hindsight.expect(frame.stamp, groups),
                    Err(error) => self.fail(&error),
                }
            }
            let known = truth.zip(ids.as_ref());
            let motion = match (prediction, known) {
                (Some(prediction), Some(known)) => self.judge(prediction, known),
                (Some(prediction), None) => self.compare(prediction, None).map(|()| None),
                (None, _) => Ok(None),
            };
            let motion = motion.unwrap_or_else(|error| {
                self.fail(&error);
                None
            });
            bag.n_evaluated += u64::from(motion.is_some());
            let is_unknown = truth.is_some() && prediction.is_some() && motion.is_none();
            bag.n_without_truth += u64::from(is_unknown);
            let (stamp, cameras) = (frame.stamp, &frame.cameras[..]);
            watch(&Replayed { stamp, cameras, task, prediction, truth: motion.as_ref() });
            Ok(())
        })?;
        if let Some(findings) = hindsight.map(Hindsight::finish).transpose()? {
            bag.n_in_hindsight = findings.n_predictions;
            self.part.findings.get_or_insert_default().merge(findings);
        }
        let backend = predictor.backend();
        self.device = match backend.missed() {
            Some(_) => backend.describe(),
            None => backend.name().to_owned(),
        };
        let (survey, more) = surveyor.finish();
        warnings.extend(more);
        warnings.extend(recording.leveled().map(str::to_owned));
        warnings.extend_from_slice(recording.told());
        warnings.extend(moving_world(recording).map(|item| item.line()));
        if bag.n_moving_world > 0 {
            warnings.push(format!(
                "in {} of {} predicted frames all that is seen moves alike: does the frame '{}' move with a \
                 base? Nothing is held at rest there. Name one that is fixed to the ground with -p \
                 world_frame:=NAME, such as odom or map",
                bag.n_moving_world, bag.n_predicted, self.frames.world_frame
            ));
        }
        if let Some(urdf) = in_use.filter(|_| frames.frames_without_robot > 0) {
            let mut mounting = Mounting::of(&urdf, self.frames.world_link())?;
            mounting.add_prefix(&self.frames.frame_prefix);
            warnings.extend(mounting.warning(&self.frames.world_frame));
        }
        self.part.bag = BagResult { frames, problems, warnings, survey, ..bag };
        self.part.device = Device::this();
        self.parts.push(std::mem::take(&mut self.part));
        Ok(())
    }

    /// What was found in the recordings so far.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Takes out what was found so far: reports are of what follows.
    pub fn take_parts(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.parts)
    }

    /// What the replay is of, beside its recordings.
    pub fn terms(&self) -> Terms {
        let model = &self.model.config;
        Terms {
            version: env!("CARGO_PKG_VERSION").into(),
            model_hash: self.model.hash.clone(),
            step_secs: model.step_secs,
            n_history: model.n_history,
            n_kinematic: model.n_kinematic,
            trained_workspace: model.workspace,
            config: PredictorConfig { workspace: self.asked, origin: [0.0; 3], ..self.config },
            frames: self.frames.clone(),
            noise: self.noise,
            ignores_truth: self.ignores_truth,
        }
    }

    /// Box of the particles (world frame, m).
    fn workspace(&self) -> Workspace {
        self.config.workspace_of(&self.model.config)
    }

    fn hindsight(&self, urdf: Option<&str>, meshes: &MeshSearch) -> Hindsight {
        let (model, config) = (&self.model.config, &self.config);
        let n_particles = config.n_particles_of(model);
        let eye = Eye::new(self.workspace(), n_particles, config.seed);
        let mut eye = eye.thinned(model.support_stride);
        if let Some(urdf) = urdf {
            eye.set_robot(urdf, self.frames.world_link(), meshes);
        }
        Hindsight::new(eye, model.step_secs, config.horizon, config.history_tolerance_secs)
    }

    /// What is predicted from one frame: by the model and the baselines, and by the node.
    fn groups(&self, prediction: &Prediction) -> Result<Vec<Group>> {
        let (start, horizon) = (&prediction.particles.positions, self.config.horizon);
        let (still, estimated) =
            (baselines::nothing_moves(start.len(), horizon), self.estimated(prediction)?);
        let own = [
            (Method::Model, prediction.displacements.as_slice()),
            (Method::NothingMoves, &still),
            (Method::VelocityEstimated, &estimated),
        ];
        let mut groups = vec![Group::new(start, own)];
        if let Some(node) = self.published.as_ref().and_then(|node| node.at(prediction.stamp)) {
            let displacements = published::displacements(node);
            let published = [(Method::Node, displacements.as_slice())];
            groups.push(Group::new(&published::positions(node), published));
        }
        Ok(groups)
    }

    fn estimated(&self, prediction: &Prediction) -> Result<Vec<Vec<[f32; 3]>>> {
        baselines::of_prediction(prediction, self.model.config.step_secs, self.config.horizon)
    }

    /// What the last recording was predicted on, for people; why it is the CPU where there is a GPU.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The configuration of the frames.
    pub fn frames_config(&self) -> &FramesConfig {
        &self.frames
    }

    fn predict<'p>(
        &mut self,
        predictor: &'p mut Predictor,
        frame: &Frame,
        bag: &mut BagResult,
    ) -> Option<&'p Prediction> {
        let follows = predictor.has_frame_before(frame);
        // Predictions hang on those before: what the node left out is left out here, too.
        if let Some(node) = self.published.as_mut().filter(|node| node.at(frame.stamp).is_none()) {
            if predictor.has_history(frame) {
                node.lack();
            } else {
                bag.n_without_history += 1;
                bag.n_other_cameras += u64::from(follows);
            }
            predictor.keep(frame.clone());
            return None;
        }
        match keep_workers_hot(|| predictor.step(frame)) {
            Ok(Some(prediction)) => {
                bag.n_predicted += 1;
                bag.n_moving_world += u64::from(prediction.world_motion_m.is_some());
                self.part.timings.push(prediction.timings);
                let n = prediction.particles.len();
                let [least, most] = self.part.n_particles.unwrap_or([n, n]);
                self.part.n_particles = Some([least.min(n), most.max(n)]);
                Some(prediction)
            }
            Ok(None) => {
                bag.n_without_history += 1;
                bag.n_other_cameras += u64::from(follows);
                None
            }
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    fn fail(&mut self, error: &Error) {
        let (cause, failures) = (cause(error), &mut self.part.failures);
        match failures.iter_mut().find(|failure| failure.cause == cause) {
            Some(failure) => failure.count += 1,
            None => failures.push(Failure { first: error.to_string(), count: 1, cause }),
        }
    }

    /// Errors of the model and of the baselines; none if the truth does not reach this frame.
    fn judge(
        &mut self,
        prediction: &Prediction,
        (truth, ids): (&Truth, &BodyIds),
    ) -> Result<Option<TrueMotion>> {
        self.compare(prediction, Some((truth, ids)))?;
        let (step_secs, horizon) = (self.model.config.step_secs, self.config.horizon);
        let particles = &prediction.particles;
        let points = (particles.positions.as_slice(), particles.sources.as_slice());
        let motion = TrueMotion::follow(truth, ids, points, prediction.stamp, step_secs, horizon);
        let Some(motion) = motion else { return Ok(None) };
        let now = &particles.positions;
        let estimated = self.estimated(prediction)?;
        let still = baselines::nothing_moves(now.len(), horizon);
        let privileged = baselines::constant_velocity(&motion.back, now, horizon);
        for (method, displacements) in [
            (Method::Model, &prediction.displacements),
            (Method::NothingMoves, &still),
            (Method::VelocityEstimated, &estimated),
            (Method::VelocityTrue, &privileged),
        ] {
            self.part.scores[method as usize].add(&truth.task, displacements, &motion)?;
        }
        self.part.coverage.add(prediction, &motion);
        Ok(Some(motion))
    }

    /// Holds what the node published against `prediction`, and against the truth.
    fn compare(
        &mut self,
        prediction: &Prediction,
        known: Option<(&Truth, &BodyIds)>,
    ) -> Result<()> {
        let setup = Setup {
            model_hash: &self.model.hash,
            world_frame: &self.frames.world_frame,
            step_secs: self.model.config.step_secs,
        };
        let node = self.published.as_mut().and_then(|node| node.compare(prediction, &setup));
        let (Some(node), Some((truth, ids))) = (node, known) else { return Ok(()) };
        let (positions, stamp) = (published::positions(node), prediction.stamp);
        let points = (positions.as_slice(), node.sources.as_slice());
        let (step_secs, n_steps) = (f64::from(node.step_secs), node.n_steps as usize);
        let motion = TrueMotion::follow(truth, ids, points, stamp, step_secs, n_steps);
        if let Some(motion) = motion {
            let displacements = published::displacements(node);
            self.part.scores[Method::Node as usize].add(&truth.task, &displacements, &motion)?;
        }
        Ok(())
    }
}

/// The name of its variant.
fn cause(error: &Error) -> String {
    let text = format!("{error:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

impl BagResult {
    fn new(path: &Path, task: Option<&str>) -> Self {
        Self { path: path.to_owned(), task: task.map(str::to_owned), ..Self::default() }
    }
}
