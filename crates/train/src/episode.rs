//! One recording in memory, reduced to what windows need.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nalgebra::Isometry3;

use super::config::{DatasetConfig, MOVING_M, Teacher};
use super::pixels::Pixels;
use super::rig::Rig;
use super::skipped::Skipped;
use crate::flow_labels::{Flow, LabelCache};
use forecloud::base::geometry::{Rigid, Vec3, distance};
use forecloud::engine::model::ModelConfig;
use forecloud::message::Stamp;
use forecloud::predict::moving_camera::{Looked, PoseError};
use forecloud::robot::kinematics::{MeshSearch, Mount, Robot, RobotMode, RobotOptions, Spread};
use forecloud::robot::plan::{self, JointsNow};
use forecloud::vision::cloud::{Cloud, Place, SensorNoise};
use forecloud::vision::frames::{Frame, RobotState};
use forecloud::vision::particles::{Particles, Sampling};
use forecloud::{Error, Result};
use forecloud_bag::recording::{BodyIds, BodyKind, Recording, carry};
use forecloud_eval::rig_check::moving_world;
use forecloud_video::Kept;

/// Share of a step by which a frame may lie beside the time that it stands for.
const TOLERANCE: f64 = 0.25;

/// Share of a step from one frame whose points are kept to the next: frames between them look alike,
/// and cost as much time and memory.
const APART: f64 = 1.0 - TOLERANCE;

/// One frame of a recording, reduced to what windows need: about 20 bytes a point, and as many
/// more where hindsight teaches. Frames that are too near to the one before have no points: they only
/// tell where bodies went.
#[derive(Default)]
pub(super) struct Sample {
    pub(super) stamp: Stamp,
    /// Numbers of the cameras that saw it, ascending.
    cameras: Vec<usize>,
    /// Points as the camera measured them, noise and all.
    pub(super) positions: Vec<Vec3>,
    pub(super) colors: Vec<[u8; 3]>,
    /// Numbers of their bodies; none of a recording without truth.
    pub(super) bodies: Vec<u16>,
    /// Number of the camera that saw each point.
    pub(super) seen_by: Vec<u8>,
    /// Where the cameras stand, as [`Cloud::eyes`].
    pub(super) eyes: Vec<Vec3>,
    /// Where they looked.
    pub(super) looked: Looked,
    /// What takes points of the next frame (m) to where the tf of this one would have them, as
    /// [`MovingCamera::corrections`], and how much that is.
    ///
    /// [`MovingCamera::corrections`]: forecloud::predict::moving_camera::MovingCamera::corrections
    pub(super) corrections: Vec<Option<Rigid>>,
    pub(super) pose_error: Option<PoseError>,
    pub(super) support_m: Option<f32>,
    /// Where the points go until the next frame, and the links that they lie on, of a recording that
    /// hindsight teaches.
    pub(super) flow: Option<Flow>,
    pub(super) on_links: Vec<u32>,
    pub(super) poses: Vec<Isometry3<f64>>,
    /// Measured joints, in the robot's order.
    pub(super) joints: Vec<f64>,
    /// The same at each step ahead, as the plan of this frame leads, one after the other.
    joints_ahead: Vec<f64>,
    /// What else tells where the robot is; none if it was not there.
    pub(super) mount: Option<Mount>,
    pub(super) is_active: bool,
    /// Box that its points were taken from, and what the model is to take for the world's origin, as
    /// where it is predicted from.
    pub(super) place: Place,
    /// What the cameras saw, where pixels teach.
    pub(super) shot: Option<Arc<Kept>>,
}

/// What a recording is read with.
pub(super) struct Aids<'a> {
    /// Where the robot's meshes lie.
    pub(super) meshes: &'a MeshSearch,
    /// Where what hindsight told of recordings is kept.
    pub(super) labels: Option<&'a LabelCache>,
    /// What keeps pictures.
    pub(super) pixels: Option<&'a Pixels>,
    /// Called for each frame, and once more when hindsight has told of it.
    pub(super) on_frame: &'a dyn Fn(),
}

/// One recording in memory.
pub(super) struct Episode {
    pub(super) path: PathBuf,
    /// Which stretch of the recording it is, from 1; 0 for the whole.
    pub(super) stretch: u32,
    pub(super) kinds: Vec<BodyKind>,
    /// In the order of the recording: ascending in time, unless time was set back.
    pub(super) samples: Vec<Sample>,
    /// Whether hindsight tells where points go, not truth.
    pub(super) in_hindsight: bool,
    /// None if the recording has none.
    pub(super) robot: Option<Robot>,
    /// Frames of the recording that are no samples.
    pub(super) skipped: Skipped,
    /// What hindsight found of the cameras and clocks, where it teaches.
    pub(super) rig: Rig,
    pub(super) step_secs: f64,
    /// Name of the file that its labels are kept in, if they are.
    pub(super) label_file: Option<String>,
}

