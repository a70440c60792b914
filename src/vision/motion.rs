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
mod grid;
mod normal;
mod patch;
mod seeds;
mod settings;
mod shadows;
mod sums;

use rayon::prelude::*;

use crate::Result;
use crate::base::geometry::{Rigid, RigidMotion, Vec3, minus};
use crate::vision::particles::Particles;
use bodies::{Bodies, Place};
use consensus::Consensus;
use grid::Grid;
use patch::{Context, Patch};
use seeds::{Seed, assign, exchange, start};
use shadows::Shadows;

pub use bodies::N_BODY_FEATURES;
pub(crate) use bodies::{MOTION_SCALE_M, NEARNESS_M, is_free};
pub use settings::Settings;

/// What the motion of a step is estimated from: two frames, one step apart, in the world frame (m).
#[derive(Debug, Clone, Copy)]
pub struct TwoFrames<'a> {
    /// Particles now, whose motion is wanted.
    pub particles: &'a Particles,
    /// Denser clouds before and now. What lies on the plane of `support_m` of the cloud now is taken
    /// to rest; without one, nothing is. Where the cloud before has `eyes`, and both have sources, what
    /// comes into view is taken to rest.
    pub clouds: [&'a Particles; 2],
    /// Points on the robot before and now, in correspondence; they may be none.
    pub robot: [&'a [Vec3]; 2],
    /// The number of the link of each of these, ascending.
    pub links: &'a [u32],
    /// Whether a camera moved in between: what rests may then seem to move, by what tf errs.
    pub camera_moved: bool,
}

/// What is known of the motion of `n` particles over the last step, and told of the next one.
#[derive(Debug, Default, Clone)]
pub struct PastMotion {
    /// How far each moved over the last step (m), `[n]`.
    pub motions: Vec<Vec3>,
    /// How sure that is, `[n]`: 0 where nothing like it was there before, up to 1.
    pub confidences: Vec<f32>,
    /// How far each will move in the next step (m), `[n]`, if its body goes on, or its patch where that
    /// is of none: straight on with its centre, and turning about that.
    pub extrapolated_motion: Vec<Vec3>,
    /// What each is told of the body that it belongs to, `[n]`; zeros where that is none: the support
    /// plane and the robot.
    pub bodies: Vec<[f32; N_BODY_FEATURES]>,
    /// Number of that body, `[n]`; [`NO_BODY`] for none.
    pub body_of: Vec<u32>,
    /// Motions of the bodies in the next step, by their numbers; none of those too small to tell.
    pub body_motions: Vec<Option<RigidMotion>>,
}

/// The number of no body.
pub const NO_BODY: u32 = u32::MAX;

impl PastMotion {
    /// Nothing is known of `n` particles.
    pub fn forget(&mut self, n: usize) {
        for vectors in [&mut self.motions, &mut self.extrapolated_motion] {
            vectors.clear();
            vectors.resize(n, [0.0; 3]);
        }
        self.confidences.clear();
        self.confidences.resize(n, 0.0);
        self.bodies.clear();
        self.bodies.resize(n, [0.0; N_BODY_FEATURES]);
        self.body_of.clear();
        self.body_of.resize(n, NO_BODY);
        self.body_motions.clear();
    }
}

/// Estimates motions, keeping its memory between calls: what [`MotionEstimator::estimate`] does is all
/// that the rest of the house knows of it.
#[derive(Debug, Default, Clone)]
pub struct MotionEstimator {
    settings: Settings,
    /// The settings with lengths for the clouds at hand.
    scaled: Settings,
    now: Grid,
    before: Grid,
    /// Points of the cloud now off the support plane.
    raised: Grid,
    /// Which these are.
    raised_indices: Vec<u32>,
    raised_positions: Vec<Vec3>,
    raised_colors: Vec<Vec3>,
    /// Whether each of them could not be seen one step back, in the order of the grid.
    hidden: Vec<bool>,
    shadows: Shadows,
    links: Vec<(Vec3, Rigid)>,
    seeds: Vec<Seed>,
    exchanged: Vec<Seed>,
    /// Patches of the seeds that are not surely at rest.
    patches: Vec<Patch>,
    seed_of_cell: Vec<u32>,
    bodies: Bodies,
    consensus: Consensus,
}

impl MotionEstimator {
    /// An estimator of other than the default settings.
    ///
    /// # Errors
    /// As [`Settings::validate`].
    pub fn new(settings: Settings) -> Result<Self> {
        settings.validate()?;
        Ok(Self { settings, ..Self::default() })
    }

    /// Estimates how the particles of `frames` moved, into `found`.
    pub fn estimate(&mut self, frames: &TwoFrames, found: &mut PastMotion) {
        let TwoFrames { particles, clouds, robot, links, camera_moved } = *frames;
        found.forget(particles.len());
        if clouds.iter().any(|cloud| cloud.is_empty()) {
            return;
        }
        let (support, band_m) = (clouds[1].support_m, self.settings.rest_band_m);
        let is_raised = |p: &Vec3| support.is_none_or(|height| (p[2] - height).abs() > band_m);
        self.prepare(clouds, is_raised);
        self.place_links(robot, links);
        self.search(camera_moved);
        self.assign(particles, is_raised, found);
        let Particles { positions, colors, .. } = particles;
        let place = Place { positions, colors, robot: robot[1], support_m: support };
        self.bodies.find(&self.settings, &place, found);
    }

    /// Gives each particle the motion of the seed that suits it best.
    fn assign(
        &self,
        particles: &Particles,
        is_raised: impl Fn(&Vec3) -> bool + Sync,
        found: &mut PastMotion,
    ) {
        let Self { scaled: settings, now, before, raised, hidden, seeds, .. } = self;
        let cells = &self.seed_of_cell[..];
        let context = Context { settings, now, before, raised, hidden };
        let places = particles.positions.par_iter().zip(&particles.colors).with_min_len(64);
        let PastMotion { motions, extrapolated_motion, confidences, .. } = found;
        let results = motions.par_iter_mut().zip(extrapolated_motion).zip(confidences);
        places.zip(results).for_each(
            |((position, color), ((motion, extrapolated_motion), confidence))| {
                if !is_raised(position) {
                    *confidence = 1.0;
                    return;
                }
                let best = assign(&context, seeds, cells, position, color);
                if let Some(seed) = best.filter(|seed| seed.found >= settings.min_found) {
                    *motion = minus(position, &seed.pose.apply(position));
                    *extrapolated_motion = seed.extrapolated_motion(position);
                    *confidence = seed.found.min(1.0);
                }
            },
        );
    }

    /// Sorts the clouds, and the points off the support plane.
    fn prepare(&mut self, [before, now]: [&Particles; 2], is_raised: impl Fn(&Vec3) -> bool) {
        self.raised_indices.clear();
        self.raised_positions.clear();
        self.raised_colors.clear();
        for (i, p) in now.positions.iter().enumerate().filter(|(_, p)| is_raised(p)) {
            self.raised_indices.push(i as u32);
            self.raised_positions.push(*p);
            self.raised_colors.push(now.colors[i]);
        }
        let Self { settings, raised, shadows, raised_positions, raised_colors, .. } = self;
        let sort = |raised: &mut Grid, cell_m| {
            raised.rebuild(raised_positions, raised_colors, cell_m);
        };
        rayon::join(|| shadows.rebuild(before), || sort(raised, settings.seed_spacing_m));
        let factor = settings.coarsening(raised_positions.len(), raised.cells.n_filled());
        self.scaled = settings.scaled(factor);
        let Settings { cell_m, seed_spacing_m, shadow_gap_m, .. } = self.scaled;
        if factor > 1.0 {
            sort(raised, seed_spacing_m);
        }
        rayon::join(
            || self.now.rebuild(&now.positions, &now.colors, cell_m),
            || self.before.rebuild(&before.positions, &before.colors, cell_m),
        );
        self.hidden.clear();
        self.hidden.extend(self.raised.cells.order().iter().map(|&place| {
            let (i, p) = (self.raised_indices[place as usize], &raised_positions[place as usize]);
            let source = now.sources.get(i as usize);
            source.is_some_and(|&source| shadows.hide(p, source, shadow_gap_m))
        }));
        self.place_seeds();
    }

    /// Puts a seed in each cell of these.
    fn place_seeds(&mut self) {
        self.seeds.clear();
        self.seed_of_cell.clear();
        self.seed_of_cell.resize(self.raised.cells.n_cells(), u32::MAX);
        for (cell, seed) in self.seed_of_cell.iter_mut().enumerate() {
            let points = self.raised.cells.points_in(cell);
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

    /// Finds the motion of every seed's patch; what only hangs together need not agree where a `camera_moved`.
    fn search(&mut self, camera_moved: bool) {
        let Self {
            scaled: settings,
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
        let context = Context { settings, now, before, raised, hidden };
        let (links, cells) = (&links[..], &seed_of_cell[..]);
        seeds.par_iter_mut().zip(&mut patches[..]).for_each(|(seed, patch)| {
            start(&context, links, seed, patch);
        });
        for _ in 0..context.settings.exchange_rounds {
            exchanged.clone_from(seeds);
            exchanged.iter_mut().for_each(|seed| seed.settle(&context, seeds, cells));
            std::mem::swap(seeds, exchanged);
        }
        for _ in 0..context.settings.exchange_rounds {
            exchanged.clone_from(seeds);
            let known = &seeds[..];
            exchanged.par_iter_mut().zip(&mut patches[..]).for_each(|(seed, patch)| {
                exchange(&context, known, cells, seed, patch);
            });
            std::mem::swap(seeds, exchanged);
        }
        consensus.agree(&context, cells, seeds, patches, camera_moved);
    }
}

#[cfg(test)]
mod tests;
