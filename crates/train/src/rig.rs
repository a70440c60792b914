//! Whether the rig of a recording is as hindsight takes it to be: cameras that stand still and agree with
//! each other, and joints by the cameras' clock.

use std::path::Path;

use crate::labels::SURE;
use forecloud::base::geometry::{Neighbors, Vec3, distance, length};
use forecloud::robot::kinematics::{NO_LINK, Robot};
use forecloud::{Error, Result};

use super::config::MOVING_M;
use super::episode::{Episode, Sample};
use super::hindsight::CLEARANCE_M;

/// Way of a camera from one step to the next (m) that is more than what tf trembles, and the share of all
/// steps with such a way from which it counts as moving.
const EYE_MOVES_M: f32 = 0.01;
const EYE_MOVES_SHARE: f64 = 0.05;
/// Share of the points that must surely move for all to move, those on the support plane among them, and the
/// share of all steps of which that may be said.
const ALL_SHARE: f64 = 0.6;
const ALL_STEPS: f64 = 0.5;
/// Times by which the joints are moved to see where they fit (s).
const LAG_STEP_SECS: f64 = 0.05;
const LAG_STEPS: i32 = 6;
/// Frames that are looked at, those with the fastest joints; how many at least, and how fast they are (a
/// step's change of a joint, rad or m).
const LAG_FRAMES: usize = 12;
const LAG_LEAST_FRAMES: usize = 3;
const LAG_LEAST_CHANGE: f64 = 0.03;
/// Every so many of the robot's points are looked at: those that lie so near to what is seen (m) with some
/// lag; and no distance counts more than this (m).
const LAG_STRIDE: usize = 4;
const LAG_SEEN_M: f32 = 0.01;
const LAG_FAR_M: f32 = 0.03;
/// How much better than none a lag must fit to be told.
const LAG_GAIN: f64 = 0.9;
/// Points about the support plane (m), in slices of this height (m), and how many of a camera tell.
const PLANE_REACH_M: f32 = 0.06;
const SLICE_M: f32 = 0.002;
const PLANE_LEAST: usize = 200;

/// What there is to tell of a recording's rig.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rig {
    /// By how much the joints must be taken later (s) to lie where the cameras see the robot; none where
    /// it hardly moves, or no other time fits much better than their own.
    pub lag_secs: Option<f64>,
    /// Height (world z, m) of the support plane as each camera sees it, by its name; of those that see
    /// enough of it.
    pub planes_m: Vec<(String, f32)>,
}

impl Rig {
    /// How far the cameras' planes lie apart (m); none of fewer than two.
    pub fn apart_m(&self) -> Option<f32> {
        let seen = || self.planes_m.iter().map(|(_, height_m)| *height_m);
        let (low, high) = (seen().reduce(f32::min)?, seen().reduce(f32::max)?);
        (seen().count() > 1).then_some(high - low)
    }
}

impl Episode {
    /// Looks at the rig; the flows must have been found.
    ///
    /// # Errors
    /// [`Error::Bag`] if a camera moves; as [`Robot::place`].
    pub(super) fn look_at_rig(&self, camera_names: &[String]) -> Result<Rig> {
        self.must_stand(camera_names)?;
        Ok(Rig { lag_secs: self.lag_secs()?, planes_m: planes_m(&self.samples, camera_names) })
    }

    /// Steps from one sample with points to the next.
    fn steps(&self) -> impl Iterator<Item = [&Sample; 2]> {
        let with_points = |t: &usize| self.samples[*t].has_points();
        (0..self.samples.len()).filter(with_points).filter_map(|t| {
            let next = self.after(t, 1).filter(|next| self.samples[*next].has_points())?;
            Some([&self.samples[t], &self.samples[next]])
        })
    }

