//! Where the points of a frame went, as far as later frames show it: labels to learn from where no
//! truth is known.
//!
//! Two frames ([`Flow`]): the motion of each point to the next frame is estimated as the predictor
//! estimates the motion that led to a frame, but from the frame that came after; and once more the other
//! way round. Where both agree it is sure. Several frames ([`Tracks`]): points go from frame to frame with
//! what is near them and of their colour, and those of a body that stays rigid go as the body does.

mod cache;
mod flow;
#[cfg(test)]
mod tests;
mod tracks;

pub use cache::{LabelCache, LabelKey, Labelled, MISSING};
pub use flow::{Flow, Labeler, View};
pub use tracks::{Sight, Tracks};

/// A label's confidence (0 to 1) from which it counts as sure.
pub const SURE: f32 = 0.5;
