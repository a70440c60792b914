//! Patches of the cloud, held against the cloud before under a motion, and registered with it.

use super::grid::{Grid, Moments};
use super::rigid::{Normal, Rigid};
use super::{Vec3, dot, minus, plus};

/// Radii of the kernels over positions (m): the wide one to find, the narrow one to judge.
pub(super) const RADII_M: [f32; 2] = [0.045, 0.025];
pub(super) const NARROW: usize = RADII_M.len() - 1;
/// Gauss-Newton steps at each radius.
const STEPS: usize = 2;
/// Residuals count up to this share of the kernel's radius.
const TOLERANCE: f32 = 0.5;
/// Damping of rotation and shift, as shares of the weight: keeps still what nothing tells.
const DAMPING: [f32; 2] = [0.03, 0.01];
/// Largest turn in one step (rad).
const MAX_TURN_RAD: f32 = 0.3;
/// Radius of a patch (m): within it, the points of an object are most.
const PATCH_M: f32 = 0.08;
/// Points of a patch that are looked at.
const MAX_PATCH: usize = 16;
/// Points about a seed that these are spread over.
const MAX_NEAR: usize = 1024;
/// Radius of a lump (m), and how far it may have moved.
const LUMP_M: f32 = 0.08;
const REACH_M: f32 = 0.14;
const LUMP_STEPS: usize = 3;
/// Scatter of the points of a lump about its mean, per axis or so (m).
const LUMP_SCATTER_M: f32 = 0.045;
/// Masses that differ by up to this factor count as equal.
const MASS_RATIO: f32 = 1.6;
/// Kernel mass below which a lump counts as lost.
const MIN_MASS: f32 = 0.5;

/// What patches are registered in.
pub(super) struct Context<'a> {
    pub(super) now: &'a Grid,
    pub(super) before: &'a Grid,
    pub(super) raised: &'a Grid,
    /// Whether each of its points could not be seen one step back.
    pub(super) hidden: &'a [bool],
}

/// Some points of a ball off the support plane, with their weights.
#[derive(Debug, Default, Clone)]
pub(super) struct Patch {
    n: usize,
    points: [Member; MAX_PATCH],
}

/// A point of a patch.
#[derive(Debug, Default, Clone, Copy)]
struct Member {
    position: Vec3,
    color: Vec3,
    weight: f32,
    is_hidden: bool,
    /// Its moments in the cloud now under the kernels of [`RADII_M`].
    here: [Moments; RADII_M.len()],
}

impl Patch {
    fn points(&self) -> &[Member] {
        &self.points[..self.n]
    }

    /// Share that could not be seen one step back.
    pub(super) fn hidden(&self) -> f32 {
        let (mut hidden, mut total) = (0.0, 0.0);
        for Member { weight, is_hidden, .. } in self.points() {
            hidden += if *is_hidden { *weight } else { 0.0 };
            total += weight;
        }
        hidden / total.max(1e-6)
    }
}

