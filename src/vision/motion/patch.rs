//! Patches of the cloud, held against the cloud before under a motion, and registered with it.

use super::grid::{Grid, Mean, Moments};
use super::normal::Normal;
use super::settings::Settings;
use crate::base::geometry::{Rigid, Vec3, dot, length, minus, plus, squared_distance};

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
    /// Sum of the weights.
    total: f32,
    /// Whether the points' moments are known: registration takes them, costs do not.
    is_measured: bool,
}

/// A point of a patch.
#[derive(Debug, Default, Clone, Copy)]
struct Member {
    position: Vec3,
    color: Vec3,
    weight: f32,
    is_hidden: bool,
    /// Its means in the cloud now under the narrow kernel, with colour and without.
    here: [Mean; 2],
    /// Its moments there under each kernel, once measured.
    moments: [Moments; N_RADII],
}

impl Patch {
    /// Forgets its points.
    pub(super) fn clear(&mut self) {
        self.n = 0;
    }

    fn points(&self) -> &[Member] {
        &self.points[..self.n]
    }

    /// Share that could not be seen one step back.
    pub(super) fn hidden(&self) -> f32 {
        let hidden = self.points().iter().filter(|member| member.is_hidden);
        hidden.map(|member| member.weight).sum::<f32>() / self.total.max(1e-6)
    }
}

impl Context<'_> {
    pub(super) fn gather(&self, center: &Vec3, patch: &mut Patch) {
        let Settings { patch_radius_m, patch_falloff, kernel_radii_m, .. } = *self.settings;
        let narrow = self.settings.kernel(kernel_radii_m[NARROW]);
        let (mut near, mut n_near) = ([0; NEAR_CAPACITY], 0);
        self.raised.near(center, patch_radius_m, |place| {
            if n_near < NEAR_CAPACITY {
                near[n_near] = place;
                n_near += 1;
            }
        });
        (patch.total, patch.is_measured) = (0.0, false);
        patch.n = n_near.min(self.settings.patch_points);
        for k in 0..patch.n {
            let place = near[k * n_near / patch.n];
            let (position, color) = self.raised.point(place);
            let is_hidden = self.hidden[place];
            let falloff = patch_falloff * squared_distance(&position, center);
            let weight = 1.0 - falloff / (patch_radius_m * patch_radius_m);
            let here = self.now.both_means(&position, &color, narrow);
            patch.total += weight;
            let member = &mut patch.points[k];
            *member = Member { position, color, weight, is_hidden, here, moments: member.moments };
        }
    }

    /// Gathers the patch about `center`, unless that is done.
    pub(super) fn gather_once(&self, center: &Vec3, patch: &mut Patch) {
        if patch.n == 0 {
            self.gather(center, patch);
        }
    }

    /// Takes the moments of the patch's points, unless they are known.
    pub(super) fn measure(&self, patch: &mut Patch) {
        if std::mem::replace(&mut patch.is_measured, true) {
            return;
        }
        for Member { position, color, moments, .. } in &mut patch.points[..patch.n] {
            for (moments, radius_m) in moments.iter_mut().zip(self.settings.kernel_radii_m) {
                *moments = self.now.moments(position, color, self.settings.kernel(radius_m));
            }
        }
    }

    /// How well a point is found again where `pose` takes it, 0 to 1: by colour and by geometry alone,
    /// whose word counts for more, so that colour never outvotes it.
    pub(super) fn found(&self, pose: &Rigid, point: (&Vec3, &Vec3), here: &[Mean; 2]) -> f32 {
        let radius = self.settings.kernel_radii_m[NARROW];
        let there = pose.apply(point.0);
        let there = self.before.both_means(&there, point.1, self.settings.kernel(radius));
        let [colored, blind] = [0, 1].map(|i| self.hold(pose, &here[i], &there[i], radius).found);
        colored + self.settings.geometry_share * (blind - colored)
    }

    /// Holds the mean about a point against that about where `pose` takes it.
    fn hold(&self, pose: &Rigid, here: &Mean, there: &Mean, radius: f32) -> Match {
        let residual = minus(&there.offset, &pose.turn(&here.offset));
        let tolerance = self.settings.residual_tolerance * radius;
        let near = (1.0 - dot(&residual, &residual) / (tolerance * tolerance)).max(0.0);
        let share = (self.settings.mass_allowance * there.mass / here.mass.max(1e-3)).min(1.0);
        Match { residual, found: near * share }
    }

    /// Cost of a motion of a patch, and the share of it found again; where the cost is more than
    /// `bound`, some number above that.
    pub(super) fn cost(&self, patch: &Patch, pose: &Rigid, bound: f32) -> (f32, f32) {
        let total = patch.total.max(1e-6);
        // What is left to be found; a little more, as sums are rounded.
        let (mut found, mut left) = (0.0, patch.total + 1e-4);
        for Member { position, color, weight, here, .. } in patch.points() {
            found += weight * self.found(pose, (position, color), here);
            left -= weight;
            if 1.0 - (found + left) / total > bound {
                break;
            }
        }
        let found = found / total;
        (1.0 - found, found)
    }

    /// Cost of rest of a patch, less the bonus of what came into view.
    pub(super) fn rest_cost(&self, patch: &Patch) -> f32 {
        let cost = self.cost(patch, &Rigid::default(), f32::INFINITY).0;
        (cost - self.settings.hidden_bonus * patch.hidden()).max(0.0)
    }

    /// Gauss-Newton steps of the measured patch about `center` under the kernel `scale`.
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
            for Member { position, color, weight, moments, .. } in patches().flat_map(Patch::points)
            {
                let Moments { mean, stiffness } = &moments[scale];
                let there = pose.apply(position);
                let found_there = self.before.mean(&there, color, settings.kernel(radius));
                let Match { residual, found } = self.hold(pose, mean, &found_there, radius);
                let stiffness = pose.conjugate(stiffness);
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
        let center = plus(position, &self.now.mean(position, color, lump).offset);
        let here = self.now.mean(&center, color, lump);
        let there = self.before.mean(&center, color, lump);
        if !(1.0 / ratio..=ratio).contains(&(there.mass / here.mass.max(1e-6))) {
            return f32::INFINITY;
        }
        let variance = lump_scatter_m * lump_scatter_m * (1.0 / here.mass + 1.0 / there.mass);
        squared_distance(&here.offset, &there.offset) / variance
    }

    /// Translation of the lump of like colour about a point, which is looked for within `reach_m`.
    pub(super) fn track(&self, position: &Vec3, color: &Vec3, reach_m: f32) -> Vec3 {
        let Settings { lump_radius_m, lump_steps, .. } = *self.settings;
        let lump = self.settings.kernel(lump_radius_m);
        let center = plus(position, &self.now.mean(position, color, lump).offset);
        let mut shift = [0.0; 3];
        for step in 0..=lump_steps {
            let kernel = if step == 0 { self.settings.kernel(reach_m) } else { lump };
            let here = self.now.mean(&center, color, kernel);
            let from = minus(&center, &shift);
            let there = self.before.mean(&from, color, kernel);
            if there.mass < self.settings.lump_min_mass {
                break;
            }
            shift = minus(&plus(&center, &here.offset), &plus(&from, &there.offset));
        }
        shift
    }
}

/// A point held against the cloud before: what is left, and the weight of the match.
struct Match {
    residual: Vec3,
    /// 0 (nothing like it) to 1.
    found: f32,
}

fn at_most(v: Vec3, bound: f32) -> Vec3 {
    let length = length(&v);
    if length > bound { v.map(|x| x * bound / length) } else { v }
}
