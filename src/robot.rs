//! The robot: its joints and links, its meshes, where its plan takes it, and the tree of frames (tf).

pub mod kinematics;
pub mod plan;
pub mod relay;
pub mod tf;
