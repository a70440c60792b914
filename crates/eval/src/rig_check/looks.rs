//! Which frames are looked at, and what is tried with them.

use forecloud::message::Stamp;
use forecloud::predict::rig::{
    CameraPlane, CloudValues, Lag, Misfit, Overlap, RigWatch, Trials, camera_planes, overlaps,
};
use forecloud::robot::kinematics::JointLimits;
use forecloud::vision::frames::{Frame, View};
use forecloud::{Error, Result};

use super::{depth_of, is_missing_joints};

/// Frames in which the robot is looked at, spread over the recording.
pub(super) const N_LOOKS: usize = 24;
/// Frames whose planes and overlaps are looked at.
const N_PLANES: usize = 6;
/// Frames with the fastest joints, in which other times are tried; how far apart (s), how fast at least (a
/// joint, rad/s or m/s), and how many at least.
const N_FAST: usize = 12;
const APART_SECS: f64 = 0.15;
const FAST: f64 = 0.25;
const LEAST_FAST: usize = 3;
/// Times that are tried (s): up to this, in these steps.
const LAGS: i32 = 12;
const LAG_STEP_SECS: f64 = 0.025;
/// Bytes of depth images that are kept, at most.
const MAX_BYTES: usize = 512 << 20;

/// A frame that is kept, with its robot's joints.
struct Kept {
    frame: Frame,
    speed: f64,
}

/// What was found.
pub(super) struct Found {
    pub(super) n_with_robot: u64,
    /// Why a frame has none, the first.
    pub(super) why_no_robot: Option<String>,
    pub(super) trials: Trials,
    pub(super) planes: Vec<Vec<CameraPlane>>,
    pub(super) overlaps: Vec<Overlap>,
    /// Of cameras that give only clouds, by camera.
    pub(super) clouds: Vec<CloudValues>,
    /// Of all frames.
    pub(super) stamps: Vec<Stamp>,
}

/// Looks at some of the frames as they come.
pub(super) struct Looks {
    period_secs: f64,
    first: Option<Stamp>,
    n_looked: usize,
    n_planes: usize,
    stamps: Vec<Stamp>,
    /// Joints of the frames that have them, ascending in time.
    joints: Vec<(Stamp, Vec<f64>)>,
    fast: Vec<Kept>,
    n_bytes: usize,
    n_with_robot: u64,
    why_no_robot: Option<String>,
    planes: Vec<Vec<CameraPlane>>,
    overlaps: Vec<Overlap>,
    clouds: Vec<CloudValues>,
    sums: [(f64, u64, forecloud::predict::rig::Counts); 2],
}

impl Looks {
    pub(super) fn new(duration_secs: f64, n_cameras: usize) -> Self {
        Self {
            period_secs: (duration_secs / N_LOOKS as f64).max(1e-3),
            first: None,
            n_looked: 0,
            n_planes: 0,
            stamps: Vec::new(),
            joints: Vec::new(),
            fast: Vec::new(),
            n_bytes: 0,
            n_with_robot: 0,
            why_no_robot: None,
            planes: Vec::new(),
            overlaps: Vec::new(),
            clouds: vec![CloudValues::default(); n_cameras],
            sums: Default::default(),
        }
    }

    pub(super) fn take(&mut self, frame: Frame, watch: &mut RigWatch) {
        let stamp = frame.stamp;
        let first = *self.first.get_or_insert(stamp);
        self.stamps.push(stamp);
        let joints = watch.joints(frame.robot.as_ref()).unwrap_or_else(|error| {
            self.why_no_robot.get_or_insert(error.to_string());
            None
        });
        let before = self.joints.last().map(|(then, before)| (*then, &before[..]));
        let both = before.zip(joints.as_deref());
        let velocities = both.and_then(|(before, now)| watch.velocities(before, (stamp, now)));
        if let Some(joints) = &joints {
            self.n_with_robot += 1;
            self.joints.push((stamp, joints.clone()));
        }
        let elapsed_secs = stamp.secs_since(first);
        if elapsed_secs >= self.n_planes as f64 * self.period_secs * (N_LOOKS / N_PLANES) as f64 {
            self.n_planes += 1;
            self.planes.extend(camera_planes(&frame).ok());
            self.overlaps.extend(overlaps(&frame).unwrap_or_default());
            for camera in &frame.cameras {
                let values = self.clouds.get_mut(camera.camera);
                if let (View::Points(cloud), Some(values)) = (&camera.view, values) {
                    values.add(cloud);
                }
            }
        }
        if elapsed_secs >= self.n_looked as f64 * self.period_secs {
            self.n_looked += 1;
            let looked = watch.look(&frame, velocities.as_deref().unwrap_or_default());
            let looked = looked.and_then(|_| {
                joints.as_deref().map_or(Ok(()), |joints| self.as_degrees(&frame, joints, watch))
            });
            if let Err(error) = looked {
                self.why_no_robot.get_or_insert(error.to_string());
            }
        }
        let speed = velocities.iter().flatten().fold(0.0f64, |most, v| most.max(v.abs()));
        if speed >= FAST {
            self.keep(frame, speed);
        }
    }

