//! What cameras see: frames paired by stamp, clouds in the world frame, particles, and their past motion.

pub mod camera;
pub mod cloud;
pub mod frames;
pub mod motion;
pub mod particles;
