//! Seeds, one a cell of the cloud: the motions of their patches, searched for, exchanged with
//! neighbours, and given to particles.

use super::patch::{Context, NARROW, Patch, RADII_M};
use super::rigid::Rigid;
use super::{Vec3, dot, minus};

/// Distance of seeds (m): one a cell of this size.
pub(super) const SEED_M: f32 = 0.04;
/// Rounds in which neighbours exchange what they found, and how far they look (m).
pub(super) const ROUNDS: usize = 2;
const EXCHANGE_M: f32 = 0.04;
/// By how much another motion must be better than rest.
const REST_BONUS: f32 = 0.12;
/// The same for a patch that could not be seen one step back, so that rest does not find it again:
/// most of what comes into view is at rest.
pub(super) const HIDDEN_BONUS: f32 = 0.3;
/// Share of a patch from which on it counts as one that came into view.
const MIN_HIDDEN: f32 = 0.25;
/// What is then sure of its rest at most.
const MAX_SETTLED_FOUND: f32 = 0.3;
/// A lump that moved by less than these shares of its scatter, squared, is at rest: for sure, or if
/// its points are found again at that cost.
const STILL: [f32; 2] = [0.04, 0.6];
const STILL_COST: f32 = 0.5;
/// Reach of a kinematic particle (m), and the cost below which a patch moves as its link.
const LINK_M: f32 = 0.08;
const LINK_COST: f32 = 0.5;
/// Patches this near to a kinematic particle (m) are not searched for on their own.
const ON_LINK_M: f32 = 0.05;
/// Motions below this (m) are searched for from rest too, while they fit ill.
const SLOW_M: f32 = 0.02;

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
    let position = seed.position;
    let color = context.raised.point(seed.place as usize).1;
    let unrest = context.unrest(&position, &color);
    let rest = Rigid::default();
    if unrest < STILL[0] {
        *seed = Seed { pose: rest, cost: 0.0, found: 1.0, is_sure: true, ..*seed };
        return;
    }
    context.gather(&position, patch);
    let (cost, found) = context.cost(patch, &rest);
    let hidden = patch.hidden();
    let is_sure = unrest < STILL[1] && cost < STILL_COST;
    let cost = cost - REST_BONUS - HIDDEN_BONUS * hidden;
    *seed = Seed { pose: rest, cost, found, hidden, is_sure, ..*seed };
    if is_sure {
        seed.cost = 0.0;
        return;
    }
    let squared = |at: &Vec3| {
        let d = minus(at, &position);
        dot(&d, &d)
    };
    let (mut nearest, mut link) = (LINK_M * LINK_M, None);
    for (at, pose) in links {
        let distance = squared(at);
        if distance < nearest {
            (nearest, link) = (distance, Some(*pose));
        }
    }
    if let Some(pose) = link {
        let cost = seed.offer(context, patch, pose);
        seed.is_sure = cost < LINK_COST;
        if seed.is_sure || nearest < ON_LINK_M * ON_LINK_M {
            return;
        }
    }
    let mut pose = Rigid::shift(context.track(&position, &color).map(|x| -x));
    let is_slow = dot(&pose.translation, &pose.translation) < SLOW_M * SLOW_M;
    (0..RADII_M.len()).for_each(|scale| context.refine(patch, &position, &mut pose, scale));
    seed.offer(context, patch, pose);
    if is_slow && seed.cost > 0.5 {
        let mut pose = rest;
        (0..RADII_M.len()).for_each(|scale| context.refine(patch, &position, &mut pose, scale));
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
        self.pose.translation != [0.0; 3]
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
        if self.is_sure || self.hidden < MIN_HIDDEN {
            return;
        }
        let source = self.pose.apply(&self.position);
        let mut is_taken = false;
        context.raised.near_cells(&source, 0.5 * SEED_M, |cell| {
            is_taken |= seeds.get(cells[cell] as usize).is_some_and(Self::rests);
        });
        if is_taken {
            (self.pose, self.cost, self.is_sure) = (Rigid::default(), 0.0, true);
            self.found = self.found.min(MAX_SETTLED_FOUND);
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
    context.raised.near_cells(&position, EXCHANGE_M, |cell| {
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
    let radius = RADII_M[NARROW];
    let here = context.now.moments(position, color, radius);
    let mut best = (f32::INFINITY, None);
    context.raised.near_cells(position, SEED_M, |cell| {
        let Some(seed) = seeds.get(cells[cell] as usize) else { return };
        let found = context.residual(&seed.pose, (position, color), &here, radius).found;
        let d = minus(&seed.position, position);
        let distance = dot(&d, &d) / (SEED_M * SEED_M);
        let cost = seed.cost + 0.5 * (1.0 - found) + 0.064 * distance;
        if cost < best.0 {
            best = (cost, Some(seed));
        }
    });
    best.1
}
