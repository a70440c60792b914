//! Particles sorted into cells, and the places of rays that have some near.

use super::Ray;
use crate::config::{N_NEIGHBORS, VideoConfig};
use forecloud::base::geometry::{Cells, Vec3, bounds, length, squared_distance};
use forecloud::{Error, Result};

/// Cells at most: memory is bounded however far apart particles lie.
const MAX_CELLS: f32 = 4e6;
/// Particles' squared distance where there are no more.
const NOBODY: f32 = f32::INFINITY;

/// A place of a ray, and the particles near it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Along the optical axis (m).
    pub(super) depth_m: f32,
    /// In the world frame (m).
    pub(super) place: Vec3,
    /// Indices of the nearest particles, by distance, then index; so many as count.
    pub(super) indices: [u32; N_NEIGHBORS],
    /// Their squared distances (m²); infinite behind the last.
    pub(super) squared: [f32; N_NEIGHBORS],
    pub(super) n: usize,
}

impl Sample {
    /// Indices of the particles near it.
    pub(super) fn neighbors(&self) -> impl Iterator<Item = usize> + '_ {
        self.indices[..self.n].iter().map(|&i| i as usize)
    }
}

/// Where particles are.
pub(super) struct Field {
    cells: Cells,
    counts: [usize; 3],
    origin: Vec3,
    per_m: f32,
    /// Positions (m) in the order of the cells.
    sorted: Vec<Vec3>,
    /// The same, in the order that they came in.
    pub(super) positions: Vec<Vec3>,
    /// Whether a place in a cell may have a particle as near as [`VideoConfig::empty_m`].
    is_near: Vec<bool>,
    config: VideoConfig,
}

impl Field {
    /// # Errors
    /// [`Error::NonFinite`].
    pub(super) fn new(positions: &[Vec3], config: &VideoConfig) -> Result<Self> {
        if !positions.iter().flatten().all(|x| x.is_finite()) {
            return Err(Error::NonFinite { what: "positions of the particles of a picture" });
        }
        let [low, high] = if positions.is_empty() { [[0.0; 3]; 2] } else { bounds(positions) };
        let margin = config.empty_m;
        let origin = low.map(|x| x - margin);
        let extent: [f32; 3] = std::array::from_fn(|axis| high[axis] - low[axis] + 2.0 * margin);
        // Half of what is looked for: few cells around a place, and few particles too many.
        let mut cell_m = 0.5 * config.reach_m;
        let count = |cell_m: f32| extent.map(|x| (x / cell_m).ceil().max(1.0));
        while count(cell_m).iter().product::<f32>() > MAX_CELLS {
            cell_m *= 1.25;
        }
        let counts = count(cell_m).map(|n| n as usize);
        let mut cells = Cells::default();
        cells.rebuild(positions, origin, cell_m, counts);
        let sorted = cells.order().iter().map(|&i| positions[i as usize]).collect();
        let mut is_near = vec![false; cells.n_cells()];
        for position in positions {
            // A little more: places are rounded.
            cells.near(position, 1.001 * config.empty_m, |cell| is_near[cell] = true);
        }
        let (positions, per_m) = (positions.to_vec(), 1.0 / cell_m);
        Ok(Self { cells, counts, origin, per_m, sorted, positions, is_near, config: *config })
    }

    /// Adds the next places of `ray` that are not empty to `samples`, `n_most` at most, from step `step`
    /// on, which is left where the next call goes on.
    pub(super) fn look(&self, ray: &Ray, step: &mut u32, n_most: usize, samples: &mut Vec<Sample>) {
        let VideoConfig { near_m, far_m, step_m, .. } = self.config;
        let scale = length(&ray.direction);
        let (depth_step, mut n) = (step_m / scale, 0);
        // Also false of directions that are not finite.
        while n < n_most && scale > 0.0 {
            let depth_m = near_m + (*step as f32 + ray.shift) * depth_step;
            if depth_m >= far_m || depth_m.is_nan() {
                break;
            }
            *step += 1;
            let place =
                std::array::from_fn(|axis| ray.origin[axis] + depth_m * ray.direction[axis]);
            if self.may_be_near(&place)
                && let Some(sample) = self.sample(place, depth_m)
            {
                samples.push(sample);
                n += 1;
            }
        }
    }

    fn may_be_near(&self, place: &Vec3) -> bool {
        let mut at = [0; 3];
        for axis in 0..3 {
            let cell = (place[axis] - self.origin[axis]) * self.per_m;
            if !(0.0..self.counts[axis] as f32).contains(&cell) {
                return false;
            }
            at[axis] = cell as usize;
        }
        self.is_near[self.cells.index(at)]
    }

