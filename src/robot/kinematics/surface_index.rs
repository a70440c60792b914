//! Which points lie on the robot: its whole surface, much denser than its particles, link by link.

use super::Robot;
use super::surface::{Patch, low_discrepancy};
use crate::Result;
use crate::base::geometry::{PointTree, Vec3, bounds, dot, length, minus};
use nalgebra::{Isometry3, Point3, Vector3};
use std::sync::Arc;

/// Points on the whole surface for each of the robot's particles, and at most: about a centimetre apart
/// on an arm of 1,024.
const DENSITY: usize = 16;
const MAX_POINTS: usize = 16_384;
/// Farthest that a point lies off the surface (m): what depth and calibration are good for.
const OFF_M: f32 = 0.008;
/// Farthest that it lies from a known point of the surface (m): somewhat more than these lie apart.
const REACH_M: f32 = 0.02;

/// How far beside a point of the surface the next one may be, as a share of their usual distance.
const NEXT: f32 = 0.7;

/// The surface of all links with particles.
#[derive(Debug, Clone, Default)]
pub(super) struct Skin {
    links: Vec<Arc<LinkSkin>>,
    /// About how far the points lie apart (m).
    spacing_m: f64,
}

/// A point of the robot's surface, where the robot was placed last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SurfacePoint {
    /// Number of its link, in the order of [`Robot::link_poses`].
    pub link: usize,
    /// Where it is (world frame, m).
    pub position: Vec3,
    /// Normal of the surface (world frame), either way round.
    pub normal: Vec3,
}

impl Robot {
    /// Points all over the surface of the links that joints move, at `positions` (as
    /// [`Robot::place`]), into `out`: link by link, the same points each time, about
    /// [`Robot::surface_spacing_m`] apart. Links whose meshes could not be read have none.
    ///
    /// # Errors
    /// As [`Robot::place`].
    pub fn place_surface(&mut self, positions: &[f64], out: &mut Vec<SurfacePoint>) -> Result<()> {
        self.update(positions)?;
        out.clear();
        for skin in &self.skin.links {
            let pose: Isometry3<f32> = self.world_from_link[skin.node].cast();
            out.extend(skin.points.iter().zip(&skin.normals).map(|(point, normal)| {
                let position = (pose * Point3::from(*point)).coords.into();
                let normal = (pose.rotation * Vector3::from(*normal)).into();
                SurfacePoint { link: skin.node, position, normal }
            }));
        }
        Ok(())
    }

    /// Poses of the links that have points (world frame), in the order of [`Robot::links`], at `positions` (as
    /// [`Robot::place`]): added to `out`.
    ///
    /// # Errors
    /// As [`Robot::place`].
    pub fn place_links(&mut self, positions: &[f64], out: &mut Vec<Isometry3<f32>>) -> Result<()> {
        self.update(positions)?;
        out.extend(self.runs.iter().map(|(node, _)| self.world_from_link[*node].cast()));
        Ok(())
    }

    /// Names of these links, in the same order.
    pub fn names_of_links(&self) -> impl ExactSizeIterator<Item = &str> {
        self.runs.iter().map(|(node, _)| self.link_names[*node].as_str())
    }

    /// Number of these links.
    pub fn n_links(&self) -> usize {
        self.runs.len()
    }

    /// Distance of `p` (frame of the link, m) from the surface of the link of this number, which encloses no
    /// inside: a point in its middle is as far from it as one before it. None of a link whose mesh could not be
    /// read.
    pub fn distance_m(&self, link: usize, p: &Vec3) -> Option<f32> {
        self.skin.links.get(link)?.distance_m(p, self.skin.spacing_m as f32)
    }

    /// Least and greatest coordinates of the link's surface (frame of the link, m); the wrong way round without
    /// any.
    pub fn bounds_of_link(&self, link: usize) -> [Vec3; 2] {
        self.skin.links.get(link).map_or([[f32::INFINITY; 3], [f32::NEG_INFINITY; 3]], |s| s.bounds)
    }

    /// About how far the points of [`Robot::place_surface`] lie apart (m).
    pub fn surface_spacing_m(&self) -> f64 {
        self.skin.spacing_m
    }
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
    bounds: [Vec3; 2],
}

impl Skin {
    /// Of the `patches` of the robot's nodes; `nodes` are those that have some of its `n_particles`. What
    /// stands for meshes that could not be read is no surface, and holds nothing.
    ///
    /// # Errors
    /// As [`PointTree::new`].
    pub(super) fn new(
        patches: &[(usize, Patch)],
        nodes: &[usize],
        n_particles: usize,
    ) -> Result<Self> {
        let n_points = n_particles.saturating_mul(DENSITY).min(MAX_POINTS);
        let total: f64 = patches.iter().map(|(_, patch)| patch.area).sum();
        let of_node = |&node: &usize| {
            let (mut points, mut normals) = (Vec::new(), Vec::new());
            for (_, patch) in patches.iter().filter(|(other, _)| *other == node) {
                let n_points =
                    ((patch.area / total * n_points as f64).ceil() as usize).min(n_points);
                for [u, v] in (0..n_points).map(low_discrepancy) {
                    let Some(normal) = patch.normal(u, v) else { break };
                    points.push(patch.point(u, v).cast().coords.into());
                    normals.push(normal.cast().into());
                }
            }
            Ok(Arc::new(LinkSkin::new(node, points, normals)?))
        };
        let spacing_m = (total / n_points.max(1) as f64).sqrt();
        Ok(Self { links: nodes.iter().map(of_node).collect::<Result<_>>()?, spacing_m })
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
        let bounds = bounds(&points);
        let middle = |axis: usize| 0.5 * (bounds[0][axis] + bounds[1][axis]);
        let center: Vec3 = if points.is_empty() { [0.0; 3] } else { std::array::from_fn(middle) };
        let radius = points.iter().map(|p| length(&minus(p, &center)));
        let radius_m = radius.fold(-f32::INFINITY, f32::max);
        let tree = PointTree::new(&points)?;
        Ok(Self { node, tree, center: center.into(), radius_m, bounds, points, normals })
    }

