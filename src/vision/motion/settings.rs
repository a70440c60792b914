//! What the motion estimate is tuned by.

use serde::{Deserialize, Serialize};

use super::patch::PATCH_CAPACITY;
use super::sums::Kernel;
use crate::vision::particles::SUPPORT_M;
use crate::{Error, Result};

/// Settings of the motion estimate; `Default` is the only source of values. What each is worth
/// stands in `docs/src/notebook/motion.md`. Lengths are in metres, colours 0..1 a channel, costs 0 (all of a
/// patch found again) to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Side of the cells of the clouds' grids (m): about the radius of the kernels.
    pub cell_m: f32,
    /// What lies this near to the support plane (m), above or below, is taken to rest. Narrower than
    /// [`Settings::body_clearance_m`]: what rests is not looked at again.
    pub rest_band_m: f32,
    /// By how much nearer to the camera another surface hides a point (m): more than a cell of a
    /// slanting one spans.
    pub shadow_gap_m: f32,

    /// Radii of the kernels over positions (m): the wide one to find, the narrow one to judge.
    pub kernel_radii_m: [f32; 2],
    /// Radius of the kernels over colours.
    pub kernel_color: f32,
    /// By how much geometry alone decides whether a point is found again, with colour the rest of it.
    pub geometry_share: f32,
    /// Radius of a patch (m): within it, the points of an object are most.
    pub patch_radius_m: f32,
    /// Points of a patch that are looked at; at most 16.
    pub patch_points: usize,
    /// By what share a point at a patch's rim counts less than one in its middle; 1 at most.
    pub patch_falloff: f32,
    /// Share of the kernel's radius up to which residuals count.
    pub residual_tolerance: f32,
    /// Factor on the kernel mass found, for what a sparser sample lacks, before it is held against
    /// the mass wanted.
    pub mass_allowance: f32,
    /// Gauss-Newton steps at each radius.
    pub newton_steps: usize,
    /// Damping of rotation and of shift, as shares of the weight: keeps still what nothing tells.
    pub damping: [f32; 2],
    /// Length that makes turns into ways (m), so that all six unknowns are alike.
    pub turn_arm_m: f32,
    /// Largest turn in one step (rad).
    pub turn_limit_rad: f32,

    /// Radius of a lump of like colour (m).
    pub lump_radius_m: f32,
    /// How far a lump may have moved (m).
    pub lump_reach_m: f32,
    /// The same, where all motions that were found so fit ill (m).
    pub lump_far_m: f32,
    /// Steps of a lump's tracking after the first, wide one.
    pub lump_steps: usize,
    /// Scatter of a lump's points about its mean, per axis or so (m).
    pub lump_scatter_m: f32,
    /// Factor up to which the masses of a lump then and now count as equal; 1 at least.
    pub lump_mass_ratio: f32,
    /// Kernel mass below which a lump counts as lost.
    pub lump_min_mass: f32,

    /// Distance of seeds (m): one a cell of this size.
    pub seed_spacing_m: f32,
    /// Points in such a cell below which kernels, patches and these cells grow: in large scenes clouds
    /// are sparse, and their samples differ more than what moves.
    pub seed_points: f32,
    /// Factor by which they grow at most; 1 at least.
    pub coarsest: f32,
    /// Rounds in which neighbouring seeds exchange what they found, and settle.
    pub exchange_rounds: usize,
    /// How far seeds look for neighbours to exchange with (m).
    pub exchange_reach_m: f32,
    /// By how much lower the cost of another motion must be than that of rest.
    pub rest_bonus: f32,
    /// The same, more, of a patch that could not be seen one step back, so that rest does not find
    /// it again: most of what comes into view is at rest.
    pub hidden_bonus: f32,
    /// Share of a patch from which on it counts as one that came into view.
    pub hidden_share: f32,
    /// Confidence in the rest of what came into view, at most.
    pub hidden_confidence: f32,
    /// A lump that moved by less than these shares of its scatter, squared, is at rest: for sure, or
    /// if its points are found again at [`Settings::still_cost`].
    pub still_unrest: [f32; 2],
    /// Cost of rest below which a lump that moved a little is at rest.
    pub still_cost: f32,
    /// How far from a point on the robot a patch may move as its link (m).
    pub link_reach_m: f32,
    /// Cost below which a patch surely moves as its link.
    pub link_cost: f32,
    /// Patches this near to a point on the robot (m) are not searched for on their own.
    pub on_link_m: f32,
    /// Motions below this (m) are searched for from rest, too, while they fit ill.
    pub slow_m: f32,
    /// Cost above which a motion fits a patch ill.
    pub ill_cost: f32,

    /// What it costs a particle to take a seed's motion that does not find it again.
    pub assign_lost: f32,
    /// What it costs a particle to take the motion of a seed one spacing away.
    pub assign_distance: f32,
    /// Share of a patch found again below which its motion is unknown.
    pub min_found: f32,

    /// Distance below which seeds of like colour hang together, and are asked as one (m).
    pub group_reach_m: f32,
    /// Difference in each channel below which seeds look alike.
    pub group_color: f32,
    /// Motions of its own seeds that a group is asked for; at most 2.
    pub group_motions: usize,
    /// How far apart these take its middle (m).
    pub group_apart_m: f32,
    /// Seeds of a group from which on they are registered together.
    pub group_min_seeds: usize,
    /// Seeds that are registered together, at most.
    pub group_max_seeds: usize,
    /// Seeds that a group is asked by, at most.
    pub group_max_votes: usize,
    /// Share of a patch found again from which on a group is asked for its motion.
    pub group_found: f32,
    /// Share of what rest costs a group that another motion may cost.
    pub group_better: f32,
    /// Share of what rest costs a group that looks alike that the motion it took with others may cost: a small
    /// one, and a large one, which nothing tells of but its edges.
    pub group_taken: [f32; 2],
    /// Area from which on a group is large (m²).
    pub group_large_m2: f32,
    /// By how much a motion that the group agrees on may fit a patch worse than its own: a group that hangs
    /// together, then one that looks alike besides.
    pub group_slack: [f32; 2],

    /// Distance below which particles belong together (m), if they look or move alike.
    pub body_reach_m: f32,
    /// Difference in each channel below which particles look alike.
    pub body_color: f32,
    /// Difference below which motions are alike (m), with [`Settings::body_motion_share`].
    pub body_motion_m: f32,
    /// The same as a share of the faster motion; the two add up.
    pub body_motion_share: f32,
    /// What is this near to the robot (m) is of the robot, and links no body to it.
    pub body_robot_m: f32,
    /// What lies less than this above the support plane (m), or below it, is of no body: what counts
    /// as the plane where particles are drawn.
    pub body_clearance_m: f32,
    /// Particles that bodies are made of at most; any others follow the nearest of these.
    pub body_anchors: usize,
    /// Anchors of a body from which on it is fitted: else each of its particles keeps its own motion.
    pub body_min_fit: usize,
    /// Rounds of a body's robust fit.
    pub body_rounds: usize,
    /// Error from which on an anchor counts less in the fit (m).
    pub body_soft_m: f32,
    /// Weight in the fit of an anchor whose motion is unknown.
    pub body_min_weight: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cell_m: 0.04,
            rest_band_m: 0.006,
            shadow_gap_m: 0.06,
            kernel_radii_m: [0.045, 0.025],
            kernel_color: 0.25,
            geometry_share: 0.6,
            patch_radius_m: 0.08,
            patch_points: 16,
            patch_falloff: 0.8,
            residual_tolerance: 0.5,
            mass_allowance: 1.3,
            newton_steps: 2,
            damping: [0.03, 0.01],
            turn_arm_m: 0.05,
            turn_limit_rad: 0.3,
            lump_radius_m: 0.08,
            lump_reach_m: 0.14,
            lump_far_m: 0.28,
            lump_steps: 3,
            lump_scatter_m: 0.045,
            lump_mass_ratio: 1.6,
            lump_min_mass: 0.5,
            seed_spacing_m: 0.04,
            seed_points: 12.0,
            coarsest: 2.0,
            exchange_rounds: 2,
            exchange_reach_m: 0.04,
            rest_bonus: 0.3,
            hidden_bonus: 0.3,
            hidden_share: 0.25,
            hidden_confidence: 0.3,
            still_unrest: [0.04, 0.6],
            still_cost: 0.5,
            link_reach_m: 0.08,
            link_cost: 0.5,
            on_link_m: 0.05,
            slow_m: 0.02,
            ill_cost: 0.5,
            assign_lost: 0.5,
            assign_distance: 0.064,
            min_found: 0.1,
            group_reach_m: 0.06,
            group_color: 0.12,
            group_motions: 2,
            group_apart_m: 0.001,
            group_min_seeds: 3,
            group_max_seeds: 12,
            group_max_votes: 24,
            group_found: 0.3,
            group_better: 0.95,
            group_taken: [1.1, 0.92],
            group_large_m2: 0.1,
            group_slack: [0.3, 0.15],
            body_reach_m: 0.04,
            body_color: 0.12,
            body_motion_m: 0.004,
            body_motion_share: 0.15,
            body_robot_m: 0.012,
            body_clearance_m: SUPPORT_M,
            body_anchors: 1024,
            body_min_fit: 4,
            body_rounds: 5,
            body_soft_m: 0.002,
            body_min_weight: 1e-3,
        }
    }
}

