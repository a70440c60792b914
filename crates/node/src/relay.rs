//! The plan relay: passes goals on to the controllers, and publishes what they execute.
//!
//! An action is three services and two topics; each of them is passed on as it comes, so that goals
//! keep their ids, and pre-emption, feedback and results are the controller's own. What the relay says
//! itself: that it refuses a goal, and that a controller does not answer.

mod action;
mod controller;
mod goals;
mod link;
mod parameters;
mod program;
mod steps;
#[cfg(test)]
mod tests;

pub use program::run;
