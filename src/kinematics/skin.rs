//! Which points lie on the robot: its whole surface, much denser than its particles, link by link.

use super::surface::{Patch, low_discrepancy};
use crate::Result;
use crate::geometry::{PointTree, Vec3, dot, length, minus};
use nalgebra::{Isometry3, Point3};
use std::sync::Arc;

/// Points on the whole surface: about a centimetre apart on an arm.
const N_POINTS: usize = 16_384;
/// Farthest that a point lies off the surface (m): what depth and calibration are good for.
const OFF_M: f32 = 0.008;
/// Farthest that it lies from a known point of the surface (m): somewhat more than these lie apart.
const REACH_M: f32 = 0.02;

/// The surface of all links with particles.
#[derive(Debug, Clone, Default)]
pub(super) struct Skin {
    links: Vec<Arc<LinkSkin>>,
}

/// The surface of a link, in its own frame.
#[derive(Debug)]
struct LinkSkin {
    node: usize,
    points: Vec<Vec3>,
    normals: Vec<Vec3>,
    tree: PointTree,
    /// A ball about all of it.
    center: Point3<f32>,
    radius_m: f32,
}

impl Skin {
    /// Of the `patches` of the robot's nodes, ascending; `nodes` are those that have particles. What
    /// stands for meshes that could not be read is no surface, and holds nothing.
    ///
    /// # Errors
    /// As [`PointTree::new`].
    pub(super) fn new(patches: &[(usize, Patch)], nodes: &[usize]) -> Result<Self> {
        let total: f64 = patches.iter().map(|(_, patch)| patch.area).sum();
        let of_node = |&node: &usize| {
            let (mut points, mut normals) = (Vec::new(), Vec::new());
            for (_, patch) in patches.iter().filter(|(other, _)| *other == node) {
                let n_points = (patch.area / total * N_POINTS as f64).ceil() as usize;
                for [u, v] in (0..n_points.min(N_POINTS)).map(low_discrepancy) {
                    let Some(normal) = patch.normal(u, v) else { break };
                    points.push(patch.point(u, v).cast().coords.into());
                    normals.push(normal.cast().into());
                }
            }
            Ok(Arc::new(LinkSkin::new(node, points, normals)?))
        };
        Ok(Self { links: nodes.iter().map(of_node).collect::<Result<_>>()? })
    }

    /// The number of the link whose surface the point `p` (world frame, m) lies on, if any, where the
    /// links stand at `world_from_node`; the nearest of several.
    pub(super) fn link_at(&self, p: &Vec3, world_from_node: &[Isometry3<f32>]) -> Option<u32> {
        let off = |(link, skin): (u32, &Arc<LinkSkin>)| {
            let there = world_from_node[skin.node].inverse_transform_point(&Point3::from(*p));
            Some((skin.off_m(&there)?, link))
        };
        let found = (0..).zip(&self.links).filter_map(off);
        found.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, link)| link)
    }
}

impl LinkSkin {
    fn new(node: usize, points: Vec<Vec3>, normals: Vec<Vec3>) -> Result<Self> {
        let bound = |f: fn(f32, f32) -> f32, start: f32, axis: usize| {
            points.iter().map(|p| p[axis]).fold(start, f)
        };
        let middle = |axis| {
            0.5 * (bound(f32::min, f32::INFINITY, axis) + bound(f32::max, -f32::INFINITY, axis))
        };
        let center: Vec3 = if points.is_empty() { [0.0; 3] } else { std::array::from_fn(middle) };
        let radius = points.iter().map(|p| length(&minus(p, &center)));
        let radius_m = radius.fold(-f32::INFINITY, f32::max);
        let tree = PointTree::new(&points)?;
        Ok(Self { node, tree, center: center.into(), radius_m, points, normals })
    }

    /// How far `p` (link frame, m) lies off the surface, if it lies on it.
    fn off_m(&self, p: &Point3<f32>) -> Option<f32> {
        if (p - self.center).norm() > self.radius_m + REACH_M {
            return None;
        }
        let p: Vec3 = p.coords.into();
        let nearest = self.tree.nearest_one(&p)?;
        let offset = minus(&p, &self.points[nearest]);
        let off_m = dot(&offset, &self.normals[nearest]).abs();
        (length(&offset) <= REACH_M && off_m <= OFF_M).then_some(off_m)
    }
}
