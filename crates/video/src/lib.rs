//! Video: what the cameras will see of a prediction, drawn as pictures.
//!
//! As in HD-VPD (Whitney et al. 2024; GRF masking, ICLR 2025, appendix C.3) a U-Net gives each pixel
//! [`VideoConfig::n_features`] numbers ([`Encoder`]; a vision transformer can take its place), particles carry these to where they go, and a
//! renderer like Point-NeRF draws what a camera sees of them ([`Renderer`]). Both are trained
//! together, by pictures and their depths (`forecloud_train::video`); what is drawn can teach the dynamics in
//! turn (`forecloud_train::pixels`).

#![warn(missing_docs)]

#[cfg(test)]
#[path = "../../../tests/support/check.rs"]
mod check;
#[cfg(test)]
#[path = "../../../tests/support/plain.rs"]
mod plain;

mod carry;
mod config;
mod drawing;
mod encoder;
mod pictures;
mod renderer;
mod spool;
mod unet;
mod vit;
mod weights;

pub use carry::Guides;
pub use config::VideoConfig;
pub use drawing::{Drawing, Seen};
pub use encoder::{Encoded, Encoder};
pub use pictures::Picture;
#[cfg(test)]
pub(crate) use pictures::tests::of_tiny_push;
pub use renderer::{Gradients, Ray, RayGradient, Rendered, Renderer, Scene, Traced};
pub use spool::{Kept, Spool};
pub use vit::{Block, EncoderKind, PatchMask, VitConfig, VitLayout};
pub use weights::config_metadata;
pub use weights::{EncoderLayout, VideoLayout, VideoModel};
