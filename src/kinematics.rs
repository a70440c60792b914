//! The robot's kinematic particles: points on its moving links, placed by joint positions.

mod guard;
mod order;
mod surface;
mod tree;

use crate::error::{Error, Result};
use nalgebra::{Isometry3, Point3};
use std::ops::Range;
use tree::Tree;

pub use order::JointOrder;

/// How particles are spread over the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Evenly by area.
    Even,
    /// Denser towards the tips, where a robot touches things: each link nearer to the root has half
    /// the density, down to a sixteenth.
    Tips,
}

/// A robot from its URDF, with points on the surfaces of the links that its joints move.
///
/// Links that no joint moves (the base) have no particles: they are scene.
#[derive(Debug, Clone)]
pub struct Robot {
    tree: Tree,
    link_names: Vec<String>,
    world_from_root: Isometry3<f64>,
    /// Particles in the frames of their links.
    points: Vec<Point3<f64>>,
    /// Node of each link with particles, and their range in `points`; in ascending order.
    runs: Vec<(usize, Range<usize>)>,
    /// Poses of the tree's nodes: scratch of `place`.
    world_from_link: Vec<Isometry3<f64>>,
    /// What was read otherwise than its author may expect, for the log.
    pub warnings: Vec<String>,
}

impl Robot {
    /// Reads a URDF and puts `n_points` particles on its moving links, by area.
    ///
    /// Positions come out in `world_frame` if the URDF has such a link, fixed to the root;
    /// otherwise the root link is taken to be at the world's origin (a warning says so) unless
    /// [`Robot::set_root_pose`] tells better. Meshes are not loaded: see `warnings`.
    ///
    /// # Errors
    /// [`Error::Urdf`] if the text is over 4 MiB, is not URDF, is not one tree, has joint types
    /// other than fixed, revolute, continuous and prismatic, or no moving link has a geometry.
    pub fn from_urdf(text: &str, n_points: usize, world_frame: &str) -> Result<Self> {
        Self::with_spread(text, n_points, world_frame, Spread::Even)
    }

    /// As [`Robot::from_urdf`], the particles spread as `spread` says.
    ///
    /// # Errors
    /// As [`Robot::from_urdf`].
    pub fn with_spread(
        text: &str,
        n_points: usize,
        world_frame: &str,
        spread: Spread,
    ) -> Result<Self> {
        guard::check_text(text)?;
        let urdf = urdf_rs::read_from_string(text).map_err(|e| urdf_error(e.to_string()))?;
        let tree = Tree::new(&urdf)?;
        let name = |node: &tree::Node| urdf.links[node.link].name.clone();
        let mut robot = Self {
            link_names: tree.nodes.iter().map(name).collect(),
            world_from_root: Isometry3::identity(),
            points: Vec::new(),
            runs: Vec::new(),
            world_from_link: Vec::with_capacity(tree.nodes.len()),
            warnings: Vec::new(),
            tree,
        };
        robot.find_world(world_frame)?;
        robot.put_points(&urdf, n_points, spread)?;
        Ok(robot)
    }

    /// Names of the independent joints: moving, and not mimicking; in the order of the URDF.
    pub fn joint_names(&self) -> &[String] {
        &self.tree.joint_names
    }

    /// Number of particles.
    pub fn n_points(&self) -> usize {
        self.points.len()
    }

