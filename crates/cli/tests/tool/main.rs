//! The tool `forecloud`, as its users call it.

#[path = "../../../../tests/support/edited.rs"]
mod edited;
#[path = "../../../../tests/support/faults.rs"]
mod faults;
#[path = "../faults/run.rs"]
mod run;
#[path = "../../../../tests/support/shared.rs"]
mod shared;
#[path = "../../../../tests/support/written.rs"]
mod written;

mod bad_input;
mod bag_damage;
mod bag_storages;
mod calibrate;
mod check;
mod info;
mod instruction_set;
mod outputs;
mod planning;
mod proposal;
mod replay;
mod replay_out;
mod rig_told;
mod robot;
mod shards;
mod shared_bags;
mod told;
mod train_tool;
mod video;
mod wrong_arguments;

/// The workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
