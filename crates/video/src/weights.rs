//! Weights of the encoder and the renderer: their table, initial values, and files.

use std::collections::HashMap;
use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::config::VideoConfig;
use super::unet::N_CONVOLUTIONS;
use super::vit::{EncoderKind, VitLayout};
#[cfg(doc)]
use forecloud::Error;
use forecloud::Result;
use forecloud::engine::model::Span;
use forecloud::engine::model::interlacer::{Affine, Tensor};
use forecloud::engine::model::weights::{File, hash, model_error, save};

/// Metadata key of the configuration in their files.
pub(crate) const CONFIG_KEY: &str = "forecloud.video";

/// The table of all tensors, in one flat vector.
#[derive(Debug, Clone)]
pub struct VideoLayout {
    /// Sizes.
    pub config: VideoConfig,
    /// Tensors of the encoder.
    pub encoder: EncoderLayout,
    /// Dense layers of the renderer, `[n_in, n_out]`; behind those of the encoder.
    pub dense: [Affine; 3],
    /// All tensors, by place.
    pub tensors: Vec<Tensor>,
}

/// Tensors of the encoder.
#[derive(Debug, Clone)]
pub enum EncoderLayout {
    /// Convolutions, `[9·n_in, n_out]`, in the order in which they run.
    Unet(Box<[Affine; N_CONVOLUTIONS]>),
    /// Of the vision transformer.
    Vit(Box<VitLayout>),
}

/// Tensors as they are laid out, one behind the other.
#[derive(Default)]
pub(super) struct Table {
    tensors: Vec<Tensor>,
    n_params: usize,
}

impl Table {
    pub fn tensor(&mut self, name: String, shape: Vec<usize>) -> Span {
        let span = Span::new(self.n_params, shape.iter().product());
        self.n_params = span.range().end;
        self.tensors.push(Tensor { name, shape, span });
        span
    }

    /// A dense layer.
    pub fn affine(&mut self, name: &str, n_in: usize, n_out: usize) -> Affine {
        Affine {
            weight: self.tensor(format!("{name}.weight"), vec![n_in, n_out]),
            bias: self.tensor(format!("{name}.bias"), vec![n_out]),
        }
    }

    /// A LayerNorm.
    pub fn norm(&mut self, name: &str, width: usize) -> Affine {
        Affine {
            weight: self.tensor(format!("{name}.weight"), vec![width]),
            bias: self.tensor(format!("{name}.bias"), vec![width]),
        }
    }
}

impl VideoLayout {
    /// Lays out the tensors of `config`.
    ///
    /// # Errors
    /// As [`VideoConfig::validate`].
    pub fn new(config: VideoConfig) -> Result<Self> {
        config.validate()?;
        let mut table = Table::default();
        let encoder = match config.encoder {
            EncoderKind::Unet => EncoderLayout::Unet(Box::new(convolutions(&config, &mut table))),
            EncoderKind::Vit(vit) => {
                let layout = VitLayout::new(vit, config.picture, config.n_features, &mut table);
                EncoderLayout::Vit(Box::new(layout))
            }
        };
        let dense = [
            table.affine("renderer.0", config.n_inputs(), config.hidden),
            table.affine("renderer.1", config.hidden, config.hidden),
            table.affine("renderer.2", config.hidden, 4),
        ];
        Ok(Self { config, encoder, dense, tensors: table.tensors })
    }

    /// Numbers in the flat vector.
    pub fn n_params(&self) -> usize {
        self.tensors.last().map_or(0, |tensor| tensor.span.range().end)
    }

    /// Where the renderer's weights lie in the flat vector.
    pub(super) fn of_renderer(&self) -> std::ops::Range<usize> {
        self.dense[0].weight.range().start..self.n_params()
    }

    /// Initial weights: uniform of variance 2 / n_in (He et al. 2015), where no ReLU follows 1 / n_in;
    /// those of LayerNorms 1; biases and all else 0.
    pub fn initial_weights(&self, seed: u64) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut values = vec![0.0; self.n_params()];
        let mut plain = vec![self.dense[2].weight];
        match &self.encoder {
            EncoderLayout::Unet(convolutions) => {
                plain.push(convolutions[N_CONVOLUTIONS - 1].weight);
            }
            EncoderLayout::Vit(vit) => {
                plain.extend([vit.embed, vit.head, vit.skip].map(|dense| dense.weight));
                plain.extend(vit.blocks.iter().flat_map(|b| [b.out.weight, b.down.weight]));
            }
        }
        for tensor in self.tensors.iter().filter(|tensor| tensor.name.ends_with(".weight")) {
            let gain = if plain.contains(&tensor.span) { 3.0 } else { 6.0 };
            let values = tensor.span.of_mut(&mut values);
            let &[n_in, _] = &tensor.shape[..] else {
                values.fill(1.0);
                continue;
            };
            let bound = (gain / n_in as f32).sqrt();
            values.iter_mut().for_each(|w| *w = rng.random_range(-bound..bound));
        }
        values
    }
}

