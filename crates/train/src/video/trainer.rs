//! Steps of the training of encoder and renderer, and its file, which it goes on from.

use std::path::Path;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::targets::Targets;
use super::{VideoDataset, VideoTrainConfig, Window};
use crate::adamw::AdamW;
use crate::differences::differences;
use crate::origin::Origin;
use forecloud::engine::model::weights::{self, File, OPTIMIZER_PREFIXES};
use forecloud::{Error, Result};
use forecloud_eval::similarity::alike;
use forecloud_video::{
    Encoder, Gradients, Ray, Renderer, Scene, VideoConfig, VideoLayout, VideoModel, config_metadata,
};

/// Metadata keys, beside the configuration.
const SETTINGS_KEY: &str = "forecloud.video_train";
const STEP_KEY: &str = "forecloud.step";
/// Steps over which the learning rate rises.
const WARM_UP: u64 = 100;
/// Share of the learning rate that is left at the end.
const LAST_SHARE: f64 = 0.02;

/// Encoder and renderer in training.
pub struct VideoTrainer {
    config: VideoTrainConfig,
    model: VideoModel,
    optimizer: AdamW,
    origin: Option<Origin>,
}

/// How good drawn pictures are, mean over pictures, of the pixels whose depth was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VideoScore {
    /// Structural similarity.
    pub ssim: f64,
    /// Peak signal-to-noise ratio (dB).
    pub psnr: f64,
    /// Mean absolute error of the expected depth where depth was measured in range (mm).
    pub depth_mm: f64,
    /// Pictures behind them.
    pub n: usize,
}

impl VideoTrainer {
    /// Starts anew.
    ///
    /// # Errors
    /// As [`VideoTrainConfig::validate`] and [`VideoConfig::validate`].
    pub fn new(config: VideoTrainConfig, video: VideoConfig) -> Result<Self> {
        config.validate()?;
        let layout = VideoLayout::new(video)?;
        let weights = layout.initial_weights(config.seed);
        let optimizer = AdamW::new(config.adamw, weights.len());
        Ok(Self { config, model: VideoModel { layout, weights }, optimizer, origin: None })
    }

    /// Goes on from the file that [`VideoTrainer::save`] wrote.
    ///
    /// # Errors
    /// As [`VideoModel::load`]; [`Error::Checkpoint`] if it is of other settings or holds no training.
    pub fn resume(path: &Path, config: VideoTrainConfig, video: VideoConfig) -> Result<Self> {
        let mut trainer = Self::new(config, video)?;
        let model = VideoModel::load(path)?;
        let file = File::open(path)?;
        let wrong = |problem: String| Error::Checkpoint { path: path.to_owned(), problem };
        let text = |key: &str| {
            let none = || wrong(format!("it has no {key}: no training goes on from it"));
            file.metadata.get(key).ok_or_else(none)
        };
        let stored: VideoTrainConfig = serde_json::from_str(text(SETTINGS_KEY)?)
            .map_err(|error| wrong(format!("{SETTINGS_KEY}: {error}")))?;
        let mut differing = differences(&model.layout.config, &video);
        differing.extend(differences(&stored, &config));
        if !differing.is_empty() {
            let which = differing.join("; ");
            return Err(wrong(format!(
                "it was made with other settings ({which}): use the same ones, or choose another --out"
            )));
        }
        let step = text(STEP_KEY)?.parse().map_err(|_| wrong(format!("bad {STEP_KEY}")))?;
        let vector = |prefix| file.vector(&model.layout.tensors, prefix);
        let [mean, square, _] = OPTIMIZER_PREFIXES;
        let (mean, square) = (vector(mean)?, vector(square)?);
        let optimizer = &mut trainer.optimizer;
        (optimizer.step, optimizer.mean, optimizer.square) = (step, mean, square);
        trainer.model = model;
        trainer.origin = Origin::of(&file.metadata).map_err(wrong)?;
        Ok(trainer)
    }

