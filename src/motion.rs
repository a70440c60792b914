//! Motion of each particle over the last step, estimated from two clouds without correspondences.
//!
//! Patches of the cloud now are registered rigidly with the cloud one step back. A point q of
//! colour c has a kernel mean m(q) in either cloud; where a patch's motion T (back in time) is
//! right, the mean there about T·q is T of the mean here. So T is found by Gauss and Newton's
//! method on these differences, weighted by I - ∂m/∂q: what a mean follows tells nothing, as along
//! a plane of one colour, while edges and textures tell all. Starts are the motion of the lump of
//! like colour (kernel-based tracking, Comaniciu et al. 2003, in 3-D), rest, the robot's link near
//! by, and what neighbouring patches found (propagation as in PatchMatch, Barnes et al. 2009).

mod grid;
mod rigid;

use rayon::prelude::*;

use crate::particles::Particles;
use grid::{Grid, Moments};
use rigid::{Normal, Rigid};

type Vec3 = [f32; 3];

/// Side of the cells (m) of the clouds' grids: about the radius of the kernels.
const CELL_M: f32 = 0.03;
/// Distance of seeds (m): one a cell of this size.
const SEED_M: f32 = 0.04;
/// Radii of the kernels over positions (m): the wide one to find, the narrow one to judge.
const RADII_M: [f32; 2] = [0.045, 0.025];
const NARROW: usize = RADII_M.len() - 1;
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
/// Rounds in which neighbours exchange what they found, and how far they look (m).
const ROUNDS: usize = 2;
const EXCHANGE_M: f32 = 0.04;
/// By how much another motion must be better than rest.
const REST_BONUS: f32 = 0.12;
/// A lump that moved by less than these shares of its scatter, squared, is at rest: for sure, or if
/// its points are found again at that cost.
const STILL: [f32; 2] = [0.04, 0.6];
const STILL_COST: f32 = 0.5;
/// Reach of a kinematic particle (m), and the cost below which a patch moves as its link.
const LINK_M: f32 = 0.08;
const LINK_COST: f32 = 0.5;
/// Patches this near to a kinematic particle (m) are not searched for on their own.
const ON_LINK_M: f32 = 0.05;
/// Radius of a lump (m), and how far it may have moved.
const LUMP_M: f32 = 0.08;
const REACH_M: f32 = 0.14;
const LUMP_STEPS: usize = 3;
/// Motions below this (m) are searched for from rest too, while they fit ill.
const SLOW_M: f32 = 0.02;
/// Scatter of the points of a lump about its mean, per axis or so (m).
const LUMP_SCATTER_M: f32 = 0.045;
/// Masses that differ by up to this factor count as equal.
const MASS_RATIO: f32 = 1.6;
/// Kernel mass below which a lump counts as lost.
const MIN_MASS: f32 = 0.5;
/// Shares of a patch found again below which its motion is unknown.
const MIN_FOUND: f32 = 0.1;
/// A support plane holds this share of a cloud, within this height (m).
const SUPPORT_SHARE: f32 = 0.15;
const SUPPORT_M: f32 = 0.006;
/// Heights (m) between which it is looked for.
const SUPPORT_RANGE_M: [f32; 2] = [-0.2, 0.824];
const SUPPORT_BINS: usize = 256;

/// Estimates motions, keeping its memory between calls.
#[derive(Debug, Default, Clone)]
pub struct MotionEstimator {
    now: Grid,
    before: Grid,
    /// Points of the cloud now off the support plane.
    raised: Grid,
    raised_positions: Vec<Vec3>,
    raised_colors: Vec<Vec3>,
    links: Vec<(Vec3, Rigid)>,
    seeds: Vec<Seed>,
    exchanged: Vec<Seed>,
    /// Patches of the seeds that are not surely at rest.
    patches: Vec<Patch>,
    seed_of_cell: Vec<u32>,
    onward: Vec<Vec3>,
}

/// A patch and the motion that it had, back in time.
#[derive(Debug, Default, Clone, Copy)]
struct Seed {
    place: u32,
    position: Vec3,
    pose: Rigid,
    /// 0 (all found again) to 1, less the bonus of rest.
    cost: f32,
    /// Share of the patch found again.
    found: f32,
    /// Whether there is nothing left to look for.
    is_sure: bool,
}

