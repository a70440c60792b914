//! The actions that are relayed: what their goals move, and how they say what went wrong.

use std::collections::HashMap;

use r2r::WrappedActionTypeSupport;
use r2r::control_msgs::action::{FollowJointTrajectory, GripperCommand};
use r2r::sensor_msgs::msg::JointState;
use r2r::trajectory_msgs::msg::JointTrajectoryPoint;

use forecloud::base::error::{Error, Result};
use forecloud::message::{JointTrajectory, Stamp};
use forecloud::robot::relay::{Fingers, GoalPoint, MAX_JOINTS, MAX_POINTS, from_here, planned};

/// Joints whose positions are remembered at most.
const MAX_MEASURED: usize = 1024;

/// Where the joints are.
#[derive(Default)]
pub struct Measured(HashMap<String, f64>);

impl Measured {
    /// Takes a message; what is not finite, or finds no room, is left out.
    pub fn take(&mut self, state: JointState) {
        for (name, position) in state.name.into_iter().zip(state.position) {
            let has_room = self.0.len() < MAX_MEASURED || self.0.contains_key(&name);
            if has_room && position.is_finite() {
                self.0.insert(name, position);
            }
        }
    }

    /// Position of a joint (rad or m).
    pub fn of(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

/// An action that is relayed.
pub trait Relayed: WrappedActionTypeSupport + 'static {
    /// What is known of a controller of this kind.
    type About;

    /// The motion that a goal asks for, `None` if it does not say; it starts at its stamp, or when it
    /// is accepted (0).
    ///
    /// # Errors
    /// Why the goal is refused.
    fn motion(
        goal: &Self::Goal,
        about: &Self::About,
        measured: &Measured,
    ) -> Result<Option<JointTrajectory>>;

    /// Whether the robot's speed scaling counts for it.
    fn is_scaled() -> bool;

    /// The result of a goal that failed, as far as it has room for words.
    fn failure(words: &str) -> Self::Result;
}

impl Relayed for FollowJointTrajectory::Action {
    type About = ();

    fn motion(
        goal: &FollowJointTrajectory::Goal,
        (): &(),
        measured: &Measured,
    ) -> Result<Option<JointTrajectory>> {
        let given = &goal.trajectory;
        check_rest(goal)?;
        let points: Vec<GoalPoint> = given.points.iter().map(point).collect();
        let stamp = &given.header.stamp;
        let stamp = Stamp::from_parts(stamp.sec, stamp.nanosec);
        let mut motion = planned(stamp, &given.joint_names, &points)?;
        if let Some(motion) = &mut motion {
            from_here(motion, |name| measured.of(name));
        }
        Ok(motion)
    }

    fn is_scaled() -> bool {
        true
    }

    fn failure(words: &str) -> FollowJointTrajectory::Result {
        FollowJointTrajectory::Result {
            // What controllers also say of goals that end with them.
            error_code: FollowJointTrajectory::Result::INVALID_GOAL as i32,
            error_string: words.to_owned(),
        }
    }
}

fn point(point: &JointTrajectoryPoint) -> GoalPoint<'_> {
    let time = &point.time_from_start;
    GoalPoint {
        positions: &point.positions,
        velocities: &point.velocities,
        accelerations: &point.accelerations,
        time_from_start_nanos: Stamp::from_parts(time.sec, time.nanosec).nanos(),
    }
}

/// What is passed on without being looked at must not be endless, either.
fn check_rest(goal: &FollowJointTrajectory::Goal) -> Result<()> {
    let multi_dof = &goal.multi_dof_trajectory;
    for (what, got, most) in [
        ("path_tolerance", goal.path_tolerance.len(), MAX_JOINTS),
        ("goal_tolerance", goal.goal_tolerance.len(), MAX_JOINTS),
        ("component_path_tolerance", goal.component_path_tolerance.len(), 5 * MAX_JOINTS),
        ("component_goal_tolerance", goal.component_goal_tolerance.len(), 5 * MAX_JOINTS),
        ("multi_dof_trajectory.joint_names", multi_dof.joint_names.len(), MAX_JOINTS),
        ("multi_dof_trajectory.points", multi_dof.points.len(), MAX_POINTS),
    ] {
        if got > most {
            let problem = format!("{what} has {got} entries: at most {most} are allowed");
            return Err(Error::Plan { problem });
        }
    }
    Ok(())
}

impl Relayed for GripperCommand::Action {
    type About = Fingers;

    fn motion(
        goal: &GripperCommand::Goal,
        about: &Fingers,
        measured: &Measured,
    ) -> Result<Option<JointTrajectory>> {
        about.moved_to(goal.command.position, |name| measured.of(name)).map(Some)
    }

    fn is_scaled() -> bool {
        false
    }

    fn failure(_: &str) -> GripperCommand::Result {
        GripperCommand::Result::default()
    }
}
