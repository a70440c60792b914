//! What goes wrong on real robots, and what becomes of it: the table in docs/reliability.md.

#[path = "faults/corruption.rs"]
mod corruption;
#[path = "faults/images.rs"]
mod images;
#[path = "faults/intake.rs"]
mod intake;
#[path = "faults/joints.rs"]
mod joints;
#[path = "faults/memory.rs"]
mod memory;
#[path = "faults/model_files.rs"]
mod model_files;
#[cfg(unix)]
#[path = "faults/replay_outputs.rs"]
mod replay_outputs;
#[cfg(unix)]
#[path = "faults/run.rs"]
mod run;
#[path = "faults/stream.rs"]
mod stream;
#[path = "faults/tf.rs"]
mod tf;
#[path = "faults/time.rs"]
mod time;
#[cfg(unix)]
#[path = "faults/training.rs"]
mod training;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
