//! Models that differ in one thing, trained for the same time with the same care, and what came of
//! it: the rivals of the GRF attention, walks, sizes, softmax attention at few particles.
//!
//! **Equal time.** A budget is CPU seconds of one thread. A pilot, in which all variants take turns,
//! measures the CPU time of their steps; budget over time is each variant's number of steps, fixed
//! in the plan. From then on nothing depends on a clock: a busy machine, or a run that was stopped
//! and goes on, gives the same table. Each run trains on one thread, several side by side.
//!
//! **Equal weights.** The hidden width of the MLPs is chosen so that all have as many weights as the
//! first variant, as nearly as whole widths allow; the difference is in the table.
//!
//! **Equal care.** For each variant the same learning rates are tried, each for a share of the budget
//! with a seed of its own; the best by validation error trains for the whole budget with each seed.
//! Test recordings are looked at last, once for each run.

mod clock;
mod comparison;
mod curves;
mod data;
mod evaluate;
mod files;
mod parameters;
mod pilot;
mod plan;
mod run;
mod settings;
mod suites;
mod table;
mod watch;

pub use comparison::{Comparison, PICTURE, PLAN, TABLE};
pub use data::{Data, DataSummary};
pub use evaluate::{STEPS, TestErrors};
pub use pilot::Speed;
pub use plan::{Plan, PlannedVariant};
pub use run::{Outcome, Point};
pub use settings::Settings;
pub use suites::{Suite, Variant};
pub use table::{Row, RunRow, Spread, Table};
pub use watch::Watch;
