//! Where the scene changed between two frames, told by the depth images alone.
//!
//! A point that was measured on a surface at one of the two times *changed* if a camera saw
//! through it at the other time, *stayed* if it lay on a surface then, and says nothing if it was
//! hidden. A place is in a moving region if enough of the points around it changed.

use crate::observed::Observed;
use crate::surface::Sight;
use forecloud::Result;
use forecloud::base::geometry::{PointTree, Vec3};
use rayon::prelude::*;

/// Radius around a place within which points say whether it moved (m).
pub const RADIUS_M: f32 = 0.03;
/// Share of the points around a place that must have changed for a moving region.
pub const MOVING_SHARE: f64 = 0.1;
/// Points that must have changed at least: one alone may be noise.
const MIN_CHANGED: usize = 2;
/// Points that must be there to say anything.
const MIN_KNOWN: usize = 3;

/// What the scene did around a point between two frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Region {
    /// It changed.
    Moving,
    /// It stayed.
    Static,
    /// The point is the robot's, by the distance to its model at the measured joints.
    Robot,
    /// Nothing is known: hidden at one of the two times.
    Hidden,
}

impl Region {
    /// All regions, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Moving, Self::Static, Self::Robot, Self::Hidden];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Moving => "moving",
            Self::Static => "static",
            Self::Robot => "robot",
            Self::Hidden => "hidden",
        }
    }
}

/// Points of two frames that changed or stayed between them.
#[derive(Debug)]
pub struct Change {
    points: PointTree,
    changed: Vec<bool>,
}

impl Change {
    /// Between two frames, in either order.
    ///
    /// # Errors
    /// As [`PointTree::new`].
    pub fn between(a: &Observed, b: &Observed) -> Result<Self> {
        let test = |points: &[Vec3], other: &Observed| -> Vec<(Vec3, bool)> {
            let tested = points.par_iter().with_min_len(256).filter_map(|point| {
                match other.surfaces.look(point)? {
                    Sight::InFront(_) => Some((*point, true)),
                    Sight::Agrees => Some((*point, false)),
                    Sight::Behind => None,
                }
            });
            tested.collect()
        };
        let known = [test(&a.tested, b), test(&b.tested, a)].concat();
        let (points, changed): (Vec<Vec3>, Vec<bool>) = known.into_iter().unzip();
        Ok(Self { points: PointTree::new(&points)?, changed })
    }

    /// The regions that the points `at` (world frame, m) lie in; `robot` is the frame whose robot
    /// they may belong to.
    pub fn regions(&self, at: &[Vec3], robot: &Observed) -> Vec<Region> {
        let region = |x: &Vec3| if robot.is_robot(x) { Region::Robot } else { self.region(x) };
        at.par_iter().with_min_len(64).map(region).collect()
    }

    fn region(&self, x: &Vec3) -> Region {
        let (mut n_known, mut n_changed) = (0, 0);
        for i in self.points.within(x, RADIUS_M) {
            n_known += 1;
            n_changed += usize::from(self.changed[i]);
        }
        if n_known < MIN_KNOWN {
            Region::Hidden
        } else if n_changed >= MIN_CHANGED && n_changed as f64 >= MOVING_SHARE * n_known as f64 {
            Region::Moving
        } else {
            Region::Static
        }
    }
}

#[cfg(test)]
mod tests;