    /// Distance of `p` (link frame, m) from the surface, of points about `spacing_m` apart: beside the nearest one
    /// there is more of the surface, in the plane of its normal.
    fn distance_m(&self, p: &Vec3, spacing_m: f32) -> Option<f32> {
        let nearest = self.tree.nearest_one(p)?;
        let offset = minus(p, &self.points[nearest]);
        let off = dot(&offset, &self.normals[nearest]);
        let along = (dot(&offset, &offset) - off * off).max(0.0).sqrt();
        Some(off.hypot((along - NEXT * spacing_m).max(0.0)))
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

#[cfg(test)]
mod tests {
    use crate::robot::kinematics::{NO_LINK, Robot};

    /// A bar of 20 x 4 x 4 cm that turns about z, and at its end a drum of 5 cm radius that slides
    /// along x.
    const ROBOT: &str = r#"<robot name="r"><link name="world"/>
        <link name="bar"><visual><origin xyz="0.1 0 0"/>
          <geometry><box size="0.2 0.04 0.04"/></geometry></visual></link>
        <link name="drum"><visual>
          <geometry><cylinder radius="0.05" length="0.1"/></geometry></visual></link>
        <joint name="turn" type="revolute"><parent link="world"/><child link="bar"/>
          <axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
        <joint name="slide" type="prismatic"><parent link="bar"/><child link="drum"/>
          <origin xyz="0.3 0 0"/><axis xyz="1 0 0"/>
          <limit lower="0" upper="1" effort="1" velocity="1"/></joint></robot>"#;

    fn links(turn: f64, slide: f64, points: &[[f32; 3]]) -> Vec<u32> {
        let mut robot = Robot::from_urdf(ROBOT, 1024, "world").unwrap();
        let (mut placed, mut links) = (Vec::new(), Vec::new());
        robot.place(&[turn, slide], &mut placed).unwrap();
        robot.links_at(points, &mut links);
        links
    }

    #[test]
    fn points_on_a_surface_are_its_links_and_others_nobodys() {
        let points = [
            [0.1, 0.02, 0.01],   // on the bar's side
            [0.1, 0.024, 0.01],  // 4 mm before it
            [0.1, 0.032, 0.01],  // 12 mm before it
            [0.1, 0.0, 0.0],     // in its middle
            [0.35, 0.0, 0.02],   // on the drum
            [0.3, 0.003, 0.051], // a little above its lid
            [0.3, 0.2, 0.0],     // far off
        ];
        let none = NO_LINK;
        assert_eq!(links(0.0, 0.0, &points), [0, 0, none, none, 1, 1, none]);
        // They go with the joints.
        assert_eq!(links(0.0, 0.5, &points), [0, 0, none, none, none, none, none]);
        let turned = points.map(|[x, y, z]| [-y, x, z]);
        assert_eq!(
            links(std::f64::consts::FRAC_PI_2, 0.0, &turned),
            [0, 0, none, none, 1, 1, none]
        );
    }

    #[test]
    fn the_surface_goes_with_its_links() {
        let mut robot = Robot::from_urdf(ROBOT, 256, "world").unwrap();
        let mut points = Vec::new();
        robot.place_surface(&[std::f64::consts::FRAC_PI_2, 0.5], &mut points).unwrap();
        let drum = robot.link_number("drum").unwrap();
        let (on_drum, on_bar): (Vec<super::SurfacePoint>, Vec<super::SurfacePoint>) =
            points.iter().partition(|p| p.link == drum);
        assert!(on_bar.iter().all(|p| p.position[0].abs() < 0.021 && p.position[1] < 0.201));
        assert!(on_drum.iter().all(|p| (0.749..0.851).contains(&p.position[1])), "at 0.8 m");
        let lid = |p: &&super::SurfacePoint| p.normal[2].abs() > 0.99;
        assert!(on_drum.iter().filter(lid).all(|p| (p.position[2].abs() - 0.05).abs() < 1e-6));
        assert!((0.003..0.01).contains(&robot.surface_spacing_m()));
    }

    #[test]
    fn meshes_that_cannot_be_read_hold_nothing() {
        let mesh = r#"<mesh filename="package://nowhere/bar.stl"/>"#;
        let text = ROBOT.replace(r#"<box size="0.2 0.04 0.04"/>"#, mesh);
        let mut robot = Robot::from_urdf(&text, 1024, "world").unwrap();
        let (mut placed, mut links) = (Vec::new(), Vec::new());
        robot.place(&[0.0, 0.0], &mut placed).unwrap();
        robot.links_at(&[[0.1, 0.0, 0.0], [0.35, 0.0, 0.0]], &mut links);
        assert_eq!(links, [NO_LINK, 1], "{:?}", robot.warnings);
    }
}
