//! `trajectory_msgs/msg/JointTrajectory`.

use super::cdr::CdrReader;
use super::header::Header;
use crate::base::error::Result;

/// A planned motion; each point has one position per joint, and times ascend strictly from 0 or
/// later.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JointTrajectory {
    /// `stamp`: the start, from which the points count.
    pub header: Header,
    /// Names of the joints.
    pub joint_names: Vec<String>,
    /// The points; none cancels the plan.
    pub points: Vec<TrajectoryPoint>,
}

/// Where the joints are to be at one time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrajectoryPoint {
    /// One per joint: radians or metres; finite.
    pub positions: Vec<f64>,
    /// Nanoseconds from the start.
    pub time_from_start_nanos: i64,
}

impl JointTrajectory {
    /// Decodes a serialized message; velocities, accelerations and efforts are skipped.
    ///
    /// # Errors
    /// [`crate::Error::Message`] if it is truncated, a point lacks positions, a position is not
    /// finite, or times don't ascend.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = CdrReader::new(bytes, "trajectory_msgs/msg/JointTrajectory")?;
        let header = Header::read(&mut reader)?;
        let joint_names = reader.strings("joint_names")?;
        let count = reader.count(TrajectoryPoint::MIN_BYTES, "points")?;
        let mut points: Vec<TrajectoryPoint> = Vec::with_capacity(count);
        for _ in 0..count {
            let after = points.last().map_or(-1, |point| point.time_from_start_nanos);
            points.push(TrajectoryPoint::read(&mut reader, joint_names.len(), after)?);
        }
        reader.finish()?;
        Ok(Self { header, joint_names, points })
    }
}

impl TrajectoryPoint {
    /// Four lengths and the time.
    const MIN_BYTES: usize = 4 * 4 + 8;

    fn read(reader: &mut CdrReader, n_joints: usize, after_nanos: i64) -> Result<Self> {
        let positions = reader.f64s("points[].positions")?;
        if positions.len() != n_joints {
            let problem = format!("{} positions of {n_joints} joints", positions.len());
            return Err(reader.error("points[].positions", problem));
        }
        if let Some(position) = positions.iter().find(|position| !position.is_finite()) {
            return Err(reader.error("points[].positions", format!("holds {position}")));
        }
        reader.f64s("points[].velocities")?;
        reader.f64s("points[].accelerations")?;
        reader.f64s("points[].effort")?;
        let sec = reader.i32("points[].time_from_start.sec")?;
        let nanosec = reader.u32("points[].time_from_start.nanosec")?;
        let time_from_start_nanos = i64::from(sec) * 1_000_000_000 + i64::from(nanosec);
        if time_from_start_nanos <= after_nanos {
            let problem = format!("{sec}.{nanosec:09} s: times must ascend from 0");
            return Err(reader.error("points[].time_from_start", problem));
        }
        Ok(Self { positions, time_from_start_nanos })
    }
}
