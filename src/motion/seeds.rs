//! Seeds, one a cell of the cloud: the motions of their patches, searched for, exchanged with
//! neighbours, and given to particles.

use super::patch::{Context, N_RADII, NARROW, Patch};
use super::settings::Settings;
use crate::geometry::{Rigid, Vec3, dot, squared_distance};

/// A patch and the motion that it had, back in time.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seed {
    pub(super) place: u32,
    pub(super) position: Vec3,
    pub(super) pose: Rigid,
    /// 0 (all found again) to 1, less the bonus of rest.
    pub(super) cost: f32,
    /// Share of the patch found again.
    pub(super) found: f32,
    /// Share of the patch that could not be seen one step back.
    hidden: f32,
    /// Whether there is nothing left to look for.
    pub(super) is_sure: bool,
}

/// First motion of a seed's patch: rest, its link's, or what tracking and registration find.
pub(super) fn start(
    context: &Context,
    links: &[(Vec3, Rigid)],
    seed: &mut Seed,
    patch: &mut Patch,
) {
    let Settings { still_unrest, rest_bonus, hidden_bonus, on_link_m, .. } = *context.settings;
    let settings = context.settings;
    let position = seed.position;
    let color = context.raised.point(seed.place as usize).1;
    let unrest = context.unrest(&position, &color);
    let rest = Rigid::default();
    if unrest < still_unrest[0] {
        *seed = Seed { pose: rest, cost: 0.0, found: 1.0, is_sure: true, ..*seed };
        return;
    }
    context.gather(&position, patch);
    let (cost, found) = context.cost(patch, &rest);
    let hidden = patch.hidden();
    let is_sure = unrest < still_unrest[1] && cost < settings.still_cost;
    let cost = cost - rest_bonus - hidden_bonus * hidden;
    *seed = Seed { pose: rest, cost, found, hidden, is_sure, ..*seed };
    if is_sure {
        seed.cost = 0.0;
        return;
    }
    let (mut nearest, mut link) = (settings.link_reach_m * settings.link_reach_m, None);
    for (at, pose) in links {
        let distance = squared_distance(at, &position);
        if distance < nearest {
            (nearest, link) = (distance, Some(*pose));
        }
    }
    if let Some(pose) = link {
        let cost = seed.offer(context, patch, pose);
        seed.is_sure = cost < settings.link_cost;
        if seed.is_sure || nearest < on_link_m * on_link_m {
            return;
        }
    }
    let mut pose = Rigid::shift(context.track(&position, &color).map(|x| -x));
    let is_slow = dot(&pose.translation(), &pose.translation()) < settings.slow_m * settings.slow_m;
    (0..N_RADII).for_each(|scale| context.refine(patch, &position, &mut pose, scale));
    seed.offer(context, patch, pose);
    if is_slow && seed.cost > settings.slow_cost {
        let mut pose = rest;
        (0..N_RADII).for_each(|scale| context.refine(patch, &position, &mut pose, scale));
        seed.offer(context, patch, pose);
    }
}

impl Seed {
    /// One at a point of the raised cloud, given as its place in cell order.
    pub(super) fn new(place: usize, position: Vec3) -> Self {
        Self { place: place as u32, position, ..Self::default() }
    }

    fn rests(&self) -> bool {
        self.is_sure && !self.moves()
    }

    pub(super) fn moves(&self) -> bool {
        self.pose.translation() != [0.0; 3]
    }

    /// Whether it surely moves as a link of the robot does.
    pub(super) fn is_on_link(&self) -> bool {
        self.is_sure && self.moves()
    }

    /// Takes the motion of its body.
    pub(super) fn take(&mut self, pose: Rigid, cost: f32) {
        *self = Self { pose, cost, found: 1.0 - cost, is_sure: false, ..*self };
    }

    /// Rests for sure if it came into view and seems to come from where something surely rests: what
    /// is still there did not move here.
    pub(super) fn settle(&mut self, context: &Context, seeds: &[Self], cells: &[u32]) {
        if self.is_sure || self.hidden < context.settings.hidden_share {
            return;
        }
        let source = self.pose.apply(&self.position);
        let mut is_taken = false;
        context.raised.cells.near(&source, 0.5 * context.settings.seed_spacing_m, |cell| {
            is_taken |= seeds.get(cells[cell] as usize).is_some_and(Self::rests);
        });
        if is_taken {
            (self.pose, self.cost, self.is_sure) = (Rigid::default(), 0.0, true);
            self.found = self.found.min(context.settings.hidden_confidence);
        }
    }

    /// Takes a motion if it is better; returns its cost.
    fn offer(&mut self, context: &Context, patch: &Patch, pose: Rigid) -> f32 {
        let (cost, found) = context.cost(patch, &pose);
        if cost < self.cost {
            (self.pose, self.cost, self.found) = (pose, cost, found);
        }
        cost
    }
}

/// Tries what neighbours found.
pub(super) fn exchange(
    context: &Context,
    seeds: &[Seed],
    cells: &[u32],
    seed: &mut Seed,
    patch: &Patch,
) {
    if seed.is_sure {
        return;
    }
    let (position, before) = (seed.position, seed.cost);
    context.raised.cells.near(&position, context.settings.exchange_reach_m, |cell| {
        let Some(other) = seeds.get(cells[cell] as usize) else { return };
        if other.place != seed.place && !other.rests() {
            seed.offer(context, patch, other.pose);
        }
    });
    if seed.cost < before {
        let mut pose = seed.pose;
        context.refine(patch, &position, &mut pose, NARROW);
        seed.offer(context, patch, pose);
    }
}

/// The seed whose motion suits a particle best.
pub(super) fn assign<'a>(
    context: &Context,
    seeds: &'a [Seed],
    cells: &[u32],
    position: &Vec3,
    color: &Vec3,
) -> Option<&'a Seed> {
    let Settings { seed_spacing_m, assign_lost, assign_distance, .. } = *context.settings;
    let radius = context.settings.kernel_radii_m[NARROW];
    let here = context.now.moments(position, color, context.settings.kernel(radius));
    let mut best = (f32::INFINITY, None);
    context.raised.cells.near(position, seed_spacing_m, |cell| {
        let Some(seed) = seeds.get(cells[cell] as usize) else { return };
        let found = context.residual(&seed.pose, (position, color), &here, radius).found;
        let distance_m2 = squared_distance(&seed.position, position);
        let distance = distance_m2 / (seed_spacing_m * seed_spacing_m);
        let cost = seed.cost + assign_lost * (1.0 - found) + assign_distance * distance;
        if cost < best.0 {
            best = (cost, Some(seed));
        }
    });
    best.1
}
