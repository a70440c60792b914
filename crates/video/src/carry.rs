//! Particles of pictures, carried by those of a prediction.

use forecloud::Result;
use forecloud::base::geometry::{PointTree, Vec3, distance, minus, plus};

/// Farther than this from all predicted particles (m), as beyond the workspace, nothing moves.
const REACH_M: f32 = 0.05;

/// Which predicted particle each point goes with: the one next to it.
pub struct Guides {
    of_points: Vec<Option<usize>>,
}

impl Guides {
    /// Of `points` (m) by `particles`, where both are seen.
    ///
    /// # Errors
    /// As [`PointTree::new`].
    pub fn new(points: &[Vec3], particles: &[Vec3]) -> Result<Self> {
        let tree = PointTree::new(particles)?;
        let guide = |point: &Vec3| {
            let nearest = tree.nearest_one(point)?;
            (distance(&particles[nearest], point) <= REACH_M).then_some(nearest)
        };
        Ok(Self { of_points: points.iter().map(guide).collect() })
    }

    /// Where `points` are (m) when the particles have gone from `particles` to `to`.
    pub fn carry(&self, points: &[Vec3], particles: &[Vec3], to: &[Vec3]) -> Vec<Vec3> {
        let carried = |(point, guide): (&Vec3, &Option<usize>)| match *guide {
            Some(guide) => plus(point, &minus(&to[guide], &particles[guide])),
            None => *point,
        };
        points.iter().zip(&self.of_points).map(carried).collect()
    }

    /// Adds the gradient of a loss by the places of the points, `d_points`, to that by the places that the
    /// particles have gone to.
    pub fn carry_backward(&self, d_points: &[Vec3], d_particles: &mut [Vec3]) {
        for (d, guide) in d_points.iter().zip(&self.of_points) {
            if let Some(guide) = *guide {
                d_particles[guide] = plus(&d_particles[guide], d);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTICLES: [Vec3; 2] = [[0.0; 3], [0.1, 0.0, 0.0]];
    const POINTS: [Vec3; 4] =
        [[0.01, 0.0, 0.0], [0.12, 0.01, 0.0], [0.2, 0.0, 0.0], [0.1, 0.02, 0.0]];

    #[test]
    fn points_go_with_the_particle_next_to_them() {
        let to = [PARTICLES[0], [0.1, 0.0, 0.04]];
        let guides = Guides::new(&POINTS, &PARTICLES).unwrap();
        let carried = guides.carry(&POINTS, &PARTICLES, &to);
        assert_eq!(carried, [POINTS[0], [0.12, 0.01, 0.04], POINTS[2], [0.1, 0.02, 0.04]]);
        let alone = Guides::new(&POINTS, &[]).unwrap();
        assert_eq!(alone.carry(&POINTS, &[], &[]), POINTS, "nobody to go with");
    }

    #[test]
    fn gradients_of_points_are_those_of_their_particle() {
        let guides = Guides::new(&POINTS, &PARTICLES).unwrap();
        let d_points = [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [9.0; 3], [0.0, 1.0, 4.0]];
        let mut d = [[0.5, 0.0, 0.0], [0.0; 3]];
        guides.carry_backward(&d_points, &mut d);
        assert_eq!(d, [[1.5, 0.0, 0.0], [0.0, 3.0, 4.0]]);
    }
}