impl MotionEstimator {
    /// Estimates how far each of `particles` moved over the last step (m), and how sure that is:
    /// 0 where nothing like it was there before, up to 1.
    ///
    /// Clouds and the robot's points `kinematic` are those before and now; these are in
    /// correspondence, `links` tells the link of each, ascending; they may be none.
    pub fn estimate(
        &mut self,
        particles: &Particles,
        [cloud_before, cloud_now]: [&Particles; 2],
        kinematic: [&[Vec3]; 2],
        links: &[u32],
        motions: &mut Vec<Vec3>,
        confidences: &mut Vec<f32>,
    ) {
        let n = particles.len();
        for vectors in [&mut *motions, &mut self.onward] {
            vectors.clear();
            vectors.resize(n, [0.0; 3]);
        }
        confidences.clear();
        confidences.resize(n, 0.0);
        if cloud_before.is_empty() || cloud_now.is_empty() {
            return;
        }
        let support_m = support_height(cloud_now);
        let is_raised = |p: &Vec3| (p[2] - support_m).abs() > SUPPORT_M;
        self.prepare([cloud_before, cloud_now], is_raised);
        self.place_links(kinematic, links);
        self.search();
        let Self { now, before, raised, seeds, seed_of_cell, onward, .. } = self;
        let context = Context { now, before, raised };
        let (seeds, cells) = (&seeds[..], &seed_of_cell[..]);
        let places = particles.positions.par_iter().zip(&particles.colors).with_min_len(64);
        let results = motions.par_iter_mut().zip(onward).zip(confidences);
        places.zip(results).for_each(|((position, color), ((motion, onward), confidence))| {
            if !is_raised(position) {
                *confidence = 1.0;
                return;
            }
            let best = assign(&context, seeds, cells, position, color);
            if let Some(seed) = best.filter(|seed| seed.found >= MIN_FOUND) {
                *motion = minus(position, &seed.pose.apply(position));
                *onward = minus(&seed.pose.undo(position), position);
                *confidence = seed.found.min(1.0);
            }
        });
    }

    /// How far each particle of the last call will move in the next step (m), if the rigid motion
    /// of its patch goes on: other than its last motion where that is a rotation.
    pub fn onward(&self) -> &[Vec3] {
        &self.onward
    }

    /// Sorts the clouds and takes the moments of the points off the support plane.
    fn prepare(&mut self, [before, now]: [&Particles; 2], is_raised: impl Fn(&Vec3) -> bool) {
        self.now.rebuild(&now.positions, &now.colors, CELL_M);
        self.before.rebuild(&before.positions, &before.colors, CELL_M);
        self.raised_positions.clear();
        self.raised_colors.clear();
        for (p, c) in now.positions.iter().zip(&now.colors).filter(|(p, _)| is_raised(p)) {
            self.raised_positions.push(*p);
            self.raised_colors.push(*c);
        }
        self.raised.rebuild(&self.raised_positions, &self.raised_colors, SEED_M);
        self.seeds.clear();
        self.seed_of_cell.clear();
        self.seed_of_cell.resize(self.raised.n_cells(), u32::MAX);
        for (cell, seed) in self.seed_of_cell.iter_mut().enumerate() {
            let points = self.raised.points_in(cell);
            if !points.is_empty() {
                *seed = self.seeds.len() as u32;
                let place = (points.start + points.end) / 2;
                let position = self.raised.point(place).0;
                self.seeds.push(Seed { place: place as u32, position, ..Seed::default() });
            }
        }
        self.patches.resize(self.patches.len().max(self.seeds.len()), Patch::default());
    }

    /// Gives each point on the robot the motion of its link.
    fn place_links(&mut self, kinematic: [&[Vec3]; 2], of_links: &[u32]) {
        self.links.clear();
        let [before, now] = kinematic;
        let n = before.len().min(now.len()).min(of_links.len());
        let mut from = 0;
        while from < n {
            let to = from + of_links[from..n].partition_point(|&link| link <= of_links[from]);
            let pose = Rigid::fit(&now[from..to], &before[from..to]);
            self.links.extend(now[from..to].iter().map(|&at| (at, pose)));
            from = to;
        }
    }

    /// Finds the motion of every seed's patch.
    fn search(&mut self) {
        let Self { now, before, raised, links, seeds, exchanged, patches, seed_of_cell, .. } = self;
        let context = Context { now, before, raised };
        let (links, cells) = (&links[..], &seed_of_cell[..]);
        seeds.par_iter_mut().zip(&mut patches[..]).for_each(|(seed, patch)| {
            start(&context, links, seed, patch);
        });
        for _ in 0..ROUNDS {
            exchanged.clone_from(seeds);
            let known = &seeds[..];
            exchanged.par_iter_mut().zip(&patches[..]).for_each(|(seed, patch)| {
                exchange(&context, known, cells, seed, patch);
            });
            std::mem::swap(seeds, exchanged);
        }
    }
}

/// Height of the plane that holds most points (m); none is infinitely low.
fn support_height(cloud: &Particles) -> f32 {
    let [low, high] = SUPPORT_RANGE_M;
    let bin_m = (high - low) / SUPPORT_BINS as f32;
    let mut bins = [0u32; SUPPORT_BINS];
    for p in &cloud.positions {
        let bin = (p[2] - low) / bin_m;
        if (0.0..SUPPORT_BINS as f32).contains(&bin) {
            bins[bin as usize] += 1;
        }
    }
    let fullest = (0..SUPPORT_BINS).max_by_key(|&bin| bins[bin]).unwrap_or(0);
    let middle = low + (fullest as f32 + 0.5) * bin_m;
    let near = cloud.positions.iter().filter(|p| (p[2] - middle).abs() < SUPPORT_M);
    let (sum, count) = near.fold((0.0, 0.0), |(sum, count), p| (sum + p[2] - middle, count + 1.0));
    if count > SUPPORT_SHARE * cloud.len() as f32 {
        middle + sum / count
    } else {
        f32::NEG_INFINITY
    }
}

