//! What the evaluation keeps of a frame.

use std::sync::Arc;

use crate::surface::Surfaces;
use forecloud::Result;
use forecloud::base::geometry::{PointTree, Vec3};
use forecloud::message::Stamp;
use forecloud::robot::kinematics::{JointOrder, MeshSearch, Robot, RobotOptions, Spread};
use forecloud::vision::cloud::{Cloud, Workspace};
use forecloud::vision::frames::{Frame, RobotState};
use forecloud::vision::particles::{Particles, Sampling};

/// Points of a cloud that are kept at most.
const MAX_CLOUD: usize = 1 << 17;
/// Points of a cloud that are tested for change.
const MAX_TESTED: usize = 1 << 14;
/// Points on the robot's surface.
const N_ROBOT: usize = 1 << 12;
/// Distance to the robot's surface up to which a point counts as the robot's (m).
pub const ROBOT_M: f32 = 0.025;

/// What the cameras saw at one time, in the world frame (m).
#[derive(Debug)]
pub struct Observed {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Depth images.
    pub surfaces: Surfaces,
    /// The cloud in the workspace.
    pub cloud: PointTree,
    /// A sample of the cloud, to be tested for change.
    pub tested: Vec<Vec3>,
    /// Two samples of the cloud, as many as there are particles, drawn apart from each other and
    /// from the particles.
    pub drawn: [Vec<Vec3>; 2],
    /// Points on the robot; none without a robot's description.
    pub(super) robot: Option<PointTree>,
}

impl Observed {
    /// Whether `x` (world frame, m) is the robot's.
    pub fn is_robot(&self, x: &Vec3) -> bool {
        let distance_m = self.robot.as_ref().and_then(|robot| robot.distance_m(x));
        distance_m.is_some_and(|distance_m| distance_m <= ROBOT_M)
    }
}

/// Makes frames into what the evaluation keeps of them.
pub struct Eye {
    /// The box that was asked for, and where it was last.
    asked: Workspace,
    workspace: Workspace,
    n_particles: usize,
    seed: u64,
    support_stride: usize,
    robot: Option<Robot>,
    order: Option<(Arc<[String]>, JointOrder)>,
    cloud: Cloud,
    sample: Particles,
    /// Why the robot's points can't be told; none if they can.
    pub without_robot: Option<String>,
}

impl Eye {
    /// For clouds in `workspace` (in the frame that frames say it is given in) of which `n_particles` were drawn by `seed`.
    pub fn new(workspace: Workspace, n_particles: usize, seed: u64) -> Self {
        Self {
            asked: workspace,
            workspace,
            n_particles,
            seed,
            support_stride: 1,
            robot: None,
            order: None,
            cloud: Cloud::default(),
            sample: Particles::default(),
            without_robot: Some("the recording has no robot description".into()),
        }
    }

    /// With particles that are thinned on the support plane, as the model's are.
    pub fn thinned(self, support_stride: usize) -> Self {
        Self { support_stride, ..self }
    }

    /// Takes the robot's description, its meshes looked for in `meshes`. One that can't be used leaves the robot's points untold.
    pub fn set_robot(&mut self, urdf: &str, world_frame: &str, meshes: &MeshSearch) {
        self.order = None;
        let (n_points, spread) = (N_ROBOT, Spread::Even);
        let options = RobotOptions { n_points, spread, world_frame, meshes };
        let robot = Robot::with_options(urdf, &options);
        self.without_robot = robot.as_ref().err().map(ToString::to_string);
        self.robot = robot.ok();
    }

    /// The box of the newest cloud (world frame, m).
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// What is kept of `frame`.
    ///
    /// # Errors
    /// As [`Cloud::from_cameras`].
    pub fn observe(&mut self, frame: &Frame) -> Result<Observed> {
        self.workspace = self.asked.in_world(frame.world_from_workspace.as_ref());
        self.cloud.from_cameras(&frame.cameras, &self.workspace)?;
        let (seed, n) = (self.seed, self.n_particles);
        Ok(Observed {
            stamp: frame.stamp,
            surfaces: Surfaces::new(frame)?,
            cloud: PointTree::new(&self.draw(frame.stamp, MAX_CLOUD, seed, 1))?,
            tested: self.draw(frame.stamp, MAX_TESTED, seed, 1),
            drawn: [1, 2]
                .map(|i| self.draw(frame.stamp, n, seed.wrapping_add(i), self.support_stride)),
            robot: self.robot_at(frame.robot.as_ref())?,
        })
    }

    fn draw(&mut self, stamp: Stamp, n: usize, seed: u64, stride: usize) -> Vec<Vec3> {
        let (stamp_ns, workspace) = (stamp.nanos(), self.workspace);
        let sampling = Sampling { seed, stamp_ns, workspace, support_stride: stride };
        self.sample.sample_thinned(&self.cloud, n, &sampling);
        std::mem::take(&mut self.sample.positions)
    }

    fn robot_at(&mut self, state: Option<&RobotState>) -> Result<Option<PointTree>> {
        match state.map_or(Ok(None), |state| self.place(state)) {
            Ok(Some(points)) => Ok(Some(PointTree::new(&points)?)),
            Ok(None) => Ok(None),
            Err(error) => {
                self.without_robot = Some(error.to_string());
                Ok(None)
            }
        }
    }

    fn place(&mut self, RobotState { joints, mount }: &RobotState) -> Result<Option<Vec<Vec3>>> {
        let fitting = self.robot.as_mut().filter(|robot| robot.fits(mount));
        let Some(robot) = fitting else { return Ok(None) };
        if self.order.as_ref().is_none_or(|(known, _)| *known != joints.names) {
            self.order = Some((joints.names.clone(), robot.order(&joints.names)?));
        }
        let (mut positions, mut points) = (Vec::new(), Vec::new());
        if let Some((_, order)) = &self.order {
            order.apply(&joints.positions, &mut positions)?;
        }
        robot.set_mount(mount)?;
        robot.place(&positions, &mut points)?;
        Ok(Some(points))
    }
}
