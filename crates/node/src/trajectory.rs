//! `trajectory_msgs/msg/JointTrajectory` from and to the library's plans: for requests and answers, and for what
//! the plan relay publishes. What comes on `planned_joints` is decoded by [`forecloud::message`], as in recordings.

use r2r::builtin_interfaces::msg::{Duration, Time};
use r2r::trajectory_msgs::msg::{
    JointTrajectory as TrajectoryMsg, JointTrajectoryPoint as PointMsg,
};

use forecloud::message::{Header, JointTrajectory, Stamp, TrajectoryPoint};

/// A plan from its message, unchecked.
pub fn read_trajectory(message: &TrajectoryMsg) -> JointTrajectory {
    let TrajectoryMsg { header, joint_names, points } = message;
    let point = |PointMsg { positions, time_from_start: time, .. }: &PointMsg| TrajectoryPoint {
        positions: positions.clone(),
        time_from_start_nanos: Stamp::from_parts(time.sec, time.nanosec).nanos(),
    };
    JointTrajectory {
        header: Header {
            stamp: Stamp::from_parts(header.stamp.sec, header.stamp.nanosec),
            frame_id: header.frame_id.clone(),
        },
        joint_names: joint_names.clone(),
        points: points.iter().map(point).collect(),
    }
}

/// The message of a plan.
pub fn trajectory_message(plan: &JointTrajectory) -> TrajectoryMsg {
    let point = |point: &TrajectoryPoint| {
        let (sec, nanosec) = Stamp::from_nanos(point.time_from_start_nanos).parts();
        PointMsg {
            positions: point.positions.clone(),
            time_from_start: Duration { sec, nanosec },
            ..PointMsg::default()
        }
    };
    let (sec, nanosec) = plan.header.stamp.parts();
    TrajectoryMsg {
        header: r2r::std_msgs::msg::Header {
            stamp: Time { sec, nanosec },
            frame_id: plan.header.frame_id.clone(),
        },
        joint_names: plan.joint_names.clone(),
        points: plan.points.iter().map(point).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_is_sent_is_read_as_it_was() {
        let header = Header { stamp: Stamp::from_parts(7, 8), frame_id: "base".into() };
        let point = |nanos, q: f64| TrajectoryPoint {
            positions: vec![q, -q],
            time_from_start_nanos: nanos,
        };
        let points = vec![point(0, 0.5), point(1_999_999_999, 1.5), point(2_000_000_001, 2.0)];
        let plan = JointTrajectory { header, joint_names: vec!["a".into(), "b".into()], points };
        assert_eq!(read_trajectory(&trajectory_message(&plan)), plan);
    }

    #[test]
    fn a_time_that_no_message_has_room_for_is_the_latest() {
        let point = TrajectoryPoint { positions: vec![], time_from_start_nanos: i64::MAX };
        let message =
            trajectory_message(&JointTrajectory { points: vec![point], ..Default::default() });
        assert_eq!(message.points[0].time_from_start.sec, i32::MAX);
    }
}
