//! The laboratory: layers beside those that ship, and encodings of tokens. Programs that link it call
//! [`register`], and then load models that have them.

#![warn(missing_docs)]

pub mod encodings;
pub mod graph_gps;
pub mod layers;
pub mod masks;
pub mod ops;
pub mod solver;

use forecloud::engine::registry;

/// Makes all layers and encodings known to models, once or more often.
pub fn register() {
    registry::register(layers::all());
    registry::register(encodings::all());
}
