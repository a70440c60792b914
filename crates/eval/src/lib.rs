//! How good predictions are: replay of recordings, errors against the truth, simple baselines.
//!
//! Errors are distances in mm between the predicted and the true position of each particle after
//! each step of the roll-out, summed over all frames, apart for each [`Class`] of points. Where no
//! truth is known, [`hindsight`] holds predictions against what the cameras saw later.

#![warn(missing_docs)]

#[cfg(test)]
#[path = "../../../tests/support/check.rs"]
mod check;

pub mod baselines;

pub mod coverage;
pub mod csv;
pub mod film;
pub mod hindsight;
pub mod method;
pub mod metrics;
pub mod observed;
pub mod page;
pub mod part;
mod pending_predictions;
pub mod picture;
pub mod plot;
pub mod published;
pub mod record;
pub mod region;
pub mod replay;
pub mod report;
pub mod rig_check;
#[cfg(test)]
mod scene;
pub mod similarity;
pub mod surface;
pub mod survey;

pub use film::Film;
pub use hindsight::Hindsight;
pub use method::Method;
pub use metrics::{Class, Mean, Scores, TrueMotion};
pub use page::{Page, Scenes, Setting};
pub use part::{Part, Terms};
pub use picture::MostActive;
pub use published::Published;
pub use record::Recorder;
pub use region::Region;
pub use replay::{Replay, Replayed};
pub use report::Report;
