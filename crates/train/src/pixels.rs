//! The loss of pixels: what is drawn of where particles go, against what the cameras saw then (HD-VPD,
//! Whitney et al. 2024; GRF masking, ICLR 2025, appendix C.3). Encoder and renderer stay as they are
//! ([`crate::video`] trains them); the gradient goes through the points' places to the particles'.

use std::path::Path;
use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::augment::choose;
use super::dataset::Window;
use super::video::VideoTrainConfig;
use super::video::targets::Targets;
use forecloud::base::geometry::{Vec3, minus, plus};
use forecloud::predict::config::check;
use forecloud::vision::cloud::Cloud;
use forecloud::vision::frames::CameraFrame;
use forecloud::{Error, Result};
use forecloud_video::{
    Drawing, Gradients, Guides, Kept, Picture, Renderer, Scene, Spool, VideoModel,
};

/// Share of the rays that go to pixels in which something changes: of what rests, nothing is learned.
const CHANGED_SHARE: f64 = 0.5;
/// By how much a pixel must change to count: colour (of 255), and depth (m, and as a share of it).
const CHANGED_COLOR: u8 = 24;
const CHANGED_M: f32 = 0.01;
const CHANGED_DEPTH: f32 = 0.03;

/// How pixels teach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PixelConfig {
    /// Weight of the loss (squared colours from 0 to 1) beside that of places, which is in centimetres.
    pub weight: f32,
    /// Rays of each step of a roll-out that is drawn.
    pub rays: usize,
    /// Steps of a roll-out that are drawn, at most: others each time, so that all count alike.
    pub steps: usize,
    /// Which encoder and renderer: their file's hash.
    pub video: String,
}

impl PixelConfig {
    /// What `rays` is unless something else is said, as in the paper.
    pub const RAYS: usize = 128;
    /// What `steps` is: of five, as many as take no more time than the roll-out itself.
    pub const STEPS: usize = 3;
    /// What `weight` is unless something else is said.
    pub const WEIGHT: f32 = 1.0;

    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        check("train.pixels.weight", self.weight, 1e-6..=1e6, "")?;
        check("train.pixels.rays", self.rays, 1..=65_536, "")?;
        check("train.pixels.steps", self.steps, 1..=100, "")
    }
}

/// What draws, and where pictures are kept.
#[derive(Clone)]
pub struct Pixels {
    model: Arc<VideoModel>,
    spool: Arc<Spool>,
}

/// What pixels taught of a window.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct PixelLoss {
    /// Sum over the steps that were drawn of the mean squared errors of rays.
    pub(super) loss: f64,
    pub(super) n_steps: usize,
}

impl Pixels {
    /// Draws with `model`; pictures are kept on the disk of `folder`.
    ///
    /// # Errors
    /// As [`Spool::new`].
    pub fn new(model: VideoModel, folder: &Path) -> Result<Self> {
        Ok(Self { model: Arc::new(model), spool: Arc::new(Spool::new(folder)?) })
    }

    /// Keeps what `cameras` saw; none where no camera has colour and depth.
    ///
    /// # Errors
    /// As [`Picture::of_cameras`] and [`Spool::keep`].
    pub(super) fn keep(
        &self,
        cameras: &[CameraFrame],
        cloud: &mut Cloud,
    ) -> Result<Option<Arc<Kept>>> {
        let pictures = Picture::of_cameras(cameras, self.model.layout.config.picture, cloud)?;
        let kept = || self.spool.keep(&pictures).map(Arc::new);
        (!pictures.is_empty()).then(kept).transpose()
    }

    /// Whether all pictures were kept.
    ///
    /// # Errors
    /// As [`Spool::must_have_kept`].
    pub fn must_have_kept(&self) -> Result<()> {
        self.spool.must_have_kept()
    }

