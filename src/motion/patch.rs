//! Patches of the cloud, held against the cloud before under a motion, and registered with it.

use super::grid::{Grid, Moments};
use super::normal::Normal;
use super::settings::Settings;
use crate::geometry::{Rigid, Vec3, dot, length, minus, plus, squared_distance};

/// Radii of kernels, by place in [`Settings::kernel_radii_m`], and which of them is the narrow one.
pub(super) const N_RADII: usize = 2;
pub(super) const NARROW: usize = N_RADII - 1;
/// Room for the points of a patch.
pub(super) const PATCH_CAPACITY: usize = 16;
/// Room for the points about a seed that these are spread over.
const NEAR_CAPACITY: usize = 1024;

/// What patches are registered in.
pub(super) struct Context<'a> {
    pub(super) settings: &'a Settings,
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
    points: [Member; PATCH_CAPACITY],
}

/// A point of a patch.
#[derive(Debug, Default, Clone, Copy)]
struct Member {
    position: Vec3,
    color: Vec3,
    weight: f32,
    is_hidden: bool,
    /// Its moments in the cloud now under each kernel.
    here: [Moments; N_RADII],
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
        let Settings { patch_radius_m, patch_falloff, kernel_radii_m, .. } = *self.settings;
        let (mut near, mut n_near) = ([0; NEAR_CAPACITY], 0);
        self.raised.near(center, patch_radius_m, |place| {
            if n_near < NEAR_CAPACITY {
                near[n_near] = place;
                n_near += 1;
            }
        });
        patch.n = n_near.min(self.settings.patch_points);
        for k in 0..patch.n {
            let place = near[k * n_near / patch.n];
            let (position, color) = self.raised.point(place);
            let is_hidden = self.hidden[place];
            let falloff = patch_falloff * squared_distance(&position, center);
            let weight = 1.0 - falloff / (patch_radius_m * patch_radius_m);
            let mut here = [Moments::default(); N_RADII];
            for (here, radius_m) in here.iter_mut().zip(kernel_radii_m) {
                *here = self.now.moments(&position, &color, self.settings.kernel(radius_m));
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
        let settings = self.settings;
        let (offset, mass) = self.before.mean(&there, point.1, settings.kernel(radius));
        let residual = minus(&offset, &pose.turn(&here.offset));
        let tolerance = settings.residual_tolerance * radius;
        let near = (1.0 - dot(&residual, &residual) / (tolerance * tolerance)).max(0.0);
        let share = (settings.mass_allowance * mass / here.mass.max(1e-3)).min(1.0);
        Match { there, residual, found: near * share }
    }

    /// Cost of a motion of a patch, and the share of it found again.
    pub(super) fn cost(&self, patch: &Patch, pose: &Rigid) -> (f32, f32) {
        let (mut found, mut total) = (0.0, 0.0);
        let radius = self.settings.kernel_radii_m[NARROW];
        for Member { position, color, weight, here, .. } in patch.points() {
            found += weight * self.residual(pose, (position, color), &here[NARROW], radius).found;
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
        let settings = self.settings;
        let radius = settings.kernel_radii_m[scale];
        for _ in 0..settings.newton_steps {
            let middle = pose.apply(center);
            let mut normal = Normal::new(settings.turn_arm_m);
            for Member { position, color, weight, here, .. } in patches().flat_map(Patch::points) {
                let here = &here[scale];
                let Match { there, residual, found } =
                    self.residual(pose, (position, color), here, radius);
                let stiffness = pose.conjugate(&here.stiffness);
                let lever = minus(&there, &middle);
                normal.add(weight * found, &lever, &stiffness, &residual);
            }
            let Some((turn, shift)) = normal.solve(settings.damping) else { return };
            *pose = pose.then(
                &at_most(turn, settings.turn_limit_rad),
                &at_most(shift, radius),
                &middle,
            );
        }
    }

    /// Squared shift of the lump about a point in units of its scatter; infinite if it changed.
    pub(super) fn unrest(&self, position: &Vec3, color: &Vec3) -> f32 {
        let Settings { lump_radius_m, lump_scatter_m, lump_mass_ratio: ratio, .. } = *self.settings;
        let lump = self.settings.kernel(lump_radius_m);
        let (offset, _) = self.now.mean(position, color, lump);
        let center = plus(position, &offset);
        let (here, mass) = self.now.mean(&center, color, lump);
        let (there, mass_there) = self.before.mean(&center, color, lump);
        if !(1.0 / ratio..=ratio).contains(&(mass_there / mass.max(1e-6))) {
            return f32::INFINITY;
        }
        let variance = lump_scatter_m * lump_scatter_m * (1.0 / mass + 1.0 / mass_there);
        squared_distance(&here, &there) / variance
    }

    /// Translation of the lump of like colour about a point.
    pub(super) fn track(&self, position: &Vec3, color: &Vec3) -> Vec3 {
        let Settings { lump_radius_m, lump_reach_m, lump_steps, .. } = *self.settings;
        let lump = self.settings.kernel(lump_radius_m);
        let (offset, _) = self.now.mean(position, color, lump);
        let center = plus(position, &offset);
        let mut shift = [0.0; 3];
        for step in 0..=lump_steps {
            let kernel = if step == 0 { self.settings.kernel(lump_reach_m) } else { lump };
            let (here, _) = self.now.mean(&center, color, kernel);
            let from = minus(&center, &shift);
            let (there, mass) = self.before.mean(&from, color, kernel);
            if mass < self.settings.lump_min_mass {
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
    let length = length(&v);
    if length > bound { v.map(|x| x * bound / length) } else { v }
}