    /// Keeps in its file what the run was begun from.
    pub fn with_origin(self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// What the run was begun from, as far as that was told.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Writes the weights with all that the training goes on from, whole or not at all.
    ///
    /// # Errors
    /// As [`weights::save`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut metadata = config_metadata(&self.model.layout.config);
        let settings = serde_json::to_string(&self.config).unwrap_or_default();
        metadata.insert(SETTINGS_KEY.into(), settings);
        metadata.insert(STEP_KEY.into(), self.optimizer.step.to_string());
        self.origin.iter().for_each(|origin| origin.put(&mut metadata));
        let [mean, square, _] = OPTIMIZER_PREFIXES;
        let vectors = [
            ("", &self.model.weights[..]),
            (mean, &self.optimizer.mean),
            (square, &self.optimizer.square),
        ];
        weights::save(path, &self.model.layout.tensors, &vectors, metadata)
    }

    /// Steps taken.
    pub fn step_index(&self) -> u64 {
        self.optimizer.step
    }

    /// Encoder and renderer as they are.
    pub fn model(&self) -> &VideoModel {
        &self.model
    }

    /// One step on a window of `data`, drawn by seed and step; the mean loss of its rays.
    ///
    /// # Errors
    /// [`Error::Config`] of the learning rate if the loss or its gradient is not finite; [`Error::Shape`] without frames.
    pub fn step(&mut self, data: &VideoDataset) -> Result<f32> {
        let step = self.optimizer.step;
        let mut rng = ChaCha8Rng::seed_from_u64(self.config.seed);
        rng.set_stream(step + 1);
        let window = data.draw(&mut rng, &self.config)?;
        let what = "frames to train pictures on (at least)";
        let window = window.ok_or(Error::Shape { what, expected: 1, got: 0 })?;
        let (loss, mut gradient) = self.gradient(&window, &mut rng)?;
        let rate = self.learning_rate(step);
        let norm = self.optimizer.update(&mut self.model.weights, &mut gradient, rate);
        if !norm.is_finite() || !loss.is_finite() {
            let problem =
                format!("step {step}: loss {loss}, gradient {norm}; a smaller learning rate");
            return Err(Error::Config { key: "video.learning_rate".into(), problem });
        }
        Ok(loss)
    }

    /// Mean loss of a window's rays, and its gradient by all weights.
    fn gradient(&self, window: &Window, rng: &mut ChaCha8Rng) -> Result<(f32, Vec<f32>)> {
        let VideoModel { layout, weights } = &self.model;
        let n_features = layout.config.n_features;
        let encoder = Encoder::new(layout, weights);
        let encoded = window.encode(&encoder)?;
        let features = window.seen.features(&window.pictures, &encoded, n_features);
        let scene = Scene::new(layout, &window.positions, &features)?;
        let mut targets = Targets::new(layout.config.far_m);
        targets.add_random(&window.targets, self.config.rays, rng);
        let renderer = Renderer::new(layout, weights);
        let traced = renderer.trace(&scene, &targets.rays);
        let (loss, d_rays) = targets.loss(&traced, self.config.depth_weight, 1.0);
        let mut gradient = vec![0.0; weights.len()];
        let (mut d_features, mut d_positions) =
            (vec![0.0; features.len()], vec![[0.0; 3]; window.positions.len()]);
        let mut into = Gradients {
            weights: Some(&mut gradient),
            features: &mut d_features,
            positions: &mut d_positions,
        };
        renderer.backward(&scene, &traced, &d_rays, &mut into);
        let seen = &window.seen;
        let d_pictures =
            seen.features_backward(&window.pictures, &encoded, &d_features, n_features);
        for (encoded, d) in encoded.iter().zip(&d_pictures) {
            encoder.backward(encoded, d, &mut gradient);
        }
        Ok((loss, gradient))
    }

    /// Rises, then falls as a cosine.
    fn learning_rate(&self, step: u64) -> f32 {
        let VideoTrainConfig { steps, learning_rate, .. } = self.config;
        let rise = ((step + 1) as f64 / WARM_UP.min(steps) as f64).min(1.0);
        let done = (step as f64 / steps as f64).min(1.0);
        let fall = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        (f64::from(learning_rate) * rise * (LAST_SHARE + (1.0 - LAST_SHARE) * fall)) as f32
    }

