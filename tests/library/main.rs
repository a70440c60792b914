//! The library as a whole, with what surrounds it.

#[path = "../support/edited.rs"]
mod edited;
#[path = "../../src/message/encode.rs"]
#[allow(dead_code)]
mod encode;
#[path = "../../benches/compare_pytorch/peer.rs"]
#[allow(dead_code)]
mod peer;
#[path = "../../src/message/samples.rs"]
#[allow(dead_code)]
mod samples;

mod blocks;
mod candidates;
mod compare_pytorch;
mod data_parallel;
mod deadline;
mod finding;
mod hindsight;
mod imports;
mod kinematics;
mod last_miss;
mod moving;
mod mutations;
mod reading;
mod recording;
mod rig;
mod training;
mod truth;

/// The workspace.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