impl Episode {
    /// The usable frames of `recording`, with the noise that `config` asks for; the others are counted.
    ///
    /// # Errors
    /// What makes the whole recording unusable.
    pub(super) fn read(
        recording: &Recording,
        config: DatasetConfig,
        model: ModelConfig,
        aids: &Aids,
    ) -> Result<Self> {
        let Aids { meshes, labels, pixels, on_frame } = *aids;
        let path = recording.bag().path();
        let wrong =
            |problem: &str| Error::Bag { path: path.to_owned(), problem: problem.to_owned() };
        let frames = recording.frames_config();
        let urdf = match frames.robot {
            RobotMode::None => None,
            RobotMode::Optional => recording.robot_description()?,
            RobotMode::Required => Some(recording.robot_description()?.ok_or(Error::NoRobot)?),
        };
        let n_points = model.n_robot();
        let world_frame = frames.world_link();
        let options = RobotOptions { n_points, spread: Spread::Tips, world_frame, meshes };
        let robot = urdf.map(|urdf| Robot::with_options(&urdf, &options));
        let usual = Place { workspace: model.workspace, origin: [0.0; 3] };
        let place = recording.place(&model.workspace)?.unwrap_or(usual);
        let truth = recording.truth();
        if truth.is_none() && config.teacher == Teacher::Truth {
            return Err(wrong("no truth"));
        }
        let in_hindsight = truth.is_none() || !config.teacher.takes_truth();
        // Real cameras bring their own noise.
        let strength = if truth.is_none() { 0.0 } else { config.noise.strength };
        let noise = SensorNoise { strength, ..config.noise };
        let config = DatasetConfig { noise, ..config };
        let mut reader = Reader {
            config,
            model,
            place,
            noise: noise_of(&config, path),
            robot: robot.transpose()?,
            pixels,
            cloud: Cloud::default(),
            particles: Particles::default(),
            samples: Vec::new(),
        };
        let bodies = truth.iter().flat_map(|truth| &truth.bodies);
        let kinds: Vec<BodyKind> = bodies.map(|body| body.kind).collect();
        let mut skipped = Skipped::default();
        let (messages, problems) = recording.play(|frame, ids| -> Result<()> {
            on_frame();
            let stamp = frame.stamp;
            let poses = truth.and_then(|truth| truth.poses(stamp));
            let taken = match in_hindsight {
                false => reader.take(frame, poses, ids, &mut skipped),
                true => reader.take_untold(frame, poses, ids, &mut skipped),
            };
            if let Some(problem) = taken {
                skipped.note(path, problem);
            }
            Ok(())
        })?;
        skipped.messages = messages;
        if let Some(problem) = problems.first().filter(|_| messages.n_dropped() > 0) {
            skipped.note(path, problem.text());
        }
        let Reader { samples, mut robot, .. } = reader;
        if let Some(robot) = robot.as_mut().filter(|_| messages.frames_without_robot > 0) {
            let mut mounting = robot.mounting();
            mounting.add_prefix(&frames.frame_prefix);
            robot.warnings.extend(mounting.warning(&frames.world_frame));
        }
        let step_secs = model.step_secs;
        let path = path.to_owned();
        let mut episode = Self {
            path,
            stretch: 0,
            kinds,
            samples,
            in_hindsight,
            robot,
            skipped,
            rig: Rig::default(),
            step_secs,
            label_file: None,
        };
        match in_hindsight {
            true => {
                episode.label(labels, on_frame)?;
                // Of labels that were kept the same as of new ones.
                episode.find_pose_errors();
                episode.must_rest(recording)?;
                episode.must_suit(config.teacher)?;
                episode.must_be_told()?;
                episode.rig = Rig::of(recording, meshes);
            }
            false => {
                episode.find_pose_errors();
                episode.mark_active();
                episode.rig.findings.extend(moving_world(recording));
            }
        }
        episode.rig.pose_errors = episode.pose_errors();
        Ok(episode)
    }

    /// The frame by the same cameras that lies nearest to one step before frame `t`.
    ///
    /// # Errors
    /// Whether there is one by other cameras.
    pub(super) fn before(&self, t: usize) -> std::result::Result<usize, bool> {
        let (earlier, now) = (&self.samples[..t], &self.samples[t]);
        let has_robot = now.mount.is_some();
        let same = Some((&now.cameras[..], has_robot));
        let alike = one_step_back(earlier, now.stamp, same, self.step_secs);
        let any = || one_step_back(earlier, now.stamp, None, self.step_secs).is_some();
        alike.ok_or_else(any)
    }