    /// Adds the gradient of the loss by the particles' places after each step, `positions[t + 1]`, times
    /// `scales[t]`, to `d_positions[t]`; they start at `positions[0]`.
    ///
    /// # Errors
    /// As [`Spool::read`], [`Guides::new`] and [`Scene::new`].
    pub(super) fn add(
        &self,
        window: &Window,
        positions: &[Vec<Vec3>],
        (config, scales): (&PixelConfig, &[f32]),
        rng: &mut ChaCha8Rng,
        d_positions: &mut [Vec<Vec3>],
    ) -> Result<PixelLoss> {
        let mut sum = PixelLoss::default();
        let Some(Some(now)) = window.shots.first() else { return Ok(sum) };
        let VideoModel { layout, weights } = &*self.model;
        let now = self.spool.read(now)?;
        let drawing = Drawing::new(&self.model, &now, rng.random(), window.stamp_ns)?;
        let mut points = drawing.seen.positions.clone();
        window.place(&mut points);
        let guides = Guides::new(&points, &positions[0])?;
        let renderer = Renderer::new(layout, weights);
        // Nobody looks at these.
        let mut d_features = vec![0.0; drawing.features().len()];
        let mut d_points = vec![[0.0; 3]; points.len()];
        let later = window.shots.iter().skip(1).enumerate();
        let seen: Vec<_> = later.filter_map(|(t, shot)| Some((t, shot.as_ref()?))).collect();
        let mut drawn = Vec::new();
        choose(rng, seen.len(), config.steps, &mut drawn);
        let share = seen.len() as f32 / drawn.len().max(1) as f32;
        for (t, later) in drawn.into_iter().map(|i| seen[i as usize]) {
            let later = self.spool.read(later)?;
            let targets = self.targets(window, &now, &later, config.rays, rng);
            let there = guides.carry(&points, &positions[0], &positions[t + 1]);
            let scene = Scene::new(layout, &there, drawing.features())?;
            let traced = renderer.trace(&scene, &targets.rays);
            let depth_weight = VideoTrainConfig::default().depth_weight;
            let scale = config.weight * share * scales[t];
            let (loss, d_rays) = targets.loss(&traced, depth_weight, scale);
            if !loss.is_finite() {
                return Err(Error::NonFinite { what: "loss of pixels" });
            }
            d_points.fill([0.0; 3]);
            let mut into =
                Gradients { weights: None, features: &mut d_features, positions: &mut d_points };
            renderer.backward(&scene, &traced, &d_rays, &mut into);
            guides.carry_backward(&d_points, &mut d_positions[t]);
            sum.loss += f64::from(loss);
            sum.n_steps += 1;
        }
        Ok(sum)
    }

    /// Rays of pixels of `later`: half of them where something changed.
    fn targets(
        &self,
        window: &Window,
        now: &[Picture],
        later: &[Picture],
        n: usize,
        rng: &mut ChaCha8Rng,
    ) -> Targets {
        let mut targets = Targets::new(self.model.layout.config.far_m);
        let changed: Vec<(&Picture, usize)> = later
            .iter()
            .flat_map(|later| {
                let before =
                    now.iter().find(|now| (now.camera, now.size) == (later.camera, later.size));
                before.into_iter().flat_map(move |now| {
                    (0..later.n_pixels())
                        .filter(move |&i| has_changed(now, later, i))
                        .map(move |i| (later, i))
                })
            })
            .collect();
        if !changed.is_empty() {
            for _ in 0..(CHANGED_SHARE * n as f64) as usize {
                let (picture, pixel) = changed[rng.random_range(0..changed.len())];
                targets.add(picture, pixel, rng);
            }
        }
        targets.add_random(later, n, rng);
        for ray in &mut targets.rays {
            let mut ends = [ray.origin, plus(&ray.origin, &ray.direction)];
            window.place(&mut ends);
            (ray.origin, ray.direction) = (ends[0], minus(&ends[1], &ends[0]));
        }
        targets
    }
}