    fn must_stand(&self, camera_names: &[String]) -> Result<()> {
        let n_steps = self.steps().count() as f64;
        for (camera, name) in camera_names.iter().enumerate() {
            let ways = self.steps().filter_map(|[now, next]| {
                let way = distance(now.eyes.get(camera)?, next.eyes.get(camera)?);
                (way > EYE_MOVES_M).then_some(way)
            });
            let ways: Vec<f32> = ways.collect();
            if ways.len() as f64 > EYE_MOVES_SHARE * n_steps {
                let most = 100.0 * ways.iter().fold(0.0f32, |most, way| most.max(*way));
                return Err(moving(
                    &self.path,
                    format!("by tf, camera '{name}' moves, up to {most:.0} cm in a step"),
                ));
            }
        }
        let (mut n_all, mut n_told) = (0, 0);
        for [now, _] in self.steps() {
            let Some(flow) = &now.flow else { continue };
            // Of all that is seen but the robot, and of what lies on the support plane: how many points,
            // and how many that surely move.
            let (mut all, mut on_plane) = ([0usize; 2], [0usize; 2]);
            for (i, motion) in flow.motions.iter().enumerate() {
                if now.on_links[i] != NO_LINK {
                    continue;
                }
                let moves = flow.confidences[i] > SURE && length(motion) > MOVING_M;
                let count =
                    |of: &mut [usize; 2]| (of[0], of[1]) = (of[0] + 1, of[1] + usize::from(moves));
                count(&mut all);
                let height_m = now.support_m.map(|z| now.positions[i][2] - z);
                if height_m.is_some_and(|height_m| height_m.abs() < CLEARANCE_M) {
                    count(&mut on_plane);
                }
            }
            let mostly = |[n, n_moving]: [usize; 2]| n_moving as f64 > ALL_SHARE * n as f64;
            n_told += 1;
            n_all += usize::from(mostly(all) && (on_plane[0] == 0 || mostly(on_plane)));
        }
        if n_all as f64 > ALL_STEPS * f64::from(n_told) {
            let problem = format!(
                "nearly all that the cameras see moves, in {n_all} of {n_told} steps: a camera moves, \
                 and tf does not tell"
            );
            return Err(moving(&self.path, problem));
        }
        Ok(())
    }

    fn lag_secs(&self) -> Result<Option<f64>> {
        let Some(robot) = &self.robot else { return Ok(None) };
        let change = |[a, b]: [usize; 2]| {
            let joints = self.samples[a].joints.iter().zip(&self.samples[b].joints);
            joints.fold(0.0f64, |most, (a, b)| most.max((a - b).abs()))
        };
        let mut fast: Vec<(f64, usize)> = (0..self.samples.len())
            .filter(|&t| self.samples[t].has_points() && self.samples[t].mount.is_some())
            .filter_map(|t| Some((change([self.before(t).ok()?, self.after(t, 1)?]) / 2.0, t)))
            .filter(|(change, _)| *change > LAG_LEAST_CHANGE)
            .collect();
        fast.sort_by(|a, b| b.0.total_cmp(&a.0));
        fast.truncate(LAG_FRAMES);
        if fast.len() < LAG_LEAST_FRAMES {
            return Ok(None);
        }
        let lags = (-LAG_STEPS..=LAG_STEPS).map(|lag| f64::from(lag) * LAG_STEP_SECS);
        let mut fits: Vec<(f64, f64)> = lags.map(|secs| (secs, 0.0)).collect();
        let mut search = LagSearch::new(robot.clone());
        for &(_, t) in &fast {
            let far = fits.iter().map(|(secs, _)| search.distances(self, t, *secs));
            let far = far.collect::<Result<Vec<_>>>()?;
            for i in 0..far[0].len() {
                // What no camera sees, wherever the robot is taken to be, tells nothing.
                if far.iter().any(|far| far[i] < LAG_SEEN_M) {
                    fits.iter_mut().zip(&far).for_each(|(fit, far)| fit.1 += f64::from(far[i]));
                }
            }
        }
        Ok(best(&fits))
    }

    /// The joints `secs` after sample `t`, between the samples about that time; its ends beyond them.
    fn joints_at(&self, t: usize, secs: f64, out: &mut Vec<f64>) {
        let now = self.samples[t].stamp;
        let n = self.samples[t].joints.len();
        let known = self.samples.iter().filter(|sample| sample.joints.len() == n);
        let known = known.map(|sample| (sample.stamp.secs_since(now), &sample.joints));
        let (mut before, mut after) = (None, None);
        for (at, joints) in known {
            if at <= secs {
                before = Some((at, joints));
            } else if after.is_none() {
                after = Some((at, joints));
            }
        }
        out.clear();
        match (before, after) {
            (Some((t0, a)), Some((t1, b))) => {
                let share = (secs - t0) / (t1 - t0).max(1e-9);
                out.extend(a.iter().zip(b).map(|(a, b)| a + share * (b - a)));
            }
            (Some((_, joints)), None) | (None, Some((_, joints))) => out.extend(joints),
            (None, None) => out.extend(&self.samples[t].joints),
        }
    }
}