    /// Frames that came.
    pub(super) fn n_frames(&self) -> u64 {
        self.stamps.len() as u64
    }

    /// Tries joints as they are, and as degrees.
    fn as_degrees(&mut self, frame: &Frame, joints: &[f64], watch: &mut RigWatch) -> Result<()> {
        let radians = watch.from_degrees(joints);
        for (sum, joints) in self.sums.iter_mut().zip([joints, &radians]) {
            if let Some(Misfit { counts, mean_m }) = watch.misfit(frame, joints)? {
                sum.0 += mean_m;
                sum.1 += 1;
                sum.2 += counts;
            }
        }
        Ok(())
    }

    /// Keeps the fastest frames, none near another.
    fn keep(&mut self, mut frame: Frame, speed: f64) {
        for camera in &mut frame.cameras {
            if let View::Depth { color, .. } = &mut camera.view {
                *color = None;
            }
        }
        let n_bytes = |frame: &Frame| -> usize {
            frame.cameras.iter().filter_map(|c| depth_of(&c.view)).map(|d| d.data.len()).sum()
        };
        let near = self
            .fast
            .iter()
            .position(|kept| frame.stamp.secs_since(kept.frame.stamp).abs() < APART_SECS);
        let full = || {
            let slowest = (0..self.fast.len())
                .min_by(|a, b| self.fast[*a].speed.total_cmp(&self.fast[*b].speed));
            slowest.filter(|_| self.fast.len() >= N_FAST || self.n_bytes > MAX_BYTES)
        };
        let out = near.or_else(full);
        if let Some(out) = out {
            if self.fast[out].speed >= speed {
                return;
            }
            let gone = self.fast.swap_remove(out);
            self.n_bytes -= n_bytes(&gone.frame);
        }
        self.n_bytes += n_bytes(&frame);
        self.fast.push(Kept { frame, speed });
    }

    /// What was found, when all frames have come.
    ///
    /// # Errors
    /// As [`RigWatch::misfit`], but for joints that are missing.
    pub(super) fn finish(mut self, watch: &mut RigWatch) -> Result<Found> {
        let lag = match self.lag(watch) {
            Ok(lag) => lag,
            Err(error) if is_missing_joints(&error) => None,
            Err(Error::Shape { .. }) => None,
            Err(error) => return Err(error),
        };
        let [as_they_are, as_degrees] = self
            .sums
            .map(|(sum, n, counts)| (n > 0).then(|| Misfit { counts, mean_m: sum / n as f64 }));
        let trials = Trials { as_they_are, as_degrees, lag, ..Trials::default() };
        let Self { n_with_robot, why_no_robot, planes, overlaps, clouds, stamps, .. } = self;
        Ok(Found { n_with_robot, why_no_robot, trials, planes, overlaps, clouds, stamps })
    }