/// What patches are registered in.
struct Context<'a> {
    now: &'a Grid,
    before: &'a Grid,
    raised: &'a Grid,
}

/// Some points of a ball off the support plane, with their weights.
#[derive(Debug, Default, Clone)]
struct Patch {
    n: usize,
    points: [Member; MAX_PATCH],
}

/// A point of a patch.
#[derive(Debug, Default, Clone, Copy)]
struct Member {
    position: Vec3,
    color: Vec3,
    weight: f32,
    /// Its moments in the cloud now under the kernels of [`RADII_M`].
    here: [Moments; RADII_M.len()],
}

impl Patch {
    fn points(&self) -> &[Member] {
        &self.points[..self.n]
    }
}

impl Context<'_> {
    fn gather(&self, center: &Vec3, patch: &mut Patch) {
        let (mut near, mut n_near) = ([0; MAX_NEAR], 0);
        self.raised.near(center, PATCH_M, |place| {
            if n_near < MAX_NEAR {
                near[n_near] = place;
                n_near += 1;
            }
        });
        patch.n = n_near.min(MAX_PATCH);
        for k in 0..patch.n {
            let (position, color) = self.raised.point(near[k * n_near / patch.n]);
            let d = minus(&position, center);
            let weight = 1.0 - 0.8 * dot(&d, &d) / (PATCH_M * PATCH_M);
            let mut here = [Moments::default(); RADII_M.len()];
            for scale in 0..RADII_M.len() {
                here[scale] = self.now.moments(&position, &color, RADII_M[scale]);
            }
            patch.points[k] = Member { position, color, weight, here };
        }
    }

    /// Where `pose` takes a point, what is left of it there, and the weight of the match.
    fn residual(&self, pose: &Rigid, point: (&Vec3, &Vec3), here: &Moments, radius: f32) -> Match {
        let there = pose.apply(point.0);
        let (offset, mass) = self.before.mean(&there, point.1, radius);
        let residual = minus(&offset, &pose.turn(&here.offset));
        let tolerance = TOLERANCE * radius;
        let near = (1.0 - dot(&residual, &residual) / (tolerance * tolerance)).max(0.0);
        let share = (1.3 * mass / here.mass.max(1e-3)).min(1.0);
        Match { there, residual, found: near * share }
    }

    /// Cost of a motion of a patch, and the share of it found again.
    fn cost(&self, patch: &Patch, pose: &Rigid) -> (f32, f32) {
        let (mut found, mut total) = (0.0, 0.0);
        for Member { position, color, weight, here } in patch.points() {
            let here = &here[NARROW];
            found += weight * self.residual(pose, (position, color), here, RADII_M[NARROW]).found;
            total += weight;
        }
        let found = found / total.max(1e-6);
        (1.0 - found, found)
    }

    /// Gauss-Newton steps of the patch about `center` under the kernel `scale`.
    fn refine(&self, patch: &Patch, center: &Vec3, pose: &mut Rigid, scale: usize) {
        let radius = RADII_M[scale];
        for _ in 0..STEPS {
            let middle = pose.apply(center);
            let mut normal = Normal::default();
            for Member { position, color, weight, here } in patch.points() {
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
    fn unrest(&self, position: &Vec3, color: &Vec3) -> f32 {
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
    fn track(&self, position: &Vec3, color: &Vec3) -> Vec3 {
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
struct Match {
    there: Vec3,
    residual: Vec3,
    /// 0 (nothing like it) to 1.
    found: f32,
}

/// First motion of a seed's patch: rest, its link's, or what tracking and registration find.
fn start(context: &Context, links: &[(Vec3, Rigid)], seed: &mut Seed, patch: &mut Patch) {
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
    let is_sure = unrest < STILL[1] && cost < STILL_COST;
    *seed = Seed { pose: rest, cost: cost - REST_BONUS, found, is_sure, ..*seed };
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
fn exchange(context: &Context, seeds: &[Seed], cells: &[u32], seed: &mut Seed, patch: &Patch) {
    if seed.is_sure {
        return;
    }
    let (position, before) = (seed.position, seed.cost);
    context.raised.near_cells(&position, EXCHANGE_M, |cell| {
        let Some(other) = seeds.get(cells[cell] as usize) else { return };
        let is_at_rest = other.is_sure && other.pose.translation == [0.0; 3];
        if other.place != seed.place && !is_at_rest {
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
fn assign<'a>(
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

fn at_most(v: Vec3, bound: f32) -> Vec3 {
    let length = dot(&v, &v).sqrt();
    if length > bound { v.map(|x| x * bound / length) } else { v }
}

#[inline(always)]
fn minus(a: &Vec3, b: &Vec3) -> Vec3 {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

#[inline(always)]
fn plus(a: &Vec3, b: &Vec3) -> Vec3 {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

#[inline(always)]
fn dot(a: &Vec3, b: &Vec3) -> f32 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

#[cfg(test)]
mod tests;
