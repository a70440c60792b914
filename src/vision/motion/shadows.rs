//! Where cameras could not see one step back, because something stood in between.

use crate::base::geometry::{Vec3, length, minus};
use crate::vision::particles::Particles;

/// Cells along a side of each of the six faces of the cube about a camera: 1.4° wide at most, about
/// as far apart as the points of a sample lie.
const SIDE: usize = 64;
const CELLS: usize = 6 * SIDE * SIDE;

/// The range of the nearest point in each direction from each camera.
#[derive(Debug, Default, Clone)]
pub(super) struct Shadows {
    eyes: Vec<Vec3>,
    ranges: Vec<f32>,
}

impl Shadows {
    /// Takes what `cloud` shows; points without a source are no camera's.
    pub(super) fn rebuild(&mut self, cloud: &Particles) {
        self.eyes.clone_from(&cloud.eyes);
        self.ranges.clear();
        self.ranges.resize(self.eyes.len() * CELLS, f32::INFINITY);
        for (position, &source) in cloud.positions.iter().zip(&cloud.sources) {
            if let Some((cell, range)) = self.find(position, source) {
                self.ranges[cell] = self.ranges[cell].min(range);
            }
        }
    }

    /// Whether the camera that sees a point now could not have seen it then, had it been there,
    /// for something nearer by `gap_m`.
    pub(super) fn hide(&self, position: &Vec3, source: u32, gap_m: f32) -> bool {
        self.find(position, source).is_some_and(|(cell, range)| self.ranges[cell] + gap_m < range)
    }

    /// Cell of a point as its camera sees it, and its range (m); none where it is not known.
    fn find(&self, position: &Vec3, source: u32) -> Option<(usize, f32)> {
        let camera = (source >> 24) as usize;
        let d = minus(position, self.eyes.get(camera)?);
        let axis = (0..3).max_by(|&i, &j| d[i].abs().total_cmp(&d[j].abs()))?;
        let along = d[axis];
        let cell = |x: f32| (((x / along.abs() + 1.0) * 0.5 * SIDE as f32) as usize).min(SIDE - 1);
        let face = 2 * axis + usize::from(along < 0.0);
        let [row, column] = [cell(d[(axis + 1) % 3]), cell(d[(axis + 2) % 3])];
        let range = length(&d);
        // Not for cameras of unknown places (NaN).
        (range > 0.0).then_some((camera * CELLS + (face * SIDE + row) * SIDE + column, range))
    }
}