impl Settings {
    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names one that is not above 0, not finite or out of its range.
    pub fn validate(&self) -> Result<()> {
        let wrong = |key: &str, problem: String| {
            Err(Error::Config { key: format!("motion.{key}"), problem })
        };
        let values = serde_json::to_value(self).unwrap_or_default();
        for (key, value) in values.as_object().into_iter().flatten() {
            let one = std::slice::from_ref(value);
            let numbers = value.as_array().map_or(one, Vec::as_slice);
            // What is not finite is null in JSON.
            if !numbers.iter().all(|x| x.as_f64().is_some_and(|x| x > 0.0)) {
                return wrong(key, format!("{value} is not above 0 and finite"));
            }
        }
        for (key, value, most) in [
            ("patch_points", self.patch_points, PATCH_CAPACITY),
            ("group_motions", self.group_motions, super::consensus::N_OWN),
        ] {
            if value > most {
                return wrong(key, format!("{value} is more than {most}"));
            }
        }
        for (key, share) in
            [("patch_falloff", self.patch_falloff), ("geometry_share", self.geometry_share)]
        {
            if share > 1.0 {
                return wrong(key, format!("{share} is no share"));
            }
        }
        for (key, value) in [("lump_mass_ratio", self.lump_mass_ratio), ("coarsest", self.coarsest)]
        {
            if value < 1.0 {
                return wrong(key, format!("{value} is less than 1"));
            }
        }
        Ok(())
    }

