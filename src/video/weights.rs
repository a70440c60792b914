//! Weights of the encoder and the renderer: their table, initial values, and files.

use std::collections::HashMap;
use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::config::VideoConfig;
use super::encoder::N_CONVOLUTIONS;
#[cfg(doc)]
use crate::Error;
use crate::Result;
use crate::model::Span;
use crate::model::interlacer::{Affine, Tensor};
use crate::model::weights::{File, hash, model_error, save};

/// Metadata key of the configuration in their files.
pub(crate) const CONFIG_KEY: &str = "forecloud.video";

/// The table of all tensors, in one flat vector.
#[derive(Debug, Clone)]
pub struct VideoLayout {
    /// Sizes.
    pub config: VideoConfig,
    /// Convolutions of the encoder, `[9·n_in, n_out]`, in the order in which they run.
    pub convolutions: [Affine; N_CONVOLUTIONS],
    /// Dense layers of the renderer, `[n_in, n_out]`; behind those of the encoder.
    pub dense: [Affine; 3],
    /// All tensors, by place.
    pub tensors: Vec<Tensor>,
}

impl VideoLayout {
    /// Lays out the tensors of `config`.
    ///
    /// # Errors
    /// As [`VideoConfig::validate`].
    pub fn new(config: VideoConfig) -> Result<Self> {
        config.validate()?;
        let [narrow, middle, wide] = config.channels;
        let (mut tensors, mut n_params) = (Vec::new(), 0);
        let mut tensor = |name: String, shape: Vec<usize>| {
            let span = Span::new(n_params, shape.iter().product());
            n_params = span.range().end;
            tensors.push(Tensor { name, shape, span });
            span
        };
        let mut affine = |name: String, n_in: usize, n_out: usize| Affine {
            weight: tensor(format!("{name}.weight"), vec![n_in, n_out]),
            bias: tensor(format!("{name}.bias"), vec![n_out]),
        };
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
        let convolutions = widths.map(|(n_in, n_out)| {
            let convolution = affine(format!("encoder.{index}"), 9 * n_in, n_out);
            index += 1;
            convolution
        });
        let dense = [
            affine("renderer.0".into(), config.n_inputs(), config.hidden),
            affine("renderer.1".into(), config.hidden, config.hidden),
            affine("renderer.2".into(), config.hidden, 4),
        ];
        Ok(Self { config, convolutions, dense, tensors })
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
    /// biases 0.
    pub fn initial_weights(&self, seed: u64) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut values = vec![0.0; self.n_params()];
        let last = [self.convolutions[N_CONVOLUTIONS - 1].weight, self.dense[2].weight];
        for tensor in self.tensors.iter().filter(|tensor| tensor.name.ends_with(".weight")) {
            let gain = if last.contains(&tensor.span) { 3.0 } else { 6.0 };
            let bound = (gain / tensor.shape[0] as f32).sqrt();
            let values = tensor.span.of_mut(&mut values);
            values.iter_mut().for_each(|w| *w = rng.random_range(-bound..bound));
        }
        values
    }
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
    /// As [`crate::model::weights::save`].
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
pub(crate) fn config_metadata(config: &VideoConfig) -> HashMap<String, String> {
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
    use crate::Error;
    use crate::model::weights;

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
        assert!(crate::model::Model::load(&path).is_err(), "no dynamics");
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
        let other = concat!(env!("CARGO_MANIFEST_DIR"), "/models/small.safetensors");
        let error = VideoModel::load(Path::new(other)).unwrap_err();
        assert!(error.to_string().contains("train-video"), "{error}");
    }
}