    /// Number of the link that holds each particle, ascending from 0.
    pub fn links(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.runs).flat_map(|(link, (_, range))| range.clone().map(move |_| link))
    }

    /// Puts the root link at `world_from_root` (metres).
    pub fn set_root_pose(&mut self, world_from_root: Isometry3<f64>) {
        self.world_from_root = world_from_root;
    }

    /// Replaces `out` by the positions of all particles (world frame, m), link by link.
    ///
    /// `positions`: rad or m, one per [`Robot::joint_names`]. Particle `i` is always the same
    /// point of the robot.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of positions, [`Error::Plan`] if one is not finite.
    pub fn place(&mut self, positions: &[f64], out: &mut Vec<[f32; 3]>) -> Result<()> {
        self.update(positions)?;
        out.clear();
        for (node, range) in &self.runs {
            let world_from_link = &self.world_from_link[*node];
            let points = self.points[range.clone()].iter();
            out.extend(
                points.map(|point| <[f32; 3]>::from((world_from_link * point).cast().coords)),
            );
        }
        Ok(())
    }

    /// Poses of all links, parents first: name, and the transform of its points into the world
    /// frame (metres).
    ///
    /// # Errors
    /// As [`Robot::place`].
    pub fn link_poses(
        &mut self,
        positions: &[f64],
    ) -> Result<impl Iterator<Item = (&str, &Isometry3<f64>)>> {
        self.update(positions)?;
        Ok(self.link_names.iter().map(String::as_str).zip(&self.world_from_link))
    }

    fn update(&mut self, positions: &[f64]) -> Result<()> {
        let names = &self.tree.joint_names;
        if positions.len() != names.len() {
            let (expected, got) = (names.len(), positions.len());
            return Err(Error::Shape { what: "joint positions", expected, got });
        }
        if let Some(i) = positions.iter().position(|position| !position.is_finite()) {
            let problem = format!("position {} of joint '{}'", positions[i], names[i]);
            return Err(Error::Plan { problem });
        }
        self.world_from_link.clear();
        for (i, node) in self.tree.nodes.iter().enumerate() {
            let parent =
                if i == 0 { &self.world_from_root } else { &self.world_from_link[node.parent] };
            let pose = parent * node.parent_from_link(positions);
            self.world_from_link.push(pose);
        }
        Ok(())
    }

    fn find_world(&mut self, world_frame: &str) -> Result<()> {
        let Some(world) = self.link_names.iter().position(|name| name == world_frame) else {
            let root = &self.link_names[0];
            self.warnings.push(format!(
                "the robot description has no link '{world_frame}': its root '{root}' is taken to \
                 be there"
            ));
            return Ok(());
        };
        if self.tree.nodes[world].moves {
            return Err(urdf_error(format!("world frame '{world_frame}' is a link that moves")));
        }
        let still = vec![0.0; self.joint_names().len()];
        self.update(&still)?;
        self.world_from_root = self.world_from_link[world].inverse();
        Ok(())
    }

    /// Shares `n_points` out over the patches of all moving links.
    fn put_points(&mut self, urdf: &urdf_rs::Robot, n_points: usize, spread: Spread) -> Result<()> {
        let mut patches = Vec::new();
        let mut meshes = Vec::new();
        for (i, node) in self.tree.nodes.iter().enumerate().filter(|(_, node)| node.moves) {
            let children = self.tree.nodes.iter().filter(|child| child.parent == i);
            let children: Vec<_> = children.map(|child| child.origin.translation.vector).collect();
            let surface = surface::surface(&urdf.links[node.link], &children)?;
            if surface.from_mesh {
                meshes.push(self.link_names[i].as_str());
            }
            patches.extend(surface.patches.into_iter().map(|patch| (i, patch)));
        }
        if !meshes.is_empty() {
            let links = meshes.join(", ");
            self.warnings.push(format!(
                "meshes are not loaded: particles of {links} lie on lines to their child joints; \
                 give them primitive collision shapes for better ones"
            ));
        }
        if spread == Spread::Tips {
            let heights = self.heights(&patches);
            for (node, patch) in &mut patches {
                patch.area *= 0.5f64.powi(heights[*node].min(4));
            }
        }
        let total: f64 = patches.iter().map(|(_, patch)| patch.area).sum();
        if n_points > 0 && !(total.is_finite() && total > 0.0) {
            return Err(urdf_error("no link that a joint moves has a surface"));
        }
        let mut area = 0.0;
        for (node, patch) in &patches {
            area += patch.area;
            let end = ((area / total * n_points as f64).round() as usize).min(n_points);
            self.extend_run(*node, patch, end);
        }
        if let Some((node, patch)) = patches.last() {
            // Rounding of the sum can leave the last point out.
            self.extend_run(*node, patch, n_points);
        }
        Ok(())
    }

    /// Links with a surface between each node and the farthest tip below it.
    fn heights(&self, patches: &[(usize, surface::Patch)]) -> Vec<i32> {
        let mut heights = vec![0; self.tree.nodes.len()];
        // Children come behind their parents.
        for (i, node) in self.tree.nodes.iter().enumerate().skip(1).rev() {
            let counts = patches.iter().any(|(with_surface, _)| *with_surface == i);
            heights[node.parent] = heights[node.parent].max(heights[i] + i32::from(counts));
        }
        heights
    }

    /// Adds points of `patch` until there are `end`.
    fn extend_run(&mut self, node: usize, patch: &surface::Patch, end: usize) {
        let start = self.points.len();
        let uvs = (0..end.saturating_sub(start)).map(surface::low_discrepancy);
        self.points.extend(uvs.map(|[u, v]| patch.point(u, v)));
        match self.runs.last_mut() {
            Some((last, range)) if *last == node => range.end = self.points.len(),
            _ if end > start => self.runs.push((node, start..end)),
            _ => {}
        }
    }
}

fn urdf_error(problem: impl Into<String>) -> Error {
    Error::Urdf { problem: problem.into() }
}

#[cfg(test)]
mod tests;
