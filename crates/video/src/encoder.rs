//! What gives each pixel of a picture its features: the U-Net or the vision transformer.

use super::Picture;
use super::unet::{N_CONVOLUTIONS, Unet, UnetEncoded};
use super::vit::VitEncoded;
use super::weights::{EncoderLayout, VideoLayout};
use forecloud::Result;
use forecloud::engine::model::interlacer::Affine;

/// The network with its weights.
#[derive(Clone, Copy)]
pub struct Encoder<'a> {
    layout: &'a VideoLayout,
    weights: &'a [f32],
}

/// A picture's features, and what the backward pass needs.
pub struct Encoded(Kind);

enum Kind {
    Unet(UnetEncoded),
    Vit(Box<VitEncoded>),
}

impl Encoded {
    /// Where the features of the pixel (column, row) stand among the rows of [`Self::features`]: with the
    /// U-Net, lines are a little longer than the picture's where its width is no multiple of four.
    pub fn row_of(&self, place: [u32; 2]) -> usize {
        match &self.0 {
            Kind::Unet(encoded) => encoded.row_of(place),
            Kind::Vit(encoded) => encoded.row_of(place),
        }
    }

    /// Features of all pixels, `[n_rows, n_features]`.
    pub fn features(&self) -> &[f32] {
        match &self.0 {
            Kind::Unet(encoded) => encoded.features(),
            Kind::Vit(encoded) => encoded.features(),
        }
    }
}

impl<'a> Encoder<'a> {
    /// Of all `weights` of `layout`.
    pub fn new(layout: &'a VideoLayout, weights: &'a [f32]) -> Self {
        Self { layout, weights }
    }

    /// Features of `picture`; `past`: what the same camera saw in the frames before, the oldest first, as
    /// large. As many of these are looked at as the encoder was made for
    /// ([`super::EncoderKind::n_past`]); where there are fewer, it hears fewer.
    ///
    /// # Errors
    /// [`forecloud::Error::Shape`] of more patches than a mask can be made for.
    pub fn encode(&self, picture: &Picture, past: &[&Picture]) -> Result<Encoded> {
        Ok(Encoded(match &self.layout.encoder {
            EncoderLayout::Unet(convolutions) => {
                Kind::Unet(self.unet(convolutions).encode(picture.size, &picture.unit_colors()))
            }
            EncoderLayout::Vit(vit) => {
                let same = past.iter().filter(|past| past.size == picture.size);
                let frames: Vec<&Picture> = same.copied().chain([picture]).collect();
                Kind::Vit(Box::new(vit.encode(self.layout, self.weights, &frames)?))
            }
        }))
    }

    /// d_weights += gradients, from those of the features; the pictures have none.
    pub fn backward(&self, encoded: &Encoded, d_features: &[f32], d_weights: &mut [f32]) {
        match (&encoded.0, &self.layout.encoder) {
            (Kind::Unet(encoded), EncoderLayout::Unet(convolutions)) => {
                self.unet(convolutions).backward(encoded, d_features, d_weights);
            }
            (Kind::Vit(encoded), EncoderLayout::Vit(vit)) => {
                vit.backward(self.weights, encoded, d_features, d_weights);
            }
            // Of another encoder: it says nothing of this one's weights.
            _ => {}
        }
    }

    fn unet(&self, convolutions: &'a [Affine; N_CONVOLUTIONS]) -> Unet<'a> {
        let (channels, weights) = (self.layout.config.channels, self.weights);
        Unet { channels, convolutions, weights }
    }
}
