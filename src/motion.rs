//! Motion of each particle over the last step, estimated from two clouds without correspondences.
//!
//! Around a particle, points of like colour form a lump. Its mean is taken in the cloud now, and in
//! the cloud one step back under a window that is shifted until the lump lies in it as it does now
//! (kernel-based tracking, Comaniciu et al. 2003, here over colour and position in 3-D). The shift
//! is the lump's translation; none where the scatter of the samples explains it.

use rayon::prelude::*;

use crate::ops::simd::vectorize;
use crate::particles::Particles;

type Vec3 = [f32; 3];

/// Radius of the kernel over positions, in metres: about an object.
const RADIUS_M: f32 = 0.08;
/// First radius in the cloud one step back: how far a lump may have moved.
const REACH_M: f32 = 0.14;
/// Radius of the kernel over colours (0..1 per channel).
const COLOR_RADIUS: f32 = 0.15;
/// Iterations of the shift behind the first, wider one.
const ITERATIONS: usize = 3;
/// Shifts below this many standard errors count as none.
const STANDARD_ERRORS: f32 = 2.0;
/// Masses that differ by up to this factor count as equal.
const MASS_RATIO: f32 = 1.6;
/// Cells along an axis at most: a point far out must not make the grid large.
const MAX_CELLS: usize = 64;
/// Kernel mass (points at the very centre count 1) below which a lump counts as lost.
const MIN_MASS: f32 = 0.5;
const LANES: usize = 16;

/// Estimates motions, keeping its memory between calls.
#[derive(Debug, Default, Clone)]
pub struct MotionEstimator {
    now: Grid,
    before: Grid,
}

impl MotionEstimator {
    /// Estimates how far each of `particles` moved from `cloud_before` to `cloud_now` (m), and how
    /// sure that is: 0 where nothing like it was there before, up to 1.
    pub fn estimate(
        &mut self,
        particles: &Particles,
        cloud_now: &Particles,
        cloud_before: &Particles,
        motions: &mut Vec<Vec3>,
        confidences: &mut Vec<f32>,
    ) {
        self.now.rebuild(cloud_now);
        self.before.rebuild(cloud_before);
        motions.resize(particles.len(), [0.0; 3]);
        confidences.resize(particles.len(), 0.0);
        let (now, before) = (&self.now, &self.before);
        let places = particles.positions.par_iter().zip(&particles.colors).with_min_len(64);
        places.zip(motions).zip(confidences).for_each(
            |(((position, color), motion), confidence)| {
                (*motion, *confidence) = vectorize(|| track(now, before, position, color));
            },
        );
    }
}

/// Translation of the lump around one particle, and the confidence in it.
#[inline(always)]
fn track(now: &Grid, before: &Grid, position: &Vec3, color: &Vec3) -> (Vec3, f32) {
    let center = now.mean(position, color, RADIUS_M).position;
    let (here, there) = (now.mean(&center, color, RADIUS_M), before.mean(&center, color, RADIUS_M));
    if stays(&here, &there) {
        return ([0.0; 3], 1.0);
    }
    let mut shift = [0.0; 3];
    let mut lost = false;
    for iteration in 0..=ITERATIONS {
        let radius = if iteration == 0 { REACH_M } else { RADIUS_M };
        let here = now.mean(&center, color, radius);
        let there = before.mean(&minus(&center, &shift), color, radius);
        lost |= here.mass < MIN_MASS || there.mass < MIN_MASS;
        shift = minus(&here.position, &there.position);
    }
    let there = before.mean(&minus(&center, &shift), color, RADIUS_M);
    if lost || there.mass < MIN_MASS {
        return ([0.0; 3], 0.0);
    }
    (shift, (there.mass / here.mass).min(1.0))
}

/// Whether two lumps under the same window differ by no more than the samples' scatter explains.
#[inline(always)]
fn stays(here: &Lump, there: &Lump) -> bool {
    let ratio = there.mass / here.mass.max(f32::MIN_POSITIVE);
    let variance = here.spread / here.mass + there.spread / there.mass;
    let shift = minus(&here.position, &there.position);
    let length: f32 = shift.iter().map(|s| s * s).sum();
    (1.0 / MASS_RATIO..=MASS_RATIO).contains(&ratio)
        && length < STANDARD_ERRORS * STANDARD_ERRORS * variance
}

