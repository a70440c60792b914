//! The robot's kinematic particles: points on its moving links, placed by joint positions.

mod guard;
mod jacobian;
mod limits;
mod mesh;
mod mounting;
mod order;
mod surface;
mod surface_index;
mod tree;

use crate::base::error::{Error, Result};
use mesh::Meshes;
use nalgebra::{Isometry3, Point3};
use rayon::prelude::*;
use std::ops::Range;
use surface_index::Skin;
use tree::Tree;

pub use jacobian::ReachFor;
pub use limits::JointLimits;
pub use mesh::MeshSearch;
pub use mounting::{Mount, Mounting, Outline, RobotMode};
pub use order::JointOrder;
pub use surface_index::SurfacePoint;

/// The number of no link.
pub const NO_LINK: u32 = u32::MAX;

/// How particles are spread over the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Evenly by area.
    Even,
    /// Denser towards the tips, where a robot touches things: each link nearer to the root has half
    /// the density, down to a sixteenth.
    Tips,
}

/// How a robot is made of its description.
#[derive(Debug, Clone, Copy)]
pub struct RobotOptions<'a> {
    /// Number of particles.
    pub n_points: usize,
    /// How they are spread over the links.
    pub spread: Spread,
    /// Frame of the positions; see [`Robot::from_urdf`].
    pub world_frame: &'a str,
    /// Where meshes are looked for.
    pub meshes: &'a MeshSearch,
}

/// A robot from its URDF, with points on the surfaces of the links that its joints move.
///
/// Links that no joint moves (the base) have no particles: they are scene.
#[derive(Debug, Clone)]
pub struct Robot {
    tree: Tree,
    link_names: Vec<String>,
    world_from_root: Isometry3<f64>,
    /// Whether the description does not tell where the root stands.
    is_rooted_by_tf: bool,
    /// As [`Mount::free`].
    free: Vec<Isometry3<f64>>,
    /// Particles in the frames of their links.
    points: Vec<Point3<f64>>,
    /// Node of each link with particles, and their range in `points`; in ascending order.
    runs: Vec<(usize, Range<usize>)>,
    skin: Skin,
    /// Of the independent joints.
    limits: Vec<JointLimits>,
    /// Poses of the tree's nodes: scratch of `place`.
    world_from_link: Vec<Isometry3<f64>>,
    /// What was read otherwise than its author may expect, for the log.
    pub warnings: Vec<String>,
}

impl Robot {
    /// Reads a URDF and puts `n_points` particles on its moving links, by area.
    ///
    /// Positions come out in `world_frame` if the URDF has such a link, fixed to the root;
    /// otherwise the root link is at the world's origin until [`Robot::set_mount`] tells where it
    /// stands ([`Robot::mounting`] says whether that is needed). Meshes are looked for where the
    /// environment says ([`MeshSearch::default`]); a link whose meshes can't be read gets particles on
    /// the lines to its child joints, and `warnings` says so.
    ///
    /// # Errors
    /// [`Error::Urdf`] if the text is over 4 MiB, is not URDF (or still xacro), is not one tree, has
    /// spherical joints, or no moving link has a geometry.
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
        let meshes = &MeshSearch::default();
        Self::with_options(text, &RobotOptions { n_points, spread, world_frame, meshes })
    }

    /// As [`Robot::from_urdf`], with meshes looked for as `options` say: the files are read here,
    /// and never again.
    ///
    /// # Errors
    /// As [`Robot::from_urdf`].
    pub fn with_options(text: &str, options: &RobotOptions) -> Result<Self> {
        let (mut robot, urdf) = Self::without_points(text, options.world_frame)?;
        robot.put_points(&urdf, options)?;
        Ok(robot)
    }

    /// Links and joints alone: no mesh is read.
    fn without_points(text: &str, world_frame: &str) -> Result<(Self, urdf_rs::Robot)> {
        let text = guard::checked(text)?;
        let urdf = urdf_rs::read_from_string(&text).map_err(|e| urdf_error(e.to_string()))?;
        let tree = Tree::new(&urdf)?;
        let name = |node: &tree::Node| urdf.links[node.link].name.clone();
        let mut robot = Self {
            link_names: tree.nodes.iter().map(name).collect(),
            world_from_root: Isometry3::identity(),
            is_rooted_by_tf: false,
            free: vec![Isometry3::identity(); tree.n_free],
            points: Vec::new(),
            runs: Vec::new(),
            skin: Skin::default(),
            limits: limits::of_joints(&urdf, &tree.joint_names),
            world_from_link: Vec::with_capacity(tree.nodes.len()),
            warnings: Vec::new(),
            tree,
        };
        robot.find_world(world_frame)?;
        Ok((robot, urdf))
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

    /// Name of the link that holds each particle.
    pub fn links_of_points(&self) -> impl Iterator<Item = &str> {
        let name = |node: usize| self.link_names[node].as_str();
        self.runs.iter().flat_map(move |(node, range)| range.clone().map(move |_| name(*node)))
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

    /// The number of the link (as in [`Robot::links`]) that each of `points` (world frame, m) lies on
    /// where the robot was placed last, into `out`; [`NO_LINK`] for none. Links whose meshes could not
    /// be read have no surface.
    pub fn links_at(&self, points: &[[f32; 3]], out: &mut Vec<u32>) {
        let at: Vec<Isometry3<f32>> = self.world_from_link.iter().map(|pose| pose.cast()).collect();
        out.resize(points.len(), NO_LINK);
        let rows = out.par_iter_mut().zip(points).with_min_len(64);
        rows.for_each(|(link, p)| *link = self.skin.link_at(p, &at).unwrap_or(NO_LINK));
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
            let pose = parent * node.parent_from_link(positions, &self.free);
            self.world_from_link.push(pose);
        }
        Ok(())
    }

    /// Shares `n_points` out over the patches of all moving links.
    fn put_points(&mut self, urdf: &urdf_rs::Robot, options: &RobotOptions) -> Result<()> {
        let &RobotOptions { n_points, spread, .. } = options;
        let mut patches = Vec::new();
        let mut guessed = Vec::new();
        let mut meshes = Meshes::new(options.meshes);
        for (i, node) in self.tree.nodes.iter().enumerate().filter(|(_, node)| node.moves) {
            let children = self.tree.nodes.iter().filter(|child| child.parent == i);
            let children: Vec<_> = children.map(|child| child.origin.translation.vector).collect();
            let surface = surface::surface(&urdf.links[node.link], &children, &mut meshes)?;
            if surface.is_guess {
                guessed.push(self.link_names[i].as_str());
            }
            patches.extend(surface.patches.into_iter().map(|patch| (i, patch)));
        }
        self.warnings.extend(meshes.warnings());
        if !guessed.is_empty() {
            let links = guessed.join(", ");
            self.warnings.push(format!(
                "no mesh could be used of {links}: their particles lie on lines to their child \
                 joints"
            ));
        }
        let surfaces = patches.clone();
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
        let nodes: Vec<usize> = self.runs.iter().map(|(node, _)| *node).collect();
        self.skin = Skin::new(&surfaces, &nodes, n_points)?;
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
