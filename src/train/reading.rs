//! Recordings read into data sets: each once, several at a time, in the order of their paths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nalgebra::Isometry3;
use rayon::prelude::*;

use super::dataset::{Dataset, DatasetConfig, MOVING_M, distance};
use crate::cloud::Cloud;
use crate::frames::Frame;
use crate::kinematics::{Robot, Spread};
use crate::message::Stamp;
use crate::model::ModelConfig;
use crate::particles::Particles;
use crate::plan::{self, Horizon};
use crate::recording::{BodyKind, Recording, carry};
use crate::{Error, Result};

type Vec3 = [f32; 3];

/// Recordings that are read side by side: more than these are never held besides those kept.
const BLOCK: usize = 32;

/// One frame of a recording, reduced to what windows need: about 20 bytes a point.
pub(super) struct Sample {
    pub(super) stamp: Stamp,
    /// Points as the camera measured them, noise and all.
    pub(super) positions: Vec<Vec3>,
    pub(super) colors: Vec<[u8; 3]>,
    pub(super) bodies: Vec<u16>,
    pub(super) poses: Vec<Isometry3<f64>>,
    /// Measured joints, in the robot's order.
    joints: Vec<f64>,
    /// The same at each step ahead, as the plan of this frame leads, one after the other.
    joints_ahead: Vec<f64>,
    pub(super) is_active: bool,
}

/// One recording in memory.
pub(super) struct Episode {
    pub(super) kinds: Vec<BodyKind>,
    pub(super) samples: Vec<Sample>,
    pub(super) robot: Robot,
}

/// A data set, and which recordings are for it.
pub struct Intake<'a> {
    /// Their split.
    pub split: &'a str,
    /// How many at most; the first ones are taken.
    pub max_recordings: Option<usize>,
    /// Where they go.
    pub data: &'a mut Dataset,
}

/// Recordings that are in no data set, and why.
#[derive(Debug, Default)]
pub struct LeftOut {
    /// Of other splits: how many of each.
    pub other_splits: BTreeMap<String, usize>,
    /// Recordings without truth.
    pub n_without_truth: usize,
    /// More than were asked for.
    pub n_surplus: usize,
    /// Those that can't be used, and why.
    pub failed: Vec<(PathBuf, Error)>,
}

/// What one recording is.
enum Outcome {
    /// For the intake of this index.
    Read(usize, Box<Episode>),
    OtherSplit(String),
    WithoutTruth,
    Surplus,
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

/// Reads the recordings at `paths`, each into the intake of its split, in the order of the paths
/// on any number of threads; `progress` is called after each.
///
/// A recording whose split nobody takes costs little more than its index.
pub fn read_recordings(
    paths: &[PathBuf],
    intakes: &mut [Intake],
    progress: impl Fn() + Sync,
) -> LeftOut {
    let mut left_out = LeftOut::default();
    for block in paths.chunks(BLOCK) {
        let shared: &[Intake] = intakes;
        let read = |path: &PathBuf| {
            let outcome = read_one(path, shared);
            progress();
            outcome
        };
        let outcomes: Vec<Result<Outcome>> = block.par_iter().map(read).collect();
        for (path, outcome) in block.iter().zip(outcomes) {
            match outcome {
                // The block may have filled it.
                Ok(Outcome::Read(index, _)) if intakes[index].is_full() => left_out.n_surplus += 1,
                Ok(Outcome::Read(index, episode)) => intakes[index].data.push(*episode),
                Ok(Outcome::OtherSplit(split)) => {
                    *left_out.other_splits.entry(split).or_default() += 1;
                }
                Ok(Outcome::WithoutTruth) => left_out.n_without_truth += 1,
                Ok(Outcome::Surplus) => left_out.n_surplus += 1,
                Err(error) => left_out.failed.push((path.clone(), error)),
            }
        }
    }
    left_out
}

fn read_one(path: &Path, intakes: &[Intake]) -> Result<Outcome> {
    // Intakes differ in what becomes of frames, not in how these are made.
    let Some(first) = intakes.first() else { return Ok(Outcome::Surplus) };
    let (mut found, mut split) = (None, None);
    let recording = Recording::open_if(path, first.data.frames().clone(), |truth| {
        split = truth.map(|truth| truth.split.clone());
        found = intakes.iter().position(|intake| split.as_deref() == Some(intake.split));
        found.is_some_and(|index| !intakes[index].is_full())
    })?;
    Ok(match (recording, found, split) {
        (Some(recording), Some(index), _) => {
            Outcome::Read(index, Box::new(intakes[index].data.read(&recording)?))
        }
        (_, _, None) => Outcome::WithoutTruth,
        (_, None, Some(split)) => Outcome::OtherSplit(split),
        (None, Some(_), _) => Outcome::Surplus,
    })
}

impl Intake<'_> {
    fn is_full(&self) -> bool {
        self.max_recordings.is_some_and(|max| self.data.n_recordings() >= max)
    }
}