/// Whether colour or depth of a pixel differ by more than noise.
fn has_changed(now: &Picture, later: &Picture, pixel: usize) -> bool {
    let [a, b] = [now.colors[pixel], later.colors[pixel]];
    let [near, far] = [now.depths_m[pixel], later.depths_m[pixel]];
    a.iter().zip(b).any(|(a, b)| a.abs_diff(b) > CHANGED_COLOR)
        || (near - far).abs() > CHANGED_M + CHANGED_DEPTH * near.min(far)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::config::{DatasetConfig, Teacher};
    use crate::dataset::Dataset;
    use crate::video::{VideoDataset, VideoTrainConfig, VideoTrainer};
    use forecloud::engine::model::ModelConfig;
    use forecloud::vision::frames::FramesConfig;
    use forecloud_bag::recording::Recording;
    use forecloud_video::VideoConfig;

    const STEPS: usize = 2;

    fn small() -> VideoConfig {
        VideoConfig {
            channels: [4, 6, 8],
            hidden: 16,
            n_particles: 3000,
            picture: [48, 36],
            ..VideoConfig::default()
        }
    }

    /// An encoder and a renderer that have learned for `steps` steps.
    fn video(steps: u64, config: VideoConfig) -> VideoModel {
        let settings = VideoTrainConfig { rays: 128, steps: 200, ..VideoTrainConfig::default() };
        let mut trainer = VideoTrainer::new(settings, config).unwrap();
        let spool = Spool::new(&std::env::temp_dir()).unwrap();
        let mut data = VideoDataset::new(config, FramesConfig::default(), spool);
        let glimpse = Recording::glimpse(path()).unwrap();
        assert!(data.add(path(), &glimpse.truth().unwrap().split, false).unwrap());
        for _ in 0..steps {
            trainer.step(&data).unwrap();
        }
        trainer.model().clone()
    }

    fn path() -> &'static Path {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/tiny_push").as_ref()
    }

    /// A window in which something moves, and what teaches by it.
    fn window(
        teacher: Teacher,
        (steps, darker): (u64, f32),
        config: VideoConfig,
    ) -> (Pixels, Window) {
        let mut video = video(steps, config);
        // Where hardly anything is, nothing is seen.
        let bias = video.layout.dense[2].bias.range().start;
        video.weights[bias] -= darker;
        let pixels = Pixels::new(video, &std::env::temp_dir()).unwrap();
        let config = DatasetConfig { max_horizon: STEPS, teacher, ..DatasetConfig::default() };
        let config = DatasetConfig {
            noise: forecloud::vision::cloud::SensorNoise { strength: 0.0, ..config.noise },
            ..config
        };
        let model = ModelConfig { n_particles: 400, n_history: 100, ..ModelConfig::default() };
        let data = Dataset::new(config, model, FramesConfig::default());
        let mut data = data.with_pixels(pixels.clone());
        let recording = Recording::open(path(), FramesConfig::default()).unwrap();
        data.add_recording(&recording).unwrap();
        let mut window = Window::default();
        assert!(data.draw(&mut ChaCha8Rng::seed_from_u64(4), STEPS, &mut window));
        (pixels, window)
    }

    fn settings() -> PixelConfig {
        PixelConfig { weight: 1.0, rays: 256, steps: STEPS, video: String::new() }
    }

    /// Loss, and its gradients by places, of particles at `positions`.
    fn at(
        pixels: &Pixels,
        window: &Window,
        positions: &[Vec<Vec3>],
    ) -> (PixelLoss, Vec<Vec<Vec3>>) {
        drawn(pixels, window, positions, 9)
    }

    /// The same with rays of this seed.
    fn drawn(
        pixels: &Pixels,
        window: &Window,
        positions: &[Vec<Vec3>],
        seed: u64,
    ) -> (PixelLoss, Vec<Vec<Vec3>>) {
        let mut d = vec![vec![[0.0; 3]; positions[0].len()]; STEPS];
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let how = (&settings(), &[1.0; STEPS][..]);
        (pixels.add(window, positions, how, &mut rng, &mut d).unwrap(), d)
    }

    fn start(window: &Window) -> Vec<Vec<Vec3>> {
        vec![window.scene.start.positions.clone(); STEPS + 1]
    }

    #[test]
    fn the_gradient_by_places_is_that_of_the_loss() {
        // Neighbours, and places that they are seen from, come and go with hardly any weight.
        let smooth = VideoConfig {
            radii_m: [0.0, 0.0, 0.01, 0.01],
            bandwidths_m: [0.01; 4],
            empty_m: 0.05,
            n_particles: 1000,
            ..small()
        };
        let (pixels, window) = window(Teacher::Video, (40, 4.0), smooth);
        assert!(!window.is_labelled);
        let mut positions = start(&window);
        for t in 0..STEPS {
            // Along the gradient of the step, for other rays each time. Short: a place that comes to be
            // empty, or no longer is, is a jump that no gradient tells, so that some draws are far off.
            let mut ratios = [0.0; 15];
            for (draw, ratio) in ratios.iter_mut().enumerate() {
                let (loss, d) = drawn(&pixels, &window, &positions, draw as u64);
                assert_eq!(loss.n_steps, STEPS);
                let d = d[t].as_flattened();
                let norm = d.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
                assert!(norm > 1e-3, "{norm}");
                let mut moved = |way: f64| {
                    let mut there = positions[0].clone();
                    for (x, d) in there.as_flattened_mut().iter_mut().zip(d) {
                        *x += (way / norm) as f32 * d;
                    }
                    let back = std::mem::replace(&mut positions[t + 1], there);
                    let (loss, _) = drawn(&pixels, &window, &positions, draw as u64);
                    positions[t + 1] = back;
                    loss.loss
                };
                let way = 2e-5;
                *ratio = (moved(way) - moved(-way)) / (2.0 * way) / norm;
            }
            ratios.sort_unstable_by(f64::total_cmp);
            assert!((ratios[7] - 1.0).abs() < 0.15, "step {t}: slopes over gradients {ratios:?}");
        }
    }

    #[test]
    fn pixels_pull_particles_to_where_they_went() {
        let (pixels, window) = window(Teacher::Truth, (150, 0.0), small());
        assert!(window.is_labelled);
        let positions = start(&window);
        let (still, d) = at(&pixels, &window, &positions);
        let mut truth = positions.clone();
        truth[1..].clone_from_slice(&window.targets);
        let (right, _) = at(&pixels, &window, &truth);
        assert!(right.loss < still.loss, "{right:?}, nothing moves {still:?}");
        // Towards the truth, the loss falls.
        let (mut slope, mut lengths) = (0.0, 0.0);
        for (d, to) in d.iter().zip(&window.targets) {
            for ((d, to), from) in d.iter().zip(to).zip(&positions[0]) {
                for axis in 0..3 {
                    slope += f64::from(d[axis] * (to[axis] - from[axis]));
                    lengths += f64::from(to[axis] - from[axis]).powi(2);
                }
            }
        }
        assert!(lengths.sqrt() > 0.02 && slope < 0.0, "slope {slope}, way {lengths}");
    }

    #[test]
    fn a_scene_that_is_turned_teaches_the_same() {
        let (pixels, mut window) = window(Teacher::Truth, (20, 0.0), small());
        let now = pixels.spool.read(window.shots[0].as_ref().unwrap()).unwrap();
        let seen = forecloud_video::Seen::draw(&now, 3000, [0.1, 2.0], (0, 0));
        let plain: Vec<Vec3> = seen.positions.into_iter().step_by(7).collect();
        let mut turned = plain.clone();
        window.place(&mut turned);
        assert!(forecloud::base::geometry::distance(&turned[0], &plain[0]) > 0.01, "it is turned");
        let [mut plain, mut turned] = [plain, turned].map(|at| vec![at; STEPS + 1]);
        // What goes up a little is no scene like any other.
        for z in [&mut plain, &mut turned].into_iter().flat_map(|p| &mut p[1..]).flatten() {
            z[2] += 0.02;
        }
        let (of_turned, _) = at(&pixels, &window, &turned);
        window.unturn();
        let (of_plain, _) = at(&pixels, &window, &plain);
        assert!((of_turned.loss / of_plain.loss - 1.0).abs() < 1e-2, "{of_turned:?}, {of_plain:?}");
    }
}