/// Memory of a search for the lag.
struct LagSearch {
    robot: Robot,
    joints: Vec<f64>,
    row: Vec<Vec3>,
    queries: Vec<Vec3>,
    found: Vec<u32>,
    neighbors: Neighbors,
}

impl LagSearch {
    fn new(robot: Robot) -> Self {
        let (joints, found, neighbors) = (Vec::new(), Vec::new(), Neighbors::default());
        Self { robot, joints, row: Vec::new(), queries: Vec::new(), found, neighbors }
    }

    /// Distances (m) of the robot's points, with its joints of `secs` later, to what was seen.
    fn distances(&mut self, episode: &Episode, t: usize, secs: f64) -> Result<Vec<f32>> {
        let sample = &episode.samples[t];
        let Some(mount) = &sample.mount else { return Ok(Vec::new()) };
        episode.joints_at(t, secs, &mut self.joints);
        self.robot.set_mount(mount)?;
        self.robot.place(&self.joints, &mut self.row)?;
        self.queries.clear();
        self.queries.extend(self.row.iter().step_by(LAG_STRIDE));
        self.neighbors.nearest(&sample.positions, &self.queries, &mut self.found)?;
        let nearest = self.queries.iter().zip(&self.found);
        let far = nearest.map(|(p, &i)| distance(p, &sample.positions[i as usize]).min(LAG_FAR_M));
        Ok(far.collect())
    }
}

/// The lag that fits best, between the steps by a parabola; 0 where no other fits much better than none.
fn best(fits: &[(f64, f64)]) -> Option<f64> {
    let (at, least) = fits.iter().enumerate().min_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
    let none = fits.get(fits.len() / 2)?.1;
    if least.1 > LAG_GAIN * none {
        return Some(0.0);
    }
    let sides = at.checked_sub(1).and_then(|before| Some((fits.get(before)?, fits.get(at + 1)?)));
    let beside = sides.map_or(0.0, |(before, after)| {
        let curve = before.1 - 2.0 * least.1 + after.1;
        (0.5 * (before.1 - after.1) / curve.max(1e-12)).clamp(-0.5, 0.5)
    });
    Some(least.0 + beside * LAG_STEP_SECS)
}

/// Height at which each camera sees most points about the support plane (world z, m).
fn planes_m(samples: &[Sample], camera_names: &[String]) -> Vec<(String, f32)> {
    let n_slices = (2.0 * PLANE_REACH_M / SLICE_M) as usize;
    let mut counts: Vec<Vec<usize>> = Vec::new();
    let Some(plane) = samples.iter().find_map(|sample| sample.support_m) else { return Vec::new() };
    for sample in samples {
        for (p, &camera) in sample.positions.iter().zip(&sample.seen_by) {
            let slice = ((p[2] - plane + PLANE_REACH_M) / SLICE_M).floor();
            if (0.0..n_slices as f32).contains(&slice) {
                let n_cameras = counts.len().max(usize::from(camera) + 1);
                counts.resize_with(n_cameras, || vec![0; n_slices]);
                counts[usize::from(camera)][slice as usize] += 1;
            }
        }
    }
    let height = |counts: &Vec<usize>| {
        let (slice, most) = counts.iter().enumerate().max_by_key(|(_, n)| **n)?;
        let middle = (slice as f32 + 0.5) * SLICE_M - PLANE_REACH_M;
        (*most >= PLANE_LEAST).then_some(plane + middle)
    };
    let told = |(name, counts): (&String, _)| Some((name.clone(), height(counts)?));
    camera_names.iter().zip(&counts).filter_map(told).collect()
}

fn moving(path: &Path, problem: String) -> Error {
    let remedy = "hindsight takes cameras that stand still: record with such ones";
    Error::Bag { path: path.to_owned(), problem: format!("{problem}; {remedy}") }
}

#[cfg(test)]
mod tests;
