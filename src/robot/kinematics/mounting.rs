//! What joint states don't tell of a robot: whether there is one, where its root stands, and how
//! the links lie that hang on floating and planar joints. Transforms (tf) tell.

use super::tree::Tree;
use super::{JointLimits, Robot, urdf_error};
use crate::base::error::{Error, Result};
use nalgebra::Isometry3;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Whether predictions need the robot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RobotMode {
    /// No prediction without its description and its joints.
    Required,
    /// Taken up as soon as it is known; predictions go on without it until then.
    #[default]
    Optional,
    /// There is none: nothing of it is read.
    None,
}

impl RobotMode {
    /// Modes by their names.
    pub const ALL: [(&str, Self); 3] =
        [("required", Self::Required), ("optional", Self::Optional), ("none", Self::None)];

    /// The mode of this name.
    ///
    /// # Errors
    /// [`Error::Config`] of `key` if there is none.
    pub fn of(key: &str, name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, mode)| mode).ok_or_else(|| {
            let problem = format!("'{name}' is none of required, optional and none");
            Error::Config { key: key.to_owned(), problem }
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
            Self::None => "none",
        }
    }
}

/// Poses of a robot that its joints don't tell, at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mount {
    /// Maps points of the root link into the world frame (m); none where the description holds
    /// the world frame, so that nothing else is needed.
    pub root: Option<Isometry3<f64>>,
    /// For each floating or planar joint: maps points of its child link into its parent's (m).
    pub free: Vec<Isometry3<f64>>,
}

impl Mount {
    /// This mount `times` as far on as it has come since `before`, each pose with one turn and one way.
    pub fn extrapolated(&self, before: &Self, times: f64) -> Self {
        let root = match (&before.root, &self.root) {
            (Some(before), Some(now)) => Some(extrapolated(before, now, times)),
            _ => self.root,
        };
        let known = before.free.iter().map(Some).chain(std::iter::repeat(None));
        let free = self.free.iter().zip(known);
        let free = free.map(|(now, before)| before.map_or(*now, |b| extrapolated(b, now, times)));
        Self { root, free: free.collect() }
    }
}

fn extrapolated(before: &Isometry3<f64>, now: &Isometry3<f64>, n: f64) -> Isometry3<f64> {
    if before == now {
        // To the bit.
        return *now;
    }
    let turn = now.rotation * before.rotation.inverse();
    let way = now.translation.vector - before.translation.vector;
    Isometry3::from_parts((now.translation.vector + way * n).into(), turn.powf(n) * now.rotation)
}

/// Which transforms the poses of a [`Mount`] are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounting {
    /// The root link, where its pose in the world frame is to come from tf.
    pub root: Option<String>,
    /// Parent and child link of each floating or planar joint.
    pub free: Vec<[String; 2]>,
}

impl Mounting {
    /// What a robot description leaves to tf.
    ///
    /// # Errors
    /// As [`Robot::from_urdf`].
    pub fn of(urdf: &str, world_frame: &str) -> Result<Self> {
        Ok(Robot::without_points(urdf, world_frame)?.0.mounting())
    }

    /// Puts what the robot's frames begin with in tf before the links' names.
    pub fn add_prefix(&mut self, prefix: &str) {
        for name in self.root.iter_mut().chain(self.free.iter_mut().flatten()) {
            name.insert_str(0, prefix);
        }
    }

    /// What to warn of where frames lack these transforms; none if nothing is left to tf.
    pub fn warning(&self, world_frame: &str) -> Option<String> {
        let (parent, child, why) = match (&self.root, self.free.first()) {
            (Some(root), _) => (world_frame, root, format!("has no link '{world_frame}'")),
            (None, Some([parent, child])) => {
                (parent.as_str(), child, format!("leaves link '{child}' to tf"))
            }
            (None, None) => return None,
        };
        Some(format!(
            "the robot description {why}, and where no transform from '{parent}' to '{child}' \
             tells where the robot is, frames go on without it. Publish one, e.g. ros2 run tf2_ros \
             static_transform_publisher --frame-id {parent} --child-frame-id {child}"
        ))
    }
}

/// What a description asks of joint states and transforms, without the robot's surface.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// What it leaves to tf.
    pub mounting: Mounting,
    /// As [`Robot::joint_names`].
    pub joint_names: Arc<[String]>,
    /// As [`Robot::limits`].
    pub limits: Vec<JointLimits>,
}

impl Outline {
    /// The outline of a robot in `world_frame`; no mesh is read.
    ///
    /// # Errors
    /// As [`Robot::from_urdf`].
    pub fn of(urdf: &str, world_frame: &str) -> Result<Self> {
        let (robot, _) = Robot::without_points(urdf, world_frame)?;
        Ok(Self {
            mounting: robot.mounting(),
            joint_names: robot.joint_names().into(),
            limits: robot.limits,
        })
    }

    /// How a joint moves; none if the robot has no such joint, or one that follows another.
    pub fn joint(&self, name: &str) -> Option<&JointLimits> {
        self.limits.get(self.joint_names.iter().position(|own| own == name)?)
    }
}

impl Robot {
    /// Which transforms it needs besides its joints' positions.
    pub fn mounting(&self) -> Mounting {
        let name = |node: usize| self.link_names[node].clone();
        let free =
            self.tree.free_nodes().map(|node| [name(self.tree.nodes[node].parent), name(node)]);
        Mounting { root: self.is_rooted_by_tf.then(|| name(0)), free: free.collect() }
    }

    /// Whether `mount` tells all that [`Robot::mounting`] asks for.
    pub fn fits(&self, mount: &Mount) -> bool {
        mount.free.len() == self.tree.n_free && (mount.root.is_some() || !self.is_rooted_by_tf)
    }

    /// Puts the robot where `mount` says, for what is placed from now on.
    ///
    /// # Errors
    /// [`Error::Shape`] if it tells of another number of floating and planar joints.
    pub fn set_mount(&mut self, mount: &Mount) -> Result<()> {
        let (expected, got) = (self.tree.n_free, mount.free.len());
        if expected != got {
            let what = "poses of floating and planar joints";
            return Err(Error::Shape { what, expected, got });
        }
        if let Some(root) = mount.root.filter(|_| self.is_rooted_by_tf) {
            self.world_from_root = root;
        }
        self.free.clone_from(&mount.free);
        Ok(())
    }

    /// Finds the world frame among the links; without it, the root's pose is left to tf.
    pub(super) fn find_world(&mut self, world_frame: &str) -> Result<()> {
        let Some(world) = self.link_names.iter().position(|name| name == world_frame) else {
            self.is_rooted_by_tf = true;
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
}

impl Tree {
    /// Nodes that hang on floating and planar joints, in the order of a [`Mount`].
    fn free_nodes(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|&node| self.nodes[node].is_free())
    }
}