fn minus(a: &Vec3, b: &Vec3) -> Vec3 {
    std::array::from_fn(|axis| a[axis] - b[axis])
}

/// Kernel-weighted moments of a lump.
struct Lump {
    /// Mean position (m).
    position: Vec3,
    /// Sum of the weights.
    mass: f32,
    /// Mean squared distance to the mean (m²).
    spread: f32,
}

/// Points sorted into cubic cells, cells along x adjacent in memory.
#[derive(Debug, Default, Clone)]
struct Grid {
    origin: Vec3,
    cells: [usize; 3],
    starts: Vec<u32>,
    order: Vec<u32>,
    /// x, y, z, red, green, blue of each point, in cell order.
    columns: [Vec<f32>; 6],
}

impl Grid {
    fn rebuild(&mut self, cloud: &Particles) {
        let positions = &cloud.positions;
        let bound = |init: f32, pick: fn(f32, f32) -> f32| -> Vec3 {
            std::array::from_fn(|axis| positions.iter().fold(init, |m, p| pick(m, p[axis])))
        };
        let (min, max) = (bound(f32::INFINITY, f32::min), bound(f32::NEG_INFINITY, f32::max));
        self.origin = min;
        self.cells = std::array::from_fn(|axis| {
            let extent = ((max[axis] - min[axis]) / RADIUS_M).max(0.0);
            (extent as usize + 1).min(MAX_CELLS)
        });
        let n_cells = self.cells.iter().product::<usize>();
        self.starts.clear();
        self.starts.resize(n_cells + 2, 0);
        for p in positions {
            let cell = self.cell(p);
            self.starts[cell + 2] += 1;
        }
        for c in 2..self.starts.len() {
            self.starts[c] += self.starts[c - 1];
        }
        self.order.resize(positions.len(), 0);
        for (i, p) in positions.iter().enumerate() {
            let cell = self.cell(p);
            let at = &mut self.starts[cell + 1];
            self.order[*at as usize] = i as u32;
            *at += 1;
        }
        for (axis, column) in self.columns.iter_mut().enumerate() {
            let values = if axis < 3 { positions } else { &cloud.colors };
            column.clear();
            column.extend(self.order.iter().map(|&i| values[i as usize][axis % 3]));
        }
    }

    fn cell(&self, p: &Vec3) -> usize {
        let [x, y, z] = self.coordinates(p, 0.0);
        (z * self.cells[1] + y) * self.cells[0] + x
    }

    /// Cell of `p + offset` along each axis, the outermost for what lies outside.
    #[inline(always)]
    fn coordinates(&self, p: &Vec3, offset: f32) -> [usize; 3] {
        std::array::from_fn(|axis| {
            let c = ((p[axis] + offset - self.origin[axis]) / RADIUS_M).max(0.0) as usize;
            c.min(self.cells[axis] - 1)
        })
    }

    /// Kernel-weighted moments around `center` of the points like `color`.
    #[inline(always)]
    fn mean(&self, center: &Vec3, color: &Vec3, radius: f32) -> Lump {
        let (low, high) = (self.coordinates(center, -radius), self.coordinates(center, radius));
        let mut sums = [[0.0f32; LANES]; 5];
        for z in low[2]..=high[2] {
            for y in low[1]..=high[1] {
                let row = (z * self.cells[1] + y) * self.cells[0];
                let (from, to) = (self.starts[row + low[0]], self.starts[row + high[0] + 1]);
                self.add(from as usize..to as usize, center, color, radius, &mut sums);
            }
        }
        let [x, y, z, squares, mass] = sums.map(|lanes| lanes.iter().sum::<f32>());
        if mass <= 0.0 {
            return Lump { position: *center, mass: 0.0, spread: 0.0 };
        }
        // Offsets from the centre are summed: no cancellation far from the origin.
        let offset = [x, y, z].map(|sum| sum / mass);
        Lump {
            position: std::array::from_fn(|axis| center[axis] + offset[axis]),
            mass,
            spread: (squares / mass - offset.iter().map(|o| o * o).sum::<f32>()).max(0.0),
        }
    }