impl Context<'_> {
    pub(super) fn gather(&self, center: &Vec3, patch: &mut Patch) {
        let (mut near, mut n_near) = ([0; MAX_NEAR], 0);
        self.raised.near(center, PATCH_M, |place| {
            if n_near < MAX_NEAR {
                near[n_near] = place;
                n_near += 1;
            }
        });
        patch.n = n_near.min(MAX_PATCH);
        for k in 0..patch.n {
            let place = near[k * n_near / patch.n];
            let (position, color) = self.raised.point(place);
            let is_hidden = self.hidden[place];
            let d = minus(&position, center);
            let weight = 1.0 - 0.8 * dot(&d, &d) / (PATCH_M * PATCH_M);
            let mut here = [Moments::default(); RADII_M.len()];
            for scale in 0..RADII_M.len() {
                here[scale] = self.now.moments(&position, &color, RADII_M[scale]);
            }
            patch.points[k] = Member { position, color, weight, is_hidden, here };
        }
    }

    /// Where `pose` takes a point, what is left of it there, and the weight of the match.
    pub(super) fn residual(
        &self,
        pose: &Rigid,
        point: (&Vec3, &Vec3),
        here: &Moments,
        radius: f32,
    ) -> Match {
        let there = pose.apply(point.0);
        let (offset, mass) = self.before.mean(&there, point.1, radius);
        let residual = minus(&offset, &pose.turn(&here.offset));
        let tolerance = TOLERANCE * radius;
        let near = (1.0 - dot(&residual, &residual) / (tolerance * tolerance)).max(0.0);
        let share = (1.3 * mass / here.mass.max(1e-3)).min(1.0);
        Match { there, residual, found: near * share }
    }

    /// Cost of a motion of a patch, and the share of it found again.
    pub(super) fn cost(&self, patch: &Patch, pose: &Rigid) -> (f32, f32) {
        let (mut found, mut total) = (0.0, 0.0);
        for Member { position, color, weight, here, .. } in patch.points() {
            let here = &here[NARROW];
            found += weight * self.residual(pose, (position, color), here, RADII_M[NARROW]).found;
            total += weight;
        }
        let found = found / total.max(1e-6);
        (1.0 - found, found)
    }

    /// Gauss-Newton steps of the patch about `center` under the kernel `scale`.
    pub(super) fn refine(&self, patch: &Patch, center: &Vec3, pose: &mut Rigid, scale: usize) {
        self.refine_all(|| std::iter::once(patch), center, pose, scale);
    }

    /// As [`Self::refine`], for patches that move as one.
    pub(super) fn refine_all<'p, I: Iterator<Item = &'p Patch>>(
        &self,
        patches: impl Fn() -> I,
        center: &Vec3,
        pose: &mut Rigid,
        scale: usize,
    ) {
        let radius = RADII_M[scale];
        for _ in 0..STEPS {
            let middle = pose.apply(center);
            let mut normal = Normal::default();
            for Member { position, color, weight, here, .. } in patches().flat_map(Patch::points) {
                let here = &here[scale];
                let Match { there, residual, found } =
                    self.residual(pose, (position, color), here, radius);
                let stiffness = pose.conjugate(&here.stiffness);
                let lever = minus(&there, &middle);
                normal.add(weight * found, &lever, &stiffness, &residual);
            }
            let Some((turn, shift)) = normal.solve(DAMPING) else { return };
            *pose = pose.then(&at_most(turn, MAX_TURN_RAD), &at_most(shift, radius), &middle);
        }
    }

    /// Squared shift of the lump about a point in units of its scatter; infinite if it changed.
    pub(super) fn unrest(&self, position: &Vec3, color: &Vec3) -> f32 {
        let (offset, _) = self.now.mean(position, color, LUMP_M);
        let center = plus(position, &offset);
        let (here, mass) = self.now.mean(&center, color, LUMP_M);
        let (there, mass_there) = self.before.mean(&center, color, LUMP_M);
        if !(1.0 / MASS_RATIO..=MASS_RATIO).contains(&(mass_there / mass.max(1e-6))) {
            return f32::INFINITY;
        }
        let variance = LUMP_SCATTER_M * LUMP_SCATTER_M * (1.0 / mass + 1.0 / mass_there);
        let d = minus(&here, &there);
        dot(&d, &d) / variance
    }

    /// Translation of the lump of like colour about a point.
    pub(super) fn track(&self, position: &Vec3, color: &Vec3) -> Vec3 {
        let (offset, _) = self.now.mean(position, color, LUMP_M);
        let center = plus(position, &offset);
        let mut shift = [0.0; 3];
        for step in 0..=LUMP_STEPS {
            let radius = if step == 0 { REACH_M } else { LUMP_M };
            let (here, _) = self.now.mean(&center, color, radius);
            let from = minus(&center, &shift);
            let (there, mass) = self.before.mean(&from, color, radius);
            if mass < MIN_MASS {
                break;
            }
            shift = minus(&plus(&center, &here), &plus(&from, &there));
        }
        shift
    }
}

/// A point held against the cloud before.
pub(super) struct Match {
    there: Vec3,
    residual: Vec3,
    /// 0 (nothing like it) to 1.
    pub(super) found: f32,
}

fn at_most(v: Vec3, bound: f32) -> Vec3 {
    let length = dot(&v, &v).sqrt();
    if length > bound { v.map(|x| x * bound / length) } else { v }
}
