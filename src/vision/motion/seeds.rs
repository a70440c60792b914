//! Seeds, one a cell of the cloud: the motions of their patches, searched for, exchanged with
//! neighbours, and given to particles.

use super::patch::{Context, N_RADII, NARROW, Patch};
use super::settings::Settings;
use crate::base::geometry::{Rigid, Vec3, dot, minus, squared_distance};

/// Cells that the cube about a particle meets at most, a seed each.
const MAX_NEAR: usize = 27;

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
    /// Whether the last round gave it another motion: what neighbours were offered before, they know.
    is_new: bool,
}

/// First motion of a seed's patch: rest, its link's, or what tracking and registration find.
pub(super) fn start(
    context: &Context,
    links: &[(Vec3, Rigid)],
    seed: &mut Seed,
    patch: &mut Patch,
) {
    let Settings { still_unrest, rest_bonus, hidden_bonus, on_link_m, .. } = *context.settings;
    let Settings { lump_reach_m, lump_far_m, ill_cost, .. } = *context.settings;
    let settings = context.settings;
    let position = seed.position;
    let color = context.raised.point(seed.place as usize).1;
    patch.clear();
    let unrest = context.unrest(&position, &color);
    let rest = Rigid::default();
    if unrest < still_unrest[0] {
        *seed = Seed { pose: rest, cost: 0.0, found: 1.0, is_sure: true, ..*seed };
        return;
    }
    context.gather(&position, patch);
    let (cost, found) = context.cost(patch, &rest, f32::INFINITY);
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
        let cost = seed.offer(context, patch, pose, settings.link_cost);
        seed.is_sure = cost < settings.link_cost;
        if seed.is_sure || nearest < on_link_m * on_link_m {
            return;
        }
    }
    if !seed.can_gain() {
        return;
    }
    context.measure(patch);
    let lump = |reach_m| Rigid::shift(context.track(&position, &color, reach_m).map(|x| -x));
    let near = lump(lump_reach_m);
    let is_slow = dot(&near.translation(), &near.translation()) < settings.slow_m * settings.slow_m;
    seed.register(context, patch, near);
    if is_slow && seed.cost > ill_cost {
        seed.register(context, patch, rest);
    }
    // What is looked for far off is mistaken for another more often, so only where nothing near by fits.
    if seed.cost > ill_cost {
        seed.register(context, patch, lump(lump_far_m));
    }
}

impl Seed {
    /// One at a point of the raised cloud, given as its place in cell order.
    pub(super) fn new(place: usize, position: Vec3) -> Self {
        Self { place: place as u32, position, is_new: true, ..Self::default() }
    }

    /// How far the point `p` moves in the next step if the patch goes on straight and turns about its
    /// middle (m).
    pub(super) fn extrapolated_motion(&self, p: &Vec3) -> Vec3 {
        let center = &self.position;
        let (arm, way) = (minus(p, center), minus(center, &self.pose.apply(center)));
        let turned = minus(&self.pose.undo(p), &self.pose.undo(center));
        std::array::from_fn(|axis| way[axis] + turned[axis] - arm[axis])
    }

    fn rests(&self) -> bool {
        self.is_sure && !self.moves()
    }

    pub(super) fn moves(&self) -> bool {
        self.pose.translation() != [0.0; 3]
    }

    /// Whether it took a motion that it had not `before`.
    pub(super) fn took(&self, before: &Self) -> bool {
        self.moves() && !before.moves()
    }

    /// Whether any motion can cost less than its own.
    fn can_gain(&self) -> bool {
        self.cost > 0.0
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

    /// Registers its measured patch from `pose` on, and takes the motion found if it is better.
    fn register(&mut self, context: &Context, patch: &Patch, mut pose: Rigid) {
        (0..N_RADII).for_each(|scale| context.refine(patch, &self.position, &mut pose, scale));
        self.offer(context, patch, pose, 0.0);
    }

    /// Takes a motion if it is better; returns its cost, or more than `bound` where it is more.
    fn offer(&mut self, context: &Context, patch: &Patch, pose: Rigid, bound: f32) -> f32 {
        let (cost, found) = context.cost(patch, &pose, self.cost.max(bound));
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
    patch: &mut Patch,
) {
    seed.is_new = false;
    if seed.is_sure || !seed.can_gain() {
        return;
    }
    let (position, before) = (seed.position, seed.cost);
    context.raised.cells.near(&position, context.settings.exchange_reach_m, |cell| {
        let Some(other) = seeds.get(cells[cell] as usize) else { return };
        if other.is_new && !other.rests() && other.pose != seed.pose {
            seed.offer(context, patch, other.pose, 0.0);
        }
    });
    if seed.cost < before {
        seed.is_new = true;
        let mut pose = seed.pose;
        context.measure(patch);
        context.refine(patch, &position, &mut pose, NARROW);
        seed.offer(context, patch, pose, 0.0);
    }
}

/// The seed whose motion suits a particle best. What is looked for in the cloud before is one motion
/// each: near most particles all seeds have the same, and nothing is.
pub(super) fn assign<'a>(
    context: &Context,
    seeds: &'a [Seed],
    cells: &[u32],
    position: &Vec3,
    color: &Vec3,
) -> Option<&'a Seed> {
    let Settings { seed_spacing_m, assign_lost, assign_distance, .. } = *context.settings;
    // Seeds with what they cost a particle that is found again.
    let (mut near, mut n_near) = ([(0.0, 0); MAX_NEAR], 0);
    context.raised.cells.near(position, seed_spacing_m, |cell| {
        let Some(seed) = seeds.get(cells[cell] as usize) else { return };
        let distance_m2 = squared_distance(&seed.position, position);
        let distance = distance_m2 / (seed_spacing_m * seed_spacing_m);
        if n_near < MAX_NEAR {
            near[n_near] = (seed.cost + assign_distance * distance, cells[cell]);
            n_near += 1;
        }
    });
    let near = &mut near[..n_near];
    near.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let seed = |i: u32| &seeds[i as usize];
    let &(least, first) = near.first()?;
    let differs = |&&(_, i): &&(f32, u32)| seed(i).pose != seed(first).pose;
    let Some(&(other, _)) = near.iter().find(differs) else { return Some(seed(first)) };
    if other >= least + assign_lost {
        return Some(seed(first));
    }
    let radius = context.settings.kernel_radii_m[NARROW];
    let here = context.now.both_means(position, color, context.settings.kernel(radius));
    let mut best = (f32::INFINITY, None);
    for (k, &(cost, i)) in near.iter().enumerate() {
        // From here on they cost more, even where they find it again.
        if cost >= best.0 {
            break;
        }
        // The one that costs least of those with this motion was asked.
        if near[..k].iter().any(|&(_, j)| seed(j).pose == seed(i).pose) {
            continue;
        }
        let found = context.found(&seed(i).pose, (position, color), &here);
        let cost = cost + assign_lost * (1.0 - found);
        if cost < best.0 {
            best = (cost, Some(seed(i)));
        }
    }
    best.1
}
