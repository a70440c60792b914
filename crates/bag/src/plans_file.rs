//! Plans as YAML files.

use std::path::Path;

use serde::Deserialize;

use crate::yaml;

use forecloud::message::{Header, JointTrajectory, TrajectoryPoint};
use forecloud::{Error, Result};

/// Bytes of a file at most.
const MAX_BYTES: u64 = 16 << 20;
/// Times are less (s).
const MAX_SECS: f64 = 1e6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    plans: Vec<PlanFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    joint_names: Vec<String>,
    points: Vec<PointFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PointFile {
    /// Seconds from the frame.
    time: f64,
    positions: Vec<f64>,
}

/// Reads plans from a YAML file; they start at the frame that they are followed from (stamp 0).
///
/// # Errors
/// [`Error::Io`] if it can't be read, [`Error::Plan`] for what is not understood or not finite.
pub fn read_plans(path: &Path) -> Result<Vec<JointTrajectory>> {
    let io = |cause| Error::Io { path: path.into(), cause };
    let wrong = |problem: String| Error::Plan { problem: format!("{}: {problem}", path.display()) };
    let text = yaml::read_text(path, MAX_BYTES).map_err(io)?;
    let file: File = yaml::parse(&text).map_err(wrong)?;
    let trajectory = |(i, plan): (usize, PlanFile)| {
        let point = |point: PointFile| match (0.0..MAX_SECS).contains(&point.time) {
            true => Ok(TrajectoryPoint {
                positions: point.positions,
                time_from_start_nanos: (point.time * 1e9).round() as i64,
            }),
            false => Err(wrong(format!("plan {i}: time {} s is not in 0..{MAX_SECS}", point.time))),
        };
        let points = plan.points.into_iter().map(point).collect::<Result<_>>()?;
        let header = Header::default();
        Ok(JointTrajectory { header, joint_names: plan.joint_names, points })
    };
    file.plans.into_iter().enumerate().map(trajectory).collect()
}