    #[inline(always)]
    fn add(
        &self,
        range: std::ops::Range<usize>,
        center: &Vec3,
        color: &Vec3,
        radius: f32,
        sums: &mut [[f32; LANES]; 5],
    ) {
        let [x, y, z, r, g, b] = self.columns.each_ref().map(|column| &column[range.clone()]);
        let (near, alike) = (1.0 / (radius * radius), 1.0 / (COLOR_RADIUS * COLOR_RADIUS));
        for i in 0..x.len() {
            let lane = i % LANES;
            let (dx, dy, dz) = (x[i] - center[0], y[i] - center[1], z[i] - center[2]);
            let (dr, dg, db) = (r[i] - color[0], g[i] - color[1], b[i] - color[2]);
            let squares = dx * dx + dy * dy + dz * dz;
            // Epanechnikov kernels.
            let position = (1.0 - near * squares).max(0.0);
            let hue = (1.0 - alike * (dr * dr + dg * dg + db * db)).max(0.0);
            let weight = position * hue;
            sums[0][lane] += weight * dx;
            sums[1][lane] += weight * dy;
            sums[2][lane] += weight * dz;
            sums[3][lane] += weight * squares;
            sums[4][lane] += weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::random::{draw, uniform};

    /// A grey table and a red ball above it, the ball moved by `shift`; each cloud sampled anew.
    fn scene(seed: u64, shift: Vec3) -> Particles {
        let u = |i: u64, stream: u64| uniform(draw(seed, 0, i, stream));
        let mut cloud = Particles::default();
        for i in 0..4000 {
            cloud.positions.push([u(i, 0) - 0.5, u(i, 1) - 0.5, 0.0]);
            cloud.colors.push([0.5, 0.5, 0.5]);
        }
        for i in 4000..4150 {
            let (angle, z) = (std::f32::consts::TAU * u(i, 0), 2.0 * u(i, 1) - 1.0);
            let ring = (1.0 - z * z).sqrt() * 0.03;
            let ball = [0.1 + ring * angle.cos(), ring * angle.sin(), 0.04 + 0.03 * z];
            cloud.positions.push(std::array::from_fn(|a| ball[a] + shift[a]));
            cloud.colors.push([0.8, 0.1, 0.1]);
        }
        cloud
    }

    #[test]
    fn finds_the_motion_of_an_object_and_the_rest_of_the_table() {
        for shift in [[0.05, -0.03, 0.02], [0.0, 0.0, 0.0], [-0.08, 0.06, 0.0]] {
            let (before, now) = (scene(1, [0.0; 3]), scene(2, shift));
            let (mut motions, mut sure) = (Vec::new(), Vec::new());
            MotionEstimator::default().estimate(&now, &now, &before, &mut motions, &mut sure);
            let error = |i: usize, truth: Vec3| -> f32 {
                (0..3).map(|a| (motions[i][a] - truth[a]).powi(2)).sum::<f32>().sqrt()
            };
            let ball: f32 = (4000..4150).map(|i| error(i, shift)).sum::<f32>() / 150.0;
            let table: f32 = (0..4000).map(|i| error(i, [0.0; 3])).sum::<f32>() / 4000.0;
            assert!(ball < 0.006, "ball off by {ball} m for {shift:?}");
            assert!(table < 0.006, "table off by {table} m");
            assert!(sure[4000..].iter().all(|&c| c > 0.6));
        }
    }

    #[test]
    fn what_was_not_there_is_unknown() {
        let (mut before, now) = (scene(1, [0.0; 3]), scene(2, [0.0; 3]));
        before.positions.truncate(4000);
        before.colors.truncate(4000);
        let (mut motions, mut sure) = (Vec::new(), Vec::new());
        let mut estimator = MotionEstimator::default();
        estimator.estimate(&now, &now, &before, &mut motions, &mut sure);
        assert!(sure[4000..].iter().all(|&c| c == 0.0));
        assert!(motions[4000..].iter().all(|&m| m == [0.0; 3]));
        // Nothing at all before.
        estimator.estimate(&now, &now, &Particles::default(), &mut motions, &mut sure);
        assert!(sure.iter().all(|&c| c == 0.0));
    }
}