    /// The place with its nearest particles; none if it is empty.
    fn sample(&self, place: Vec3, depth_m: f32) -> Option<Sample> {
        let (reach_m, empty_m) = (self.config.reach_m, self.config.empty_m);
        let (mut indices, mut squared) = ([0; N_NEIGHBORS], [NOBODY; N_NEIGHBORS]);
        let order = self.cells.order();
        // Most places are told by what is nearest to them: few look farther.
        for radius_m in [empty_m.max(0.5 * reach_m), reach_m] {
            squared = [NOBODY; N_NEIGHBORS];
            let mut worst = radius_m * radius_m;
            self.cells.near_rows(&place, radius_m, |row| {
                for at in row {
                    let distance = squared_distance(&place, &self.sorted[at]);
                    if distance > worst {
                        continue;
                    }
                    let index = order[at];
                    let mut i = N_NEIGHBORS;
                    while i > 0 && (distance, index) < (squared[i - 1], indices[i - 1]) {
                        i -= 1;
                    }
                    if i < N_NEIGHBORS {
                        squared.copy_within(i..N_NEIGHBORS - 1, i + 1);
                        indices.copy_within(i..N_NEIGHBORS - 1, i + 1);
                        (squared[i], indices[i]) = (distance, index);
                        worst = worst.min(squared[N_NEIGHBORS - 1]);
                    }
                }
            });
            if squared[N_NEIGHBORS - 1] < NOBODY || squared[0] > empty_m * empty_m {
                break;
            }
        }
        let n = squared.iter().take_while(|squared| **squared < NOBODY).count();
        (squared[0] <= empty_m * empty_m).then_some(Sample { depth_m, place, indices, squared, n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::base::geometry::dot;
    use forecloud::base::random::{draw, uniform};

    #[test]
    fn places_are_those_of_the_plain_search() {
        let config = VideoConfig::default();
        let u = |i: u64, stream| uniform(draw(5, 0, i, stream));
        let points: Vec<Vec3> =
            (0..700).map(|i| [0.4 * u(i, 0), 0.3 * u(i, 1), 0.1 * u(i, 2)]).collect();
        let field = Field::new(&points, &config).unwrap();
        for i in 0..40 {
            let direction = [0.3 * u(i, 3) - 0.1, 0.2 * u(i, 4) - 0.1, -1.0];
            let ray = Ray { origin: [0.2, 0.15, 0.8], direction, shift: u(i, 5) };
            let (mut samples, mut step) = (Vec::new(), 0);
            // In two goes.
            field.look(&ray, &mut step, 2, &mut samples);
            field.look(&ray, &mut step, 1000, &mut samples);
            let mut found = samples.iter();
            let depth_step = config.step_m / dot(&direction, &direction).sqrt();
            for k in 0..1000 {
                let depth_m = config.near_m + (k as f32 + ray.shift) * depth_step;
                if depth_m >= config.far_m {
                    break;
                }
                let place: Vec3 = std::array::from_fn(|a| ray.origin[a] + depth_m * direction[a]);
                let keys = points.iter().zip(0u32..).map(|(p, i)| (squared_distance(&place, p), i));
                let mut keys: Vec<_> = keys.filter(|key| key.0 <= config.reach_m.powi(2)).collect();
                keys.sort_by(|a, b| a.partial_cmp(b).unwrap());
                keys.truncate(N_NEIGHBORS);
                if keys.first().is_some_and(|key| key.0 <= config.empty_m.powi(2)) {
                    let sample = found.next().expect("a place that is not empty");
                    assert_eq!(sample.depth_m, depth_m);
                    let got = sample.indices[..sample.n].iter().copied();
                    assert!(got.eq(keys.iter().map(|key| key.1)), "ray {i}, place {k}");
                }
            }
            assert!(found.next().is_none(), "no more places");
        }
    }

    #[test]
    fn what_is_far_apart_is_no_burden() {
        let config = VideoConfig::default();
        let far = Field::new(&[[-4e3, 0.0, 0.0], [5e3, 6e3, 7e3]], &config).unwrap();
        assert!(far.cells.n_cells() < 5_000_000);
        assert!(Field::new(&[[f32::NAN; 3]], &config).is_err());
        let ray = Ray { origin: [0.0; 3], direction: [0.0, 0.0, 1.0], shift: 0.0 };
        for (field, n_expected) in [
            (Field::new(&[], &config).unwrap(), 0),
            (Field::new(&[[0.0, 0.0, 1.0]], &config).unwrap(), 5),
        ] {
            let mut samples = Vec::new();
            field.look(&ray, &mut 0, 100, &mut samples);
            assert_eq!(samples.len(), n_expected);
            field.look(&Ray { direction: [f32::NAN; 3], ..ray }, &mut 0, 100, &mut samples);
            assert_eq!(samples.len(), n_expected);
        }
    }
}