/// Those of the U-Net.
fn convolutions(config: &VideoConfig, table: &mut Table) -> [Affine; N_CONVOLUTIONS] {
    let [narrow, middle, wide] = config.channels;
    let widths = [
        (3, narrow),
        (narrow, narrow),
        (narrow, middle),
        (middle, middle),
        (middle, wide),
        (wide, wide),
        (wide + middle, middle),
        (middle, middle),
        (middle + narrow, narrow),
        (narrow, config.n_features),
    ];
    let mut index = 0;
    widths.map(|(n_in, n_out)| {
        let convolution = table.affine(&format!("encoder.{index}"), 9 * n_in, n_out);
        index += 1;
        convolution
    })
}

/// Encoder and renderer with their weights.
#[derive(Debug, Clone)]
pub struct VideoModel {
    /// Their table.
    pub layout: VideoLayout,
    /// The flat vector.
    pub weights: Vec<f32>,
}

impl VideoModel {
    /// Reads what [`Self::save`] wrote, or a checkpoint of their training.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Model`] if it is none, damaged, or of impossible sizes.
    pub fn load(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let layout = VideoLayout::new(read_config(path, &file)?)
            .map_err(|error| model_error(path, error.to_string()))?;
        let weights = file.vector(&layout.tensors, "")?;
        Ok(Self { layout, weights })
    }

    /// Writes the file that [`Self::load`] reads, whole or not at all.
    ///
    /// # Errors
    /// As [`forecloud::engine::model::weights::save`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let metadata = config_metadata(&self.layout.config);
        save(path, &self.layout.tensors, &[("", &self.weights)], metadata)
    }

    /// Tells encoders and renderers apart, by sizes and weights.
    pub fn hash(&self) -> String {
        let config = serde_json::to_string(&self.layout.config).unwrap_or_default();
        hash(&config, &self.weights)
    }
}

/// The configuration as metadata.
pub fn config_metadata(config: &VideoConfig) -> HashMap<String, String> {
    HashMap::from([(CONFIG_KEY.into(), serde_json::to_string(config).unwrap_or_default())])
}

/// The configuration that a file holds.
///
/// # Errors
/// [`Error::Model`] if it holds none.
pub(crate) fn read_config(path: &Path, file: &File) -> Result<VideoConfig> {
    let text = file.metadata.get(CONFIG_KEY).ok_or_else(|| {
        let remedy = "give the video.safetensors of a `forecloud train-video` run";
        model_error(path, format!("no encoder and renderer of pictures; {remedy}"))
    })?;
    serde_json::from_str(text)
        .map_err(|error| model_error(path, format!("its {CONFIG_KEY} can't be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VitConfig;
    use forecloud::Error;
    use forecloud::engine::model::weights;

    fn small() -> VideoConfig {
        VideoConfig { channels: [2, 3, 4], hidden: 8, ..VideoConfig::default() }
    }

    #[test]
    fn files_bring_back_what_was_saved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("video.safetensors");
        let layout = VideoLayout::new(small()).unwrap();
        let values = layout.initial_weights(3);
        VideoModel { layout, weights: values.clone() }.save(&path).unwrap();
        let loaded = VideoModel::load(&path).unwrap();
        assert_eq!((loaded.layout.config, loaded.weights), (small(), values));
        assert!(forecloud::engine::model::Model::load(&path).is_err(), "no dynamics");
    }

    #[test]
    fn files_say_nothing_of_the_encoder_that_all_had_before_there_was_another() {
        let of = |config: &VideoConfig| config_metadata(config)[CONFIG_KEY].clone();
        assert!(!of(&small()).contains("vit") && !of(&small()).contains("encoder"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("video.safetensors");
        let encoder = EncoderKind::Vit(VitConfig { n_past: 1, ..VitConfig::default() });
        let layout = VideoLayout::new(VideoConfig { encoder, ..small() }).unwrap();
        let model = VideoModel { weights: layout.initial_weights(3), layout };
        model.save(&path).unwrap();
        let loaded = VideoModel::load(&path).unwrap();
        assert_eq!(loaded.layout.config, model.layout.config);
        assert_eq!((loaded.hash(), loaded.weights), (model.hash(), model.weights));
    }

    #[test]
    fn sizes_of_files_are_checked_before_memory_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("video.safetensors");
        let layout = VideoLayout::new(small()).unwrap();
        let values = layout.initial_weights(0);
        for (config, what) in [
            (VideoConfig { hidden: 1 << 40, ..small() }, "hidden"),
            (VideoConfig { far_m: 1e9, ..small() }, "far_m"),
            (VideoConfig { radii_m: [7.0; 4], ..small() }, "radii_m"),
            (VideoConfig { hidden: 512, ..small() }, "bytes"),
        ] {
            let metadata = config_metadata(&config);
            weights::save(&path, &layout.tensors, &[("", &values)], metadata).unwrap();
            let error = VideoModel::load(&path).unwrap_err();
            assert!(matches!(&error, Error::Model { .. }), "{error:?}");
            assert!(error.to_string().contains(what), "{error}");
        }
        let other = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/small.safetensors");
        let error = VideoModel::load(Path::new(other)).unwrap_err();
        assert!(error.to_string().contains("train-video"), "{error}");
    }
}
