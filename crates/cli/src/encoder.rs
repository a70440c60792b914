//! Options of `forecloud train-video` that choose the encoder.

use anyhow::Result;
use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use forecloud_video::{EncoderKind, PatchMask, VitConfig};

use super::numbers::{must, with_default, within};

/// What gives each pixel its features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Name {
    /// A U-Net of colours
    #[default]
    Unet,
    /// A vision transformer of colours and depths, patch by patch
    Vit,
}

/// The encoder; what is not given stays as it is.
#[derive(clap::Args)]
#[command(next_help_heading = "Encoder")]
pub struct EncoderArgs {
    /// What gives each pixel its features
    #[arg(long, value_enum, default_value_t)]
    encoder: Name,
    #[arg(
        long,
        value_name = "MASK",
        value_parser = PossibleValuesParser::new(PatchMask::all().into_iter().map(PatchMask::name)),
        help = with_default(
            "Mask between patches, with --encoder vit (docs/src/notebook/method.md)",
            PatchMask::default().name()
        )
    )]
    patch_mask: Option<String>,
    /// For a mask on the grid of patches: cut it between patches whose mean depths differ by more than
    /// this, from 0.001 to 100
    #[arg(long, value_name = "METRES", value_parser = within(0.001..=100.0f32))]
    patch_cut: Option<f32>,
    #[arg(
        long,
        value_name = "N",
        value_parser = within(0..=8usize),
        help = with_default(
            "Earlier frames, 0.2 s apart, that --encoder vit also sees, from 0 to 8",
            VitConfig::default().n_past
        )
    )]
    past_frames: Option<usize>,
}

impl EncoderArgs {
    /// The encoder that they choose.
    pub fn kind(&self) -> Result<EncoderKind> {
        if self.encoder == Name::Unet {
            let given = [
                (self.patch_mask.is_some(), "--patch-mask"),
                (self.patch_cut.is_some(), "--patch-cut"),
                (self.past_frames.is_some(), "--past-frames"),
            ];
            for (given, option) in given {
                must(!given, || format!("{option} needs --encoder vit: a U-Net has no patches"))?;
            }
            return Ok(EncoderKind::Unet);
        }
        let default = VitConfig::default();
        let mask = self.patch_mask.clone().map(PatchMask::try_from).transpose();
        let mask = mask.map_err(anyhow::Error::msg)?.unwrap_or(default.mask);
        let n_past = self.past_frames.unwrap_or(default.n_past);
        Ok(EncoderKind::Vit(VitConfig { mask, cut_m: self.patch_cut, n_past, ..default }))
    }
}
