//! What is seen of objects: points, and how those of a track look together.

use crate::base::geometry::{Vec3, add, minus};
use crate::message::Stamp;

/// Particles that may be of objects; equally long.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Where each is (m).
    pub positions: Vec<Vec3>,
    /// How far each moves in a step if it goes on as it came (m), and whether that is known.
    pub motions: Vec<Vec3>,
    pub known: Vec<bool>,
    /// Colours in 0..1.
    pub colors: Vec<Vec3>,
    /// How far each is predicted to move in the next step (m).
    pub ahead: Vec<Vec3>,
}

/// How it looked when it was last seen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    pub stamp: Stamp,
    pub n: u32,
    pub center: Vec3,
    /// Half of its largest extent along an axis (m).
    pub radius_m: f32,
    pub color: Vec3,
    /// Mean motion in a step as measured, and as predicted (m).
    pub motion: Vec3,
    pub ahead: Vec3,
}

/// What is summed over the points of a track.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sums {
    pub n: u32,
    n_known: u32,
    center: Vec3,
    color: Vec3,
    motion: Vec3,
    ahead: Vec3,
    least: Vec3,
    most: Vec3,
}

impl Default for Sums {
    fn default() -> Self {
        let zero = [0.0; 3];
        Self {
            n: 0,
            n_known: 0,
            center: zero,
            color: zero,
            motion: zero,
            ahead: zero,
            least: [f32::INFINITY; 3],
            most: [f32::NEG_INFINITY; 3],
        }
    }
}

impl Sums {
    /// Adds point `i`.
    pub fn add(&mut self, seen: &Seen, i: usize) {
        let p = &seen.positions[i];
        self.n += 1;
        add(&mut self.center, p);
        add(&mut self.color, &seen.colors[i]);
        add(&mut self.ahead, &seen.ahead[i]);
        if seen.known[i] {
            self.n_known += 1;
            add(&mut self.motion, &seen.motions[i]);
        }
        self.least = std::array::from_fn(|axis| p[axis].min(self.least[axis]));
        self.most = std::array::from_fn(|axis| p[axis].max(self.most[axis]));
    }

    /// How they look.
    pub fn look(&self, stamp: Stamp) -> Look {
        let mean = |v: &Vec3, n: u32| v.map(|x| x / n.max(1) as f32);
        let extents = minus(&self.most, &self.least);
        Look {
            stamp,
            n: self.n,
            center: mean(&self.center, self.n),
            radius_m: 0.5 * extents.into_iter().fold(0.0, f32::max),
            color: mean(&self.color, self.n),
            motion: mean(&self.motion, self.n_known),
            ahead: mean(&self.ahead, self.n),
        }
    }
}
