//! Motion of each particle over the last step, estimated from two clouds without correspondences.
//!
//! Patches of the cloud now are registered rigidly with the cloud one step back. A point q of
//! colour c has a kernel mean m(q) in either cloud; where a patch's motion T (back in time) is
//! right, the mean there about T·q is T of the mean here. So T is found by Gauss and Newton's
//! method on these differences, weighted by I - ∂m/∂q: what a mean follows tells nothing, as along
//! a plane of one colour, while edges and textures tell all. Starts are the motion of the lump of
//! like colour (kernel-based tracking, Comaniciu et al. 2003, in 3-D), rest, the robot's link near
//! by, and what neighbouring patches found (propagation as in PatchMatch, Barnes et al. 2009). What
//! comes into view from behind something else is at rest, unless its neighbours move. Then patches of
//! one body agree on a motion, and particles that seem to be of one body go on with one rigid motion.

mod bodies;
mod consensus;
mod forest;
mod grid;
mod patch;
mod rigid;
mod seeds;
mod shadows;

use rayon::prelude::*;

use crate::particles::Particles;
use bodies::{Bodies, Moving};
use consensus::Consensus;
use grid::Grid;
use patch::{Context, Patch};
use rigid::Rigid;
use seeds::{ROUNDS, SEED_M, Seed, assign, exchange, start};
use shadows::Shadows;

pub use bodies::N_BODY_FEATURES;

type Vec3 = [f32; 3];

/// Side of the cells (m) of the clouds' grids: about the radius of the kernels.
const CELL_M: f32 = 0.03;
/// Shares of a patch found again below which its motion is unknown.
const MIN_FOUND: f32 = 0.1;
/// What is this near to the support plane (m) is at rest.
const SUPPORT_M: f32 = 0.006;

/// Estimates motions, keeping its memory between calls.
#[derive(Debug, Default, Clone)]
pub struct MotionEstimator {
    now: Grid,
    before: Grid,
    /// Points of the cloud now off the support plane.
    raised: Grid,
    raised_positions: Vec<Vec3>,
    raised_colors: Vec<Vec3>,
    /// Whether each of them could not be seen one step back, in the order of the grid.
    hidden: Vec<bool>,
    raised_hidden: Vec<bool>,
    shadows: Shadows,
    links: Vec<(Vec3, Rigid)>,
    seeds: Vec<Seed>,
    exchanged: Vec<Seed>,
    /// Patches of the seeds that are not surely at rest.
    patches: Vec<Patch>,
    seed_of_cell: Vec<u32>,
    onward: Vec<Vec3>,
    bodies: Bodies,
    consensus: Consensus,
}

impl MotionEstimator {
    /// Estimates how far each of `particles` moved over the last step (m), and how sure that is:
    /// 0 where nothing like it was there before, up to 1.
    ///
    /// Clouds and the robot's points `kinematic` are those before and now; these are in
    /// correspondence, `links` tells the link of each, ascending; they may be none. What lies on the
    /// plane of `support_m` of the cloud now is taken to rest; without one, nothing is. Where the
    /// cloud before has `eyes`, and both have sources, what comes into view is taken to rest.
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
        self.bodies.clear(n);
        if cloud_before.is_empty() || cloud_now.is_empty() {
            return;
        }
        let support = cloud_now.support_m;
        let is_raised = |p: &Vec3| support.is_none_or(|height| (p[2] - height).abs() > SUPPORT_M);
        self.prepare([cloud_before, cloud_now], is_raised);
        self.place_links(kinematic, links);
        self.search();
        let Self { now, before, raised, hidden, seeds, seed_of_cell, onward, .. } = self;
        let context = Context { now, before, raised, hidden };
        let (seeds, cells) = (&seeds[..], &seed_of_cell[..]);
        let places = particles.positions.par_iter().zip(&particles.colors).with_min_len(64);
        let results = motions.par_iter_mut().zip(onward).zip(&mut *confidences);
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
        let Particles { positions, colors, .. } = particles;
        let moving = Moving {
            positions,
            colors,
            motions: &*motions,
            confidences: &*confidences,
            support_m: support,
        };
        self.bodies.find(&moving, kinematic[1], &mut self.onward);
    }

    /// How far each particle of the last call will move in the next step (m), if the rigid motion
    /// of its body goes on, or of its patch where that is of none: other than its last motion where
    /// that is a rotation.
    pub fn onward(&self) -> &[Vec3] {
        &self.onward
    }

    /// What each particle of the last call is told of the body that it belongs to; zeros where that is
    /// none: the support plane and the robot.
    pub fn bodies(&self) -> &[[f32; N_BODY_FEATURES]] {
        self.bodies.features()
    }

    /// Sorts the clouds and takes the moments of the points off the support plane.
    fn prepare(&mut self, [before, now]: [&Particles; 2], is_raised: impl Fn(&Vec3) -> bool) {
        self.now.rebuild(&now.positions, &now.colors, CELL_M);
        self.before.rebuild(&before.positions, &before.colors, CELL_M);
        self.raised_positions.clear();
        self.raised_colors.clear();
        self.raised_hidden.clear();
        self.shadows.rebuild(before);
        for (i, p) in now.positions.iter().enumerate().filter(|(_, p)| is_raised(p)) {
            self.raised_positions.push(*p);
            self.raised_colors.push(now.colors[i]);
            let source = now.sources.get(i);
            let is_hidden = source.is_some_and(|&source| self.shadows.hide(p, source));
            self.raised_hidden.push(is_hidden);
        }
        self.raised.rebuild(&self.raised_positions, &self.raised_colors, SEED_M);
        self.hidden.clear();
        self.hidden.extend(self.raised.order().iter().map(|&i| self.raised_hidden[i as usize]));
        self.seeds.clear();
        self.seed_of_cell.clear();
        self.seed_of_cell.resize(self.raised.n_cells(), u32::MAX);
        for (cell, seed) in self.seed_of_cell.iter_mut().enumerate() {
            let points = self.raised.points_in(cell);
            if !points.is_empty() {
                *seed = self.seeds.len() as u32;
                let place = (points.start + points.end) / 2;
                let position = self.raised.point(place).0;
                self.seeds.push(Seed::new(place, position));
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
        let Self {
            now,
            before,
            raised,
            hidden,
            links,
            seeds,
            exchanged,
            patches,
            seed_of_cell,
            consensus,
            ..
        } = self;
        let context = Context { now, before, raised, hidden };
        let (links, cells) = (&links[..], &seed_of_cell[..]);
        seeds.par_iter_mut().zip(&mut patches[..]).for_each(|(seed, patch)| {
            start(&context, links, seed, patch);
        });
        for _ in 0..ROUNDS {
            exchanged.clone_from(seeds);
            exchanged.iter_mut().for_each(|seed| seed.settle(&context, seeds, cells));
            std::mem::swap(seeds, exchanged);
        }
        for _ in 0..ROUNDS {
            exchanged.clone_from(seeds);
            let known = &seeds[..];
            exchanged.par_iter_mut().zip(&patches[..]).for_each(|(seed, patch)| {
                exchange(&context, known, cells, seed, patch);
            });
            std::mem::swap(seeds, exchanged);
        }
        consensus.agree(&context, cells, seeds, patches);
    }
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