    /// The frame that lies nearest to `steps` after frame `t`, if it is in time.
    pub(super) fn after(&self, t: usize, steps: usize) -> Option<usize> {
        let now = self.samples[t].stamp;
        let later = self.samples.iter().enumerate().skip(t + 1);
        let secs = later.map(|(i, sample)| (i, sample.stamp.secs_since(now)));
        nearest(secs, steps as f64 * self.step_secs, self.step_secs, |_| true)
    }

    /// What the cameras saw nearest to `steps` after frame `t`, if that was kept and is in time.
    pub(super) fn shot_after(&self, t: usize, steps: usize) -> Option<Arc<Kept>> {
        let now = self.samples[t].stamp;
        let later = self.samples.iter().enumerate().skip(t + 1);
        let secs = later.map(|(i, sample)| (i, sample.stamp.secs_since(now)));
        let has_shot = |i: usize| self.samples[i].shot.is_some();
        let found = nearest(secs, steps as f64 * self.step_secs, self.step_secs, has_shot)?;
        self.samples[found].shot.clone()
    }

    /// Kinematic particles one step before frame `t`, then, and at each of `horizon` steps ahead
    /// that its plan reaches: placed anew, as they take twenty times the memory of their joints.
    ///
    /// # Errors
    /// As [`Robot::place`]; not for joints that have been placed on reading.
    pub(super) fn place_robot(
        &self,
        [before, t]: [usize; 2],
        horizon: usize,
        rows: &mut Vec<Vec<Vec3>>,
    ) -> Result<()> {
        let (before, now) = (&self.samples[before], &self.samples[t]);
        rows.resize_with(horizon + 2, Vec::new);
        let mounts = before.mount.as_ref().zip(now.mount.as_ref());
        let Some((robot, (mount_before, mount))) = self.robot.as_ref().zip(mounts) else {
            rows.iter_mut().for_each(Vec::clear);
            return Ok(());
        };
        let mut robot = robot.clone();
        robot.set_mount(mount_before)?;
        robot.place(&before.joints, &mut rows[0])?;
        robot.set_mount(mount)?;
        robot.place(&now.joints, &mut rows[1])?;
        let n_joints = now.joints.len();
        for (step, row) in rows[2..].iter_mut().enumerate() {
            robot.set_mount(&mount.extrapolated(mount_before, (step + 1) as f64))?;
            robot.place(&now.joints_ahead[step * n_joints..][..n_joints], row)?;
        }
        Ok(())
    }

    /// The robot's points (world frame, m) where it was at frame `t`, as measured, into `row`: none
    /// without it.
    ///
    /// # Errors
    /// As [`Robot::place`].
    pub(super) fn place_measured(
        &self,
        t: usize,
        robot: &mut Option<Robot>,
        row: &mut Vec<Vec3>,
    ) -> Result<()> {
        row.clear();
        let sample = &self.samples[t];
        let Some((robot, mount)) = robot.as_mut().zip(sample.mount.as_ref()) else {
            return Ok(());
        };
        robot.set_mount(mount)?;
        robot.place(&sample.joints, row)
    }

    /// Whether frames `a` and `b` were seen by the same cameras, and both with the robot or without.
    pub(super) fn are_alike(&self, a: usize, b: usize) -> bool {
        let [a, b] = [a, b].map(|t| &self.samples[t]);
        a.cameras == b.cameras && a.mount.is_some() == b.mount.is_some()
    }

    /// Marks the samples of which at least 2 % of the object points move in the next step.
    fn mark_active(&mut self) {
        for t in 0..self.samples.len() {
            let Some(next) = self.after(t, 1) else { continue };
            let (sample, next) = (&self.samples[t], &self.samples[next]);
            let (mut n_object, mut n_moving) = (0, 0);
            for (position, &id) in sample.positions.iter().zip(&sample.bodies) {
                if self.kinds.get(usize::from(id)) == Some(&BodyKind::Object) {
                    let there = carry(*position, id, &sample.poses, &next.poses);
                    n_object += 1;
                    n_moving += usize::from(distance(&there, position) > MOVING_M);
                }
            }
            self.samples[t].is_active = n_moving > 0 && 50 * n_moving >= n_object;
        }
    }
}

impl Sample {
    /// Whether its points were kept: a window can start here.
    pub(super) fn has_points(&self) -> bool {
        !self.positions.is_empty()
    }