    /// How good the pictures of `windows` are, drawn whole; none if there is no window.
    ///
    /// # Errors
    /// As [`forecloud_video::Drawing::draw`].
    pub fn validate(
        &self,
        windows: impl Iterator<Item = Result<Window>>,
    ) -> Result<Option<VideoScore>> {
        let VideoModel { layout, weights } = &self.model;
        let VideoConfig { n_features, near_m, far_m, .. } = layout.config;
        let (mut sums, mut n, mut n_depths) = ([0.0; 3], 0, 0);
        for window in windows {
            let window = window?;
            let encoder = Encoder::new(layout, weights);
            let encoded = window.encode(&encoder)?;
            let features = window.seen.features(&window.pictures, &encoded, n_features);
            let scene = Scene::new(layout, &window.positions, &features)?;
            for target in &window.targets {
                let rays: Vec<Ray> = (0..target.n_pixels()).map(|i| target.ray(i, 0.5)).collect();
                let drawn = Renderer::new(layout, weights).draw(&scene, &rays);
                let colors: Vec<[f32; 3]> = drawn.iter().map(|seen| seen.color).collect();
                let truth = target.drawable_colors(far_m);
                let scores = alike(target.size, &truth, &colors, &target.depths_m);
                let Some((ssim, psnr)) = scores else { continue };
                (sums[0], sums[1], n) = (sums[0] + ssim, sums[1] + psnr, n + 1);
                for (seen, &depth_m) in drawn.iter().zip(&target.depths_m) {
                    if (near_m..=far_m).contains(&depth_m) {
                        sums[2] += 1e3 * f64::from((seen.depth_m - depth_m).abs());
                        n_depths += 1;
                    }
                }
            }
        }
        let [ssim, psnr, depth] = sums;
        let score = || VideoScore {
            ssim: ssim / n as f64,
            psnr: psnr / n as f64,
            depth_mm: depth / f64::from(n_depths.max(1)),
            n,
        };
        Ok((n > 0).then(score))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::vision::frames::FramesConfig;
    use forecloud_video::{EncoderKind, PatchMask, Spool, VitConfig};

    fn small() -> (VideoTrainConfig, VideoConfig) {
        let video = VideoConfig {
            channels: [4, 6, 8],
            hidden: 16,
            n_particles: 2000,
            picture: [48, 36],
            ..VideoConfig::default()
        };
        (VideoTrainConfig { rays: 64, steps: 60, ..VideoTrainConfig::default() }, video)
    }

    fn data() -> VideoDataset {
        data_of(small().1)
    }

    fn data_of(video: VideoConfig) -> VideoDataset {
        let spool = Spool::new(&std::env::temp_dir()).unwrap();
        let mut data = VideoDataset::new(video, FramesConfig::default(), spool);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/tiny_push").as_ref();
        let glimpse = forecloud_bag::recording::Recording::glimpse(path).unwrap();
        assert!(!data.add(path, "no such", true).unwrap(), "of another split");
        assert!(data.add(path, &glimpse.truth().unwrap().split, false).unwrap());
        data
    }

    #[test]
    fn windows_have_the_past_that_the_encoder_looks_at() {
        let past = |n_past| {
            let encoder = EncoderKind::Vit(VitConfig { n_past, ..VitConfig::default() });
            let data = data_of(VideoConfig { encoder, ..small().1 });
            assert!(data.n_frames() > 1);
            data.spread(1, 0).next().unwrap().unwrap()
        };
        assert!(past(0).past.iter().all(Vec::is_empty));
        let window = past(1);
        assert_eq!(window.past.len(), window.pictures.len());
        for (picture, past) in window.pictures.iter().zip(&window.past) {
            assert_eq!(past.len(), 1);
            assert_eq!((past[0].camera, past[0].size), (picture.camera, picture.size));
            assert_ne!(past[0].colors, picture.colors);
        }
    }

    /// A vision transformer as small as [`small`]'s U-Net.
    fn vit(n_past: usize) -> EncoderKind {
        let sizes = VitConfig { width: 16, n_heads: 2, n_hops: 2, ..VitConfig::default() };
        EncoderKind::Vit(VitConfig { mask: PatchMask::Toeplitz, n_past, ..sizes })
    }

    #[test]
    fn the_gradient_is_that_of_the_loss() {
        // What becomes hidden is left out of a ray at once, so that the loss jumps here and there: ways
        // are long where it is flat, short where it is bent.
        the_gradient_is_the_losses_slope(EncoderKind::Unet, 3e-3);
        the_gradient_is_the_losses_slope(vit(0), 1e-3);
    }

    fn the_gradient_is_the_losses_slope(encoder: EncoderKind, step: f64) {
        let (config, video) = small();
        let video = VideoConfig { encoder, ..video };
        let mut trainer = VideoTrainer::new(config, video).unwrap();
        let data = data_of(video);
        let window = data.spread(1, 1).next().unwrap().unwrap();
        assert_eq!(window.n_later, 1);
        let at = |trainer: &VideoTrainer| {
            trainer.gradient(&window, &mut ChaCha8Rng::seed_from_u64(5)).unwrap()
        };
        let (_, gradient) = at(&trainer);
        let start = trainer.model.weights.clone();
        // Along the gradient of the encoder and along that of the renderer: the loss's slope is its length.
        let split = trainer.model.layout.dense[0].weight.range().start;
        for part in [0..split, split..start.len()] {
            let part = &gradient[part.clone()].iter().zip(part).collect::<Vec<_>>()[..];
            let norm = part.iter().map(|(g, _)| f64::from(**g).powi(2)).sum::<f64>().sqrt();
            assert!(norm > 1e-4, "{norm}");
            let mut loss = |step: f64| {
                trainer.model.weights.clone_from(&start);
                for (g, i) in part {
                    trainer.model.weights[*i] += (step / norm) as f32 * **g;
                }
                f64::from(at(&trainer).0)
            };
            let slope = (loss(step) - loss(-step)) / (2.0 * step);
            assert!((slope / norm - 1.0).abs() < 0.03, "slope {slope}, gradient {norm}");
        }
    }

    /// From the features of a window's points back to all weights of an encoder that looks back, for any
    /// gradient of them; with the renderer behind it, jumps of the loss hide the slope.
    #[test]
    fn the_gradient_goes_through_features_of_past_frames() {
        let (config, video) = small();
        let video = VideoConfig { encoder: vit(1), ..video };
        let VideoModel { layout, weights } = VideoTrainer::new(config, video).unwrap().model;
        let window = data_of(video).spread(1, 0).next().unwrap().unwrap();
        assert!(window.past.iter().all(|past| past.len() == 1));
        let n_features = video.n_features;
        let features = |weights: &[f32]| {
            let encoded = window.encode(&Encoder::new(&layout, weights)).unwrap();
            (window.seen.features(&window.pictures, &encoded, n_features), encoded)
        };
        let (start, encoded) = features(&weights);
        let d_features = crate::check::numbers(start.len(), 4);
        let mut gradient = vec![0.0; weights.len()];
        let d_pictures =
            window.seen.features_backward(&window.pictures, &encoded, &d_features, n_features);
        for (encoded, d) in encoded.iter().zip(&d_pictures) {
            Encoder::new(&layout, &weights).backward(encoded, d, &mut gradient);
        }
        let norm = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let loss = |way: f64| {
            let moved = weights.iter().zip(&gradient).map(|(w, g)| w + (way / norm) as f32 * g);
            let features = features(&moved.collect::<Vec<_>>()).0;
            let terms = features.iter().zip(&d_features);
            terms.map(|(f, d)| f64::from(*f) * f64::from(*d)).sum::<f64>()
        };
        // Short, since attention is much bent where little is heard.
        let slope = (loss(3e-5) - loss(-3e-5)) / 6e-5;
        assert!((slope / norm - 1.0).abs() < 0.01, "slope {slope}, gradient {norm}");
    }

    #[test]
    fn pictures_get_better() {
        let (config, video) = small();
        let (data, mut trainer) = (data(), VideoTrainer::new(config, video).unwrap());
        let score = |trainer: &VideoTrainer| trainer.validate(data.spread(1, 0)).unwrap().unwrap();
        let before = score(&trainer);
        for _ in 0..config.steps {
            trainer.step(&data).unwrap();
        }
        let after = score(&trainer);
        let is_better = after.psnr > before.psnr + 0.7 && after.ssim > before.ssim + 0.02;
        assert!(is_better, "{before:?}, then {after:?}");
        assert_eq!(after.n, 2, "two cameras");
    }

    #[test]
    fn particles_are_drawn_where_the_truth_moved_them() {
        let data = data();
        let now = data.spread(1, 0).next().unwrap().unwrap();
        assert_eq!(now.positions, now.seen.positions);
        let later = data.spread(1, 1).next().unwrap().unwrap();
        let moved = later.positions.iter().zip(&later.seen.positions);
        let n_moved = moved.filter(|(there, here)| there != here).count();
        assert!(n_moved > 0 && n_moved < later.positions.len() / 2, "{n_moved}");
    }
}
