//! Whether the rig of a recording is as hindsight takes it to be: cameras of which tf tells where they are; what
//! else may be wrong, `forecloud check` finds.

use crate::flow_labels::SURE;
use forecloud::base::geometry::length;
use forecloud::predict::rig::{Item, LAG, PLANE};
use forecloud::robot::kinematics::{MeshSearch, NO_LINK};
use forecloud::{Error, Result};
use forecloud_bag::recording::Recording;
use forecloud_eval::rig_check::check_first;

use super::config::MOVING_M;
use super::episode::{Episode, Sample};
use super::hindsight::CLEARANCE_M;
use super::moving_camera::PoseErrors;

/// Share of the points that must surely move for all to move, those on the support plane among them, and the
/// share of all steps of which that may be said.
const ALL_SHARE: f64 = 0.6;
const ALL_STEPS: f64 = 0.5;
/// What a rig is checked by: the first so many seconds of a recording.
const CHECKED_SECS: f64 = 30.0;

/// Planes farther apart are two: a table and a floor (m).
const SAME_PLANE_M: f32 = 0.08;

/// What there is to tell of a recording's rig.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rig {
    /// By how much the joints must be taken later (s) to lie where the cameras see the robot; none where
    /// it hardly moves, or no other time fits much better than their own.
    pub lag_secs: Option<f64>,
    /// Height (world z, m) of the support plane as each camera sees it, by its name; of those that see
    /// enough of it.
    pub planes_m: Vec<(String, f32)>,
    /// By how much tf of moving cameras errs; none where none moves.
    pub pose_errors: Option<PoseErrors>,
    /// What else is suspicious ([`forecloud_eval::rig_check`]).
    pub findings: Vec<Item>,
}

impl Rig {
    /// How far the cameras' planes lie apart (m); none of fewer than two.
    pub fn apart_m(&self) -> Option<f32> {
        let seen = || self.planes_m.iter().map(|(_, height_m)| *height_m);
        let (low, high) = (seen().reduce(f32::min)?, seen().reduce(f32::max)?);
        (seen().count() > 1).then_some(high - low)
    }

    /// What the check finds in the first seconds of a recording; nothing where it can't be checked.
    pub(super) fn of(recording: &Recording, meshes: &MeshSearch) -> Self {
        let Ok(report) = check_first(recording, meshes, CHECKED_SECS) else {
            return Self::default();
        };
        // These two are told by their medians.
        let is_other = |item: &&Item| item.what != LAG && !item.what.starts_with(PLANE);
        let findings = report.findings().filter(is_other).cloned().collect();
        let planes_m = report.planes_m.into_iter().map(|(name, z)| (name, z as f32));
        let mut planes_m: Vec<(String, f32)> = planes_m.collect();
        let mut heights: Vec<f32> = planes_m.iter().map(|(_, z)| *z).collect();
        heights.sort_unstable_by(f32::total_cmp);
        let middle = heights.get(heights.len() / 2).copied().unwrap_or_default();
        planes_m.retain(|(_, z)| (z - middle).abs() <= SAME_PLANE_M);
        Self { lag_secs: report.lag_secs, planes_m, findings, pose_errors: None }
    }
}

impl Episode {
    /// Steps from one sample with points to the next.
    fn steps(&self) -> impl Iterator<Item = [&Sample; 2]> {
        let with_points = |t: &usize| self.samples[*t].has_points();
        (0..self.samples.len()).filter(with_points).filter_map(|t| {
            let next = self.after(t, 1).filter(|next| self.samples[*next].has_points())?;
            Some([&self.samples[t], &self.samples[next]])
        })
    }

    /// What there is to tell of its rig; none where it was not looked at.
    pub(super) fn rig(&self) -> Option<&Rig> {
        (self.in_hindsight || self.rig != Rig::default()).then_some(&self.rig)
    }

    /// Checks that no camera moves that tf does not tell of; the flows must have been found.
    ///
    /// # Errors
    /// [`Error::Bag`] if nearly all that is seen moves.
    pub(super) fn must_be_told(&self) -> Result<()> {
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
                "nearly all that the cameras see moves, in {n_all} of {n_told} steps: a camera moves, and tf does \
                 not tell, or is more than 6 cm off; publish where it is, or record with one that stands still"
            );
            return Err(Error::Bag { path: self.path.clone(), problem });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