    /// All its points; of their sources only the cameras.
    pub(super) fn cloud(&self) -> Particles {
        let mut cloud = Particles::default();
        cloud.sources.extend(self.seen_by.iter().map(|&camera| u32::from(camera) << 24));
        cloud.eyes.clone_from(&self.eyes);
        cloud.support_m = self.support_m;
        cloud.positions.clone_from(&self.positions);
        cloud.colors.extend(self.colors.iter().map(|color| color.map(|c| f32::from(c) / 255.0)));
        cloud
    }
}

impl Skipped {
    fn note(&mut self, path: &Path, problem: String) {
        self.first.get_or_insert_with(|| format!("{}: {problem}", path.display()));
    }
}

/// Noise of the recording at `path`.
fn noise_of(config: &DatasetConfig, path: &Path) -> SensorNoise {
    let noise = config.noise.of_recording(path);
    if config.varies_noise { noise.with_drawn_strength() } else { noise }
}

/// The one of `earlier` samples by these cameras and with or without the robot, or any, that lies
/// nearest to one step before `now`; as [`forecloud::predict::history::History::one_step_back`].
fn one_step_back(
    earlier: &[Sample],
    now: Stamp,
    same: Option<(&[usize], bool)>,
    step_secs: f64,
) -> Option<usize> {
    let samples = earlier.iter().enumerate().rev();
    let secs = samples.map(|(i, sample)| (i, now.secs_since(sample.stamp)));
    let is_alike = |i: usize| {
        let Sample { cameras, mount, .. } = &earlier[i];
        let fits = same.is_none_or(|same| same == (&cameras[..], mount.is_some()));
        fits && earlier[i].has_points()
    };
    nearest(secs, step_secs, step_secs, is_alike)
}

/// Of frames and the seconds that lie between them and another, longer and longer, the one nearest
/// to `wanted_secs` that `fits`, if it is in time.
fn nearest(
    frames: impl Iterator<Item = (usize, f64)>,
    wanted_secs: f64,
    step_secs: f64,
    fits: impl Fn(usize) -> bool,
) -> Option<usize> {
    let (mut last, limit_secs) = (0.0, TOLERANCE * step_secs);
    // Frames from where time was set back are not of this time.
    let goes_on = |(_, secs): &(usize, f64)| std::mem::replace(&mut last, *secs) < *secs;
    let late = frames.take_while(goes_on).map(|(i, secs)| (i, secs - wanted_secs));
    let in_time = late.take_while(|(_, late)| *late < limit_secs);
    in_time
        .filter(|&(i, late)| late > -limit_secs && fits(i))
        .min_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()))
        .map(|(i, _)| i)
}

/// Reads frames into samples.
struct Reader<'a> {
    config: DatasetConfig,
    model: ModelConfig,
    /// Where the box is, in the frame that the recording says it is given in.
    place: Place,
    noise: SensorNoise,
    robot: Option<Robot>,
    pixels: Option<&'a Pixels>,
    cloud: Cloud,
    particles: Particles,
    samples: Vec<Sample>,
}

