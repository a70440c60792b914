//! What a robot's controllers execute, as one plan: goals checked, merged, stamped, and stretched to
//! the speed that the robot runs at. The ROS side is `ros::relay`.

mod goal;
mod motion;
mod planner;
#[cfg(test)]
mod tests;

pub use goal::{Fingers, GoalPoint, MAX_JOINTS, MAX_POINTS, MAX_VALUES, from_here, planned};
pub use planner::{GoalId, Planner};