    fn lag(&mut self, watch: &mut RigWatch) -> Result<Option<Lag>> {
        if self.fast.len() < LEAST_FAST {
            return Ok(None);
        }
        let secs: Vec<f64> = (-LAGS..=LAGS).map(|i| f64::from(i) * LAG_STEP_SECS).collect();
        let mut fits = vec![0.0; secs.len()];
        let Some(limits) = watch.robot().map(|robot| robot.limits().to_vec()) else {
            return Ok(None);
        };
        let (mut joints, mut n_frames) = (Vec::new(), 0);
        for Kept { frame, .. } in &self.fast {
            let mut row = Vec::with_capacity(secs.len());
            for secs in &secs {
                if !joints_at(&self.joints, &limits, frame.stamp.plus_secs(*secs), &mut joints) {
                    break;
                }
                row.extend(watch.misfit(frame, &joints)?.map(|misfit| misfit.mean_m));
            }
            if row.len() == secs.len() {
                fits.iter_mut().zip(row).for_each(|(fit, mean_m)| *fit += mean_m);
                n_frames += 1;
            }
        }
        Ok((n_frames >= LEAST_FAST).then(|| best(&secs, &fits, n_frames)).flatten())
    }
}

/// The joints at a time, between those of the frames about it; false if there are none.
fn joints_at(
    known: &[(Stamp, Vec<f64>)],
    limits: &[JointLimits],
    at: Stamp,
    out: &mut Vec<f64>,
) -> bool {
    let after = known.partition_point(|(stamp, _)| *stamp < at);
    out.clear();
    let (Some((t1, b)), Some((t0, a))) =
        (known.get(after), after.checked_sub(1).and_then(|i| known.get(i)))
    else {
        // The ends stand for what is a little beyond them.
        let end = if after == 0 { known.first() } else { known.last() };
        out.extend(end.iter().flat_map(|(_, joints)| joints));
        return !out.is_empty();
    };
    let share = at.secs_since(*t0) / t1.secs_since(*t0).max(1e-9);
    let ways = a.iter().zip(b).zip(limits);
    out.extend(ways.map(|((a, b), limits)| a + share * limits.way(*a, *b)));
    true
}

/// The time that fits best, between the steps by a parabola.
fn best(secs: &[f64], fits: &[f64], n_frames: usize) -> Option<Lag> {
    let at = (0..fits.len()).min_by(|a, b| fits[*a].total_cmp(&fits[*b]))?;
    let none = fits.get(fits.len() / 2)?;
    let sides = at.checked_sub(1).and_then(|before| Some((fits.get(before)?, fits.get(at + 1)?)));
    let beside = sides.map_or(0.0, |(before, after)| {
        let curve = before - 2.0 * fits[at] + after;
        (0.5 * (before - after) / curve.max(1e-12)).clamp(-0.5, 0.5)
    });
    let gain = 1.0 - fits[at] / none.max(1e-9);
    Some(Lag { secs: secs[at] + beside * LAG_STEP_SECS, gain, n_frames })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joints_lie_between_those_of_frames() {
        let at = |secs: f64| Stamp::from_secs(10.0 + secs);
        let known: Vec<_> = (0..3).map(|i| (at(0.1 * f64::from(i)), vec![f64::from(i)])).collect();
        let mut out = Vec::new();
        for (secs, joint) in [(-0.3, 0.0), (0.0, 0.0), (0.05, 0.5), (0.13, 1.3), (0.5, 2.0)] {
            assert!(joints_at(&known, &[JointLimits::NONE], at(secs), &mut out));
            assert!((out[0] - joint).abs() < 1e-6, "{secs}: {out:?}");
        }
        assert!(!joints_at(&[], &[], at(0.0), &mut out));
        // A joint that wraps goes the short way.
        let known = [(at(0.0), vec![3.1]), (at(0.1), vec![-3.1])];
        let wraps = JointLimits { wraps: true, ..JointLimits::NONE };
        assert!(joints_at(&known, &[wraps], at(0.05), &mut out));
        assert!((out[0] - std::f64::consts::PI).abs() < 1e-6, "{out:?}");
    }

    #[test]
    fn the_best_time_lies_between_the_steps() {
        let secs: Vec<f64> = (-4..=4).map(|i| 0.05 * f64::from(i)).collect();
        let fits: Vec<f64> = secs.iter().map(|secs| 1.0 + 50.0 * (secs - 0.06).powi(2)).collect();
        let lag = best(&secs, &fits, 5).unwrap();
        assert!((lag.secs - 0.055).abs() < 0.006 && lag.gain > 0.1, "{lag:?}");
        assert_eq!(best(&[], &[], 0), None);
    }
}
