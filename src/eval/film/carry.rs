//! Particles of pictures, carried by a prediction.

use crate::Result;
use crate::geometry::{PointTree, Vec3, distance, plus};
use crate::prediction::Prediction;

/// Farther than this from all predicted particles (m), as beyond the workspace, nothing moves.
const REACH_M: f32 = 0.05;

/// Where the points at `positions` (m) are after each step, `[horizon][n]`: each goes with the predicted
/// particle next to it.
///
/// # Errors
/// As [`PointTree::new`].
pub(super) fn carried(positions: &[Vec3], prediction: &Prediction) -> Result<Vec<Vec<Vec3>>> {
    let particles = &prediction.particles.positions;
    let tree = PointTree::new(particles)?;
    let guide = |position: &Vec3| {
        let nearest = tree.nearest_one(position)?;
        (distance(&particles[nearest], position) <= REACH_M).then_some(nearest)
    };
    let guides: Vec<Option<usize>> = positions.iter().map(guide).collect();
    let mut now = positions.to_vec();
    let step = |displacements: &Vec<Vec3>| {
        for (position, guide) in now.iter_mut().zip(&guides) {
            let way = guide.and_then(|guide| displacements.get(guide));
            *position = way.map_or(*position, |way| plus(position, way));
        }
        now.clone()
    };
    Ok(prediction.displacements.iter().map(step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_go_with_the_particle_next_to_them() {
        let mut prediction = Prediction::default();
        prediction.particles.positions = vec![[0.0; 3], [0.1, 0.0, 0.0]];
        prediction.displacements = vec![vec![[0.0; 3], [0.0, 0.0, 0.02]]; 2];
        let points = [[0.01, 0.0, 0.0], [0.12, 0.01, 0.0], [0.2, 0.0, 0.0]];
        let places = carried(&points, &prediction).unwrap();
        assert_eq!(places[1], [points[0], [0.12, 0.01, 0.04], points[2]]);
        assert_eq!(carried(&points, &Prediction::default()).unwrap().len(), 0);
        prediction.particles.positions.clear();
        assert_eq!(carried(&points, &prediction).unwrap()[1], points);
    }
}