impl Reader<'_> {
    /// Takes a frame, or counts it and tells why not.
    fn take(
        &mut self,
        frame: Frame,
        poses: Option<&[Isometry3<f64>]>,
        ids: Option<BodyIds>,
        skipped: &mut Skipped,
    ) -> Option<String> {
        let stamp = frame.stamp;
        let (count, problem) = match (poses, ids) {
            (None, _) => (&mut skipped.without_poses, "no true poses".to_owned()),
            (_, None) => {
                let problem = "no true body ids of the size of the depth images";
                (&mut skipped.without_ids, problem.to_owned())
            }
            (Some(poses), Some(ids)) => match self.add(frame, poses, &ids) {
                Ok(()) => return None,
                Err(error) => (&mut skipped.unusable, error.to_string()),
            },
        };
        *count += 1;
        Some(format!("frame of {stamp} s: {problem}"))
    }

    /// The same where hindsight teaches; what truth there is, is kept to measure with. Frames between
    /// those whose points are kept tell nothing.
    fn take_untold(
        &mut self,
        frame: Frame,
        poses: Option<&[Isometry3<f64>]>,
        ids: Option<BodyIds>,
        skipped: &mut Skipped,
    ) -> Option<String> {
        let stamp = frame.stamp;
        if self.is_between(stamp) {
            return None;
        }
        let error = self.add_points(frame, poses.unwrap_or_default(), ids.as_ref()).err()?;
        skipped.unusable += 1;
        Some(format!("frame of {stamp} s: {error}"))
    }

    /// Whether a frame is too near to the one whose points were kept last.
    fn is_between(&self, stamp: Stamp) -> bool {
        let last = self.samples.iter().rfind(|sample| sample.has_points());
        let since = last.map(|last| stamp.secs_since(last.stamp) / self.model.step_secs);
        // Time that was set back starts anew.
        since.is_some_and(|since| (0.0..APART).contains(&since))
    }

    fn add(&mut self, frame: Frame, poses: &[Isometry3<f64>], ids: &BodyIds) -> Result<()> {
        if self.is_between(frame.stamp) {
            self.samples.push(Sample {
                stamp: frame.stamp,
                poses: poses.to_vec(),
                ..Sample::default()
            });
            return Ok(());
        }
        self.add_points(frame, poses, Some(ids))
    }

    fn add_points(
        &mut self,
        mut frame: Frame,
        poses: &[Isometry3<f64>],
        ids: Option<&BodyIds>,
    ) -> Result<()> {
        self.noise.apply(&mut frame)?;
        let pose = frame.world_from_workspace.as_ref();
        let place = self.place.in_world(pose, &self.model.workspace);
        let workspace = place.workspace;
        self.cloud.from_cameras(&frame.cameras, &workspace)?;
        let n = self.model.n_motion.max(self.model.n_particles);
        let (stamp_ns, support_stride) = (frame.stamp.nanos(), self.model.support_stride);
        let sampling = Sampling { seed: 0, stamp_ns, workspace, support_stride };
        self.particles.sample_thinned(&self.cloud, n, &sampling);
        let (needed, got) = (self.model.k + 1, self.particles.len());
        if got < needed {
            return Err(Error::TooFewPoints { needed, got });
        }
        let cameras: Vec<usize> = frame.camera_numbers().collect();
        let (mut joints, mut joints_ahead, mut mount) = (Vec::new(), Vec::new(), None);
        let fitting = self.robot.as_ref().zip(frame.robot.as_ref());
        if let Some((robot, state)) = fitting.filter(|(robot, state)| robot.fits(&state.mount)) {
            let RobotState { joints: measured, mount: found } = state;
            robot.order(&measured.names)?.apply(&measured.positions, &mut joints)?;
            joints_ahead = self.ahead(&frame, &cameras, &joints)?;
            mount = Some(found.clone());
        }
        let mut looked = Looked::default();
        looked.take(&frame.cameras, &workspace);
        let keep = |pixels: &Pixels| pixels.keep(&frame.cameras, &mut self.cloud);
        let shot = self.pixels.map(keep).transpose()?.flatten();
        let particles = &self.particles;
        self.samples.push(Sample {
            stamp: frame.stamp,
            cameras,
            positions: particles.positions.clone(),
            colors: particles.colors.iter().map(|c| c.map(|c| (c * 255.0) as u8)).collect(),
            bodies: ids.map_or_else(Vec::new, |ids| {
                particles.sources.iter().map(|&source| ids.id(source)).collect()
            }),
            seen_by: particles.sources.iter().map(|source| (source >> 24) as u8).collect(),
            eyes: particles.eyes.clone(),
            looked,
            support_m: particles.support_m,
            poses: poses.to_vec(),
            joints,
            joints_ahead,
            mount,
            place,
            shot,
            ..Sample::default()
        });
        Ok(())
    }

    /// Joints at each step ahead, as the plan of this frame leads; the robot can be placed at all.
    fn ahead(&mut self, frame: &Frame, cameras: &[usize], joints: &[f64]) -> Result<Vec<f64>> {
        let Some(robot) = self.robot.as_mut() else { return Ok(Vec::new()) };
        let (mut velocities, step_secs) = (Vec::new(), self.model.step_secs);
        match one_step_back(&self.samples, frame.stamp, Some((cameras, true)), step_secs) {
            Some(before) => {
                let before = &self.samples[before];
                let secs = frame.stamp.secs_since(before.stamp);
                let limits = robot.limits();
                plan::velocities(joints, &before.joints, limits, secs, &mut velocities)?;
            }
            // No window starts here.
            None => velocities.resize(joints.len(), 0.0),
        }
        let horizon = self.model.horizon(self.config.max_horizon);
        let mut ahead = Vec::new();
        let now = JointsNow {
            names: robot.joint_names(),
            limits: robot.limits(),
            positions: joints,
            velocities: Some(&velocities),
        };
        plan::forecast(&now, &frame.plan, frame.stamp, &horizon, &mut ahead)?;
        let mut row = Vec::new();
        for joints in ahead.chunks_exact(joints.len().max(1)).chain([joints]) {
            robot.place(joints, &mut row)?;
        }
        Ok(ahead)
    }
}