    /// By what lengths grow where the points are too few for them: `n_points` lie in `n_cells` cells of
    /// [`Settings::seed_spacing_m`], as on surfaces.
    pub(super) fn coarsening(&self, n_points: usize, n_cells: usize) -> f32 {
        let factor = (self.seed_points * n_cells as f32 / (n_points as f32).max(1.0)).sqrt();
        factor.clamp(1.0, self.coarsest)
    }

    /// These with the lengths of kernels, patches and seeds times `factor`.
    pub(super) fn scaled(&self, factor: f32) -> Self {
        Self {
            cell_m: factor * self.cell_m,
            kernel_radii_m: self.kernel_radii_m.map(|radius| factor * radius),
            patch_radius_m: factor * self.patch_radius_m,
            seed_spacing_m: factor * self.seed_spacing_m,
            exchange_reach_m: factor * self.exchange_reach_m,
            group_reach_m: factor * self.group_reach_m,
            ..*self
        }
    }

    /// The kernel over positions of this radius (m), and over colours.
    pub(super) fn kernel(&self, radius_m: f32) -> Kernel {
        Kernel { radius_m, color: self.kernel_color }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_named() {
        let told = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.validate().err().map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(told(|_| ()), "");
        let told_cell = told(|s| s.cell_m = 0.0);
        assert_eq!(told_cell, "motion.cell_m: 0.0 is not above 0 and finite");
        assert!(told(|s| s.damping[1] = f32::NAN).starts_with("motion.damping: "));
        assert!(told(|s| s.exchange_reach_m = f32::INFINITY).contains("motion.exchange_reach_m"));
        assert_eq!(told(|s| s.patch_points = 17), "motion.patch_points: 17 is more than 16");
        assert_eq!(told(|s| s.group_motions = 3), "motion.group_motions: 3 is more than 2");
        assert_eq!(told(|s| s.patch_falloff = 1.5), "motion.patch_falloff: 1.5 is no share");
        assert_eq!(told(|s| s.lump_mass_ratio = 0.5), "motion.lump_mass_ratio: 0.5 is less than 1");
    }
}
