//! What goes wrong on real robots, and what becomes of it: the table in docs/reliability.md.

#[path = "faults/images.rs"]
mod images;
#[path = "faults/intake.rs"]
mod intake;
#[path = "faults/joints.rs"]
mod joints;
#[path = "faults/stream.rs"]
mod stream;
#[path = "faults/tf.rs"]
mod tf;
#[path = "faults/time.rs"]
mod time;