impl Episode {
    /// The frames of `recording`, with the noise that `config` asks for.
    ///
    /// # Errors
    /// What makes the recording unusable.
    pub(super) fn read(
        recording: &Recording,
        config: DatasetConfig,
        model: ModelConfig,
    ) -> Result<Self> {
        let path = recording.bag().path();
        let wrong =
            |problem: &str| Error::Bag { path: path.to_owned(), problem: problem.to_owned() };
        let urdf = recording.robot_description()?.ok_or(Error::NoRobot)?;
        let noise = config.noise_of(path);
        let mut reader = Reader {
            config,
            model,
            robot: Robot::with_spread(&urdf, model.n_robot(), "world", Spread::Tips)?,
            cloud: Cloud::default(),
            particles: Particles::default(),
            samples: Vec::new(),
        };
        let truth = recording.truth().ok_or_else(|| wrong("no truth"))?;
        recording.play(|mut frame, ids| {
            let poses =
                truth.poses(frame.stamp).ok_or_else(|| wrong("frame without true poses"))?;
            let ids = ids.ok_or_else(|| wrong("frame without true body ids"))?;
            noise.apply(&mut frame)?;
            reader.add(&frame, poses.to_vec(), |source| ids.id(source))
        })?;
        let kinds: Vec<BodyKind> = truth.bodies.iter().map(|body| body.kind).collect();
        let Reader { mut samples, robot, .. } = reader;
        mark_active(&mut samples, &kinds);
        Ok(Self { kinds, samples, robot })
    }

    /// Kinematic particles one step before frame `t`, then, and at each of `horizon` steps ahead
    /// that its plan reaches: placed anew, as they take twenty times the memory of their joints.
    ///
    /// # Errors
    /// As [`Robot::place`]; not for joints that have been placed on reading.
    pub(super) fn place_robot(
        &self,
        t: usize,
        horizon: usize,
        rows: &mut Vec<Vec<Vec3>>,
    ) -> Result<()> {
        let (before, now) = (&self.samples[t - 1], &self.samples[t]);
        let n_joints = now.joints.len().max(1);
        let ahead = now.joints_ahead.chunks_exact(n_joints).take(horizon);
        let joints = [&before.joints[..], &now.joints[..]].into_iter().chain(ahead);
        let mut robot = self.robot.clone();
        rows.resize_with(joints.clone().count(), Vec::new);
        joints.zip(rows).try_for_each(|(joints, row)| robot.place(joints, row))
    }
}

impl Sample {
    /// All its points, without their sources.
    pub(super) fn cloud(&self) -> Particles {
        let mut cloud = Particles::default();
        cloud.positions.clone_from(&self.positions);
        cloud.colors.extend(self.colors.iter().map(|color| color.map(|c| f32::from(c) / 255.0)));
        cloud
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
        self.cloud.from_cameras(&frame.cameras, &workspace)?;
        let n = self.model.n_motion.max(self.model.n_particles);
        let (stamp_ns, stride) = (frame.stamp.nanos(), self.model.support_stride);
        self.particles.sample_thinned(&self.cloud, n, 0, stamp_ns, &workspace, stride);
        let mut joints = Vec::new();
        let order = self.robot.order(&frame.joints.names)?;
        order.apply(&frame.joints.positions, &mut joints)?;
        let joints_ahead = self.ahead(frame, &joints)?;
        let particles = &self.particles;
        self.samples.push(Sample {
            stamp: frame.stamp,
            positions: particles.positions.clone(),
            colors: particles.colors.iter().map(|c| c.map(|c| (c * 255.0) as u8)).collect(),
            bodies: particles.sources.iter().map(|&source| body(source)).collect(),
            poses,
            joints,
            joints_ahead,
            is_active: false,
        });
        Ok(())
    }

    /// Joints at each step ahead, as the plan of this frame leads; the robot can be placed at all.
    fn ahead(&mut self, frame: &Frame, joints: &[f64]) -> Result<Vec<f64>> {
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
        let mut row = Vec::new();
        for joints in ahead.chunks_exact(joints.len().max(1)).chain([joints]) {
            self.robot.place(joints, &mut row)?;
        }
        Ok(ahead)
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
