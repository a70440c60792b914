//! Settings of the encoder and the renderer.

use serde::{Deserialize, Serialize};

use super::vit::EncoderKind;
use forecloud::{Error, Result};

/// Annular kernels of the renderer.
pub const N_KERNELS: usize = 4;
/// Patches of a picture, at most: of what each hears and is heard by, there is memory.
const MAX_PATCHES: usize = 4096;
/// Nearest particles that a place of a ray is drawn from, at most.
pub const N_NEIGHBORS: usize = 16;

/// What pictures are drawn with besides weights; stored in their file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoConfig {
    /// Numbers that the encoder gives a pixel, and a particle carries.
    pub n_features: usize,
    /// What gives pixels their features.
    #[serde(default, skip_serializing_if = "EncoderKind::is_unet")]
    pub encoder: EncoderKind,
    /// Channels of the U-Net at full, half and quarter size.
    pub channels: [usize; 3],
    /// Width of the two hidden layers of the renderer.
    pub hidden: usize,
    /// Radii of the renderer's annular kernels (m).
    pub radii_m: [f32; N_KERNELS],
    /// Their bandwidths: a particle's weight is exp(-½ ((distance - radius) / bandwidth)²) (m).
    pub bandwidths_m: [f32; N_KERNELS],
    /// Farther than this from a place of a ray, particles count nothing there (m).
    pub reach_m: f32,
    /// Places of a ray farther than this from all particles are empty (m).
    pub empty_m: f32,
    /// From one place of a ray to the next (m).
    pub step_m: f32,
    /// Places of a ray that are not empty, at most; the first ones count.
    pub max_samples: usize,
    /// Nearest depth that is drawn (m).
    pub near_m: f32,
    /// Farthest depth that is drawn; behind it all is white (m).
    pub far_m: f32,
    /// Particles of a scene that is drawn.
    pub n_particles: usize,
    /// Width and height that pictures are reduced to, at most (pixels).
    pub picture: [u32; 2],
}

impl Default for VideoConfig {
    fn default() -> Self {
        Self {
            n_features: 16,
            encoder: EncoderKind::Unet,
            channels: [16, 32, 64],
            hidden: 64,
            radii_m: [0.0, 0.01, 0.02, 0.05],
            bandwidths_m: [0.01, 0.01, 0.01, 0.05],
            reach_m: 0.05,
            empty_m: 0.025,
            step_m: 0.01,
            max_samples: 48,
            near_m: 0.1,
            far_m: 2.0,
            n_particles: 16_384,
            picture: [160, 120],
        }
    }
}

impl VideoConfig {
    /// Checks all values: what a file says of itself decides what memory is asked for.
    ///
    /// # Errors
    /// [`Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        let [narrow, middle, wide] = self.channels;
        let counts = [
            ("n_features", self.n_features, 1..=64),
            ("channels[0]", narrow, 1..=256),
            ("channels[1]", middle, 1..=256),
            ("channels[2]", wide, 1..=256),
            ("hidden", self.hidden, 1..=512),
            ("max_samples", self.max_samples, 1..=256),
            ("n_particles", self.n_particles, 1..=1 << 20),
            ("picture[0]", self.picture[0] as usize, 16..=1024),
            ("picture[1]", self.picture[1] as usize, 16..=1024),
        ];
        for (key, value, allowed) in counts {
            if !allowed.contains(&value) {
                let (low, high) = allowed.into_inner();
                return Err(wrong(key, format!("{value} is not {low} to {high}")));
            }
        }
        let lengths = [
            ("reach_m", self.reach_m, 0.001..=1.0),
            ("empty_m", self.empty_m, 0.001..=self.reach_m),
            ("step_m", self.step_m, 0.001..=1.0),
            ("near_m", self.near_m, 0.0..=100.0),
            // Bounds the places of a ray.
            ("far_m", self.far_m, self.near_m + self.step_m..=self.near_m + 1e4 * self.step_m),
        ];
        let radii = self.radii_m.map(|radius| ("radii_m", radius, 0.0..=1.0));
        let bandwidths = self.bandwidths_m.map(|width| ("bandwidths_m", width, 0.001..=1.0));
        for (key, value, allowed) in lengths.into_iter().chain(radii).chain(bandwidths) {
            if !allowed.contains(&value) {
                let (low, high) = allowed.into_inner();
                return Err(wrong(key, format!("{value} is not {low} to {high}")));
            }
        }
        let EncoderKind::Vit(vit) = &self.encoder else { return Ok(()) };
        if let Some((key, problem)) = vit.problem() {
            return Err(wrong(key, problem));
        }
        let n_patches: usize = vit.grid(self.picture).iter().product();
        if n_patches > MAX_PATCHES {
            let problem = format!("{n_patches} patches of a picture are more than {MAX_PATCHES}");
            return Err(wrong("vit.patch", problem));
        }
        Ok(())
    }

    /// Numbers that a place of a ray is drawn from: features and sums of weights of all kernels.
    pub(super) fn n_inputs(&self) -> usize {
        N_KERNELS * (self.n_features + 1)
    }
}

fn wrong(key: &str, problem: String) -> Error {
    Error::Config { key: format!("video.{key}"), problem }
}
