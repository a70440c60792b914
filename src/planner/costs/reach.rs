//! How far the target is from where it is to be.

use nalgebra::{Isometry3, Point3, Quaternion, Translation3, UnitQuaternion};

use super::goal::{Reach, Zone, distance, refused};
use crate::Result;
use crate::vision::cloud::Workspace;

/// Where the particles of a target are wanted.
#[derive(Debug, Clone)]
pub(super) enum Aim {
    Box(Zone),
    Cloud(Vec<[f64; 3]>),
    /// Place of each, and the motion.
    Each(Vec<[f64; 3]>, Isometry3<f64>),
}

impl Aim {
    /// For a target that is at `places` now.
    pub fn new(reach: &Reach, places: &[[f64; 3]], workspace: &Workspace) -> Result<Self> {
        let [min, max] = [workspace.min, workspace.max].map(|corner| corner.map(f64::from));
        let space = Zone { min, max };
        let outside = |field: &str, at: [f64; 3]| {
            refused(
                field,
                format!(
                    "{at:.3?} lies outside of the workspace {min:.3?} to {max:.3?} (m, world \
                     frame), where nothing is predicted: choose a goal in it, or widen the workspace"
                ),
            )
        };
        match reach {
            Reach::Box(zone) => {
                let meets = (0..3).all(|a| zone.min[a] <= max[a] && zone.max[a] >= min[a]);
                if meets { Ok(Self::Box(*zone)) } else { outside("box", zone.center()) }
            }
            Reach::Cloud(points) => match points.iter().find(|p| !space.contains(p)) {
                Some(p) => outside("cloud", *p),
                None => Ok(Self::Cloud(points.clone())),
            },
            Reach::Pose { rotation: [x, y, z, w], translation } => {
                let rotation = UnitQuaternion::from_quaternion(Quaternion::new(*w, *x, *y, *z));
                let motion = Isometry3::from_parts(Translation3::from(*translation), rotation);
                let moved = |p: &[f64; 3]| (motion * Point3::from(*p)).coords.into();
                let wanted: Vec<[f64; 3]> = places.iter().map(moved).collect();
                let middle = mean(&wanted);
                match space.contains(&middle) {
                    true => Ok(Self::Each(wanted, motion)),
                    false => outside("motion", middle),
                }
            }
        }
    }

    /// Of the target at `places`, in the order that it was made of (m).
    pub fn distance(&self, places: &[[f64; 3]]) -> f64 {
        let n = places.len().max(1) as f64;
        match self {
            Self::Box(zone) => {
                places.iter().map(|p| distance(p, &zone.nearest(p))).sum::<f64>() / n
            }
            Self::Cloud(cloud) => {
                let mut back = vec![f64::INFINITY; cloud.len()];
                let mut there = 0.0;
                for p in places {
                    let mut nearest = f64::INFINITY;
                    for (q, back) in cloud.iter().zip(&mut back) {
                        let squared = (0..3).map(|a| (p[a] - q[a]) * (p[a] - q[a])).sum::<f64>();
                        nearest = nearest.min(squared);
                        *back = back.min(squared);
                    }
                    there += nearest.sqrt();
                }
                let back: f64 = back.iter().map(|squared| squared.sqrt()).sum();
                0.5 * (there / n + back / cloud.len().max(1) as f64)
            }
            Self::Each(wanted, _) => {
                places.iter().zip(wanted).map(|(p, q)| distance(p, q)).sum::<f64>() / n
            }
        }
    }

    /// Where a particle at `p` is wanted; on a cloud its middle.
    pub fn wanted(&self, p: &[f64; 3]) -> [f64; 3] {
        match self {
            Self::Box(zone) => zone.nearest(p),
            Self::Cloud(cloud) => mean(cloud),
            Self::Each(_, motion) => (motion * Point3::from(*p)).coords.into(),
        }
    }
}

/// Middle of points.
pub(super) fn mean(points: &[[f64; 3]]) -> [f64; 3] {
    let n = points.len().max(1) as f64;
    std::array::from_fn(|axis| points.iter().map(|p| p[axis]).sum::<f64>() / n)
}
