//! What the cameras will see of predictions, drawn, beside what they saw then: `forecloud replay
//! --render`.

mod sheet;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::Replayed;
use crate::method::Method;
use crate::metrics::Mean;
use crate::similarity::alike;
use forecloud::Result;
use forecloud::base::geometry::{Vec3, plus};
use forecloud::message::Stamp;
use forecloud::predict::prediction::{Prediction, milliseconds_since};
use forecloud::vision::cloud::Cloud;
use forecloud_video::{Drawing, Guides, Picture, VideoModel};

pub use sheet::Sheet;

/// Time from one predicted frame that is drawn to the next (s): a picture takes a tenth of a second or
/// more, and frames between look alike.
pub const APART_SECS: f64 = 0.5;

/// Draws what replay predicts, as its frames come.
pub struct Film {
    model: VideoModel,
    step_secs: f64,
    horizon: usize,
    tolerance_secs: f64,
    seed: u64,
    /// Frames that were drawn and wait for what was seen later; bounded by the horizon.
    waiting: VecDeque<Drawn>,
    last: Option<Stamp>,
    cloud: Cloud,
    scores: [Vec<Score>; METHODS.len()],
    n_frames: u64,
    picture_ms: Mean,
    best: Option<Sheet>,
}

/// Whose pictures are drawn.
const METHODS: [Method; 2] = [Method::Model, Method::NothingMoves];

/// Means after one step.
#[derive(Debug, Clone, Copy, Default)]
struct Score {
    ssim: Mean,
    psnr: Mean,
}

/// A frame that was drawn as it is and will be.
struct Drawn {
    stamp: Stamp,
    /// As it is drawn now, and as predicted after each step, `[horizon + 1][cameras]`.
    predicted: Vec<Vec<Colors>>,
    /// What was seen nearest to each step's end, and how far off (s) that is.
    seen: Vec<Option<(f64, Arc<Vec<Picture>>)>>,
    pictures: Arc<Vec<Picture>>,
}

/// Red, green and blue of a picture's pixels, 0 to 1.
type Colors = Vec<[f32; 3]>;

/// How alike drawn pictures are to what was seen, of the pixels whose depth was measured; means over
/// pictures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VideoReport {
    /// Width and height of the largest picture (pixels).
    pub size: [u32; 2],
    /// Frames that were drawn.
    pub n_frames: u64,
    /// What a picture took to draw: mean over all (ms).
    pub picture_ms: Option<f64>,
    /// A row for each method.
    pub rows: Vec<VideoRow>,
}

/// Pictures of one method, now and after each step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VideoRow {
    /// Whose prediction is drawn.
    pub method: Method,
    /// Structural similarity, `[horizon + 1]`; at most 1.
    pub ssim: Vec<Option<f64>>,
    /// Peak signal-to-noise ratio, `[horizon + 1]` (dB).
    pub psnr: Vec<Option<f64>>,
    /// Pictures behind each.
    pub n_pictures: Vec<u64>,
}

impl Film {
    /// Draws with `model` what is predicted for `horizon` steps; a frame shows the end of a step if it
    /// misses it by no more than `tolerance_secs`.
    pub fn new(
        model: VideoModel,
        step_secs: f64,
        horizon: usize,
        tolerance_secs: f64,
        seed: u64,
    ) -> Self {
        Self {
            model,
            step_secs,
            horizon,
            tolerance_secs,
            seed,
            waiting: VecDeque::new(),
            last: None,
            cloud: Cloud::default(),
            scores: [(); METHODS.len()].map(|()| vec![Score::default(); horizon + 1]),
            n_frames: 0,
            picture_ms: Mean::default(),
            best: None,
        }
    }

    /// Takes one more frame of the recording at hand.
    ///
    /// # Errors
    /// As [`Picture::of_cameras`] and [`Drawing::draw`].
    pub fn watch(&mut self, frame: &Replayed) -> Result<()> {
        let now = frame.stamp;
        let (step_secs, tolerance_secs) = (self.step_secs, self.tolerance_secs);
        let off = |drawn: &Drawn, step: usize| {
            (now.secs_since(drawn.stamp) - step as f64 * step_secs).abs()
        };
        let steps = 1..=self.horizon;
        let is_awaited =
            |drawn: &Drawn| steps.clone().any(|step| off(drawn, step) <= tolerance_secs);
        let last = self.last.map(|last| now.secs_since(last));
        // A hundredth less: frames are not on time to the last nanosecond.
        let is_due = last.is_none_or(|secs| !(0.0..0.99 * APART_SECS).contains(&secs));
        let prediction = frame.prediction.filter(|_| is_due);
        if prediction.is_none() && !self.waiting.iter().any(is_awaited) {
            return Ok(());
        }
        let most = self.model.layout.config.picture;
        let pictures = Arc::new(Picture::of_cameras(frame.cameras, most, &mut self.cloud)?);
        for drawn in &mut self.waiting {
            for step in 1..=self.horizon {
                let off = off(drawn, step);
                let best = &mut drawn.seen[step];
                if off <= tolerance_secs && best.as_ref().is_none_or(|best| off < best.0) {
                    *best = Some((off, Arc::clone(&pictures)));
                }
            }
        }
        if let Some(prediction) = prediction.filter(|_| !pictures.is_empty()) {
            let drawing = Drawing::new(&self.model, &pictures, self.seed, now.nanos())?;
            let places = carried(&drawing.seen.positions, prediction)?;
            let picture_ms = &mut self.picture_ms;
            let draw = |positions: &Vec<Vec3>| -> Result<Vec<Colors>> {
                let of = |picture| {
                    let start = Instant::now();
                    let drawn = drawing.draw(positions, picture)?;
                    picture_ms.add(milliseconds_since(start));
                    Ok(drawn.iter().map(|seen| seen.color).collect())
                };
                pictures.iter().map(of).collect()
            };
            let now_and_later = std::iter::once(&drawing.seen.positions).chain(&places);
            let predicted = now_and_later.map(draw).collect::<Result<Vec<_>>>()?;
            let mut seen = vec![None; self.horizon + 1];
            seen[0] = Some((0.0, Arc::clone(&pictures)));
            self.waiting.push_back(Drawn { stamp: now, predicted, seen, pictures });
            self.last = Some(now);
            self.n_frames += 1;
        }
        let reach_secs = self.horizon as f64 * self.step_secs + self.tolerance_secs;
        while self.waiting.front().is_some_and(|drawn| now.secs_since(drawn.stamp) > reach_secs) {
            self.judge_first();
        }
        Ok(())
    }

    /// Ends the recording at hand; the sheet of its frame in whose pictures most changes.
    pub fn end_recording(&mut self) -> Option<Sheet> {
        while !self.waiting.is_empty() {
            self.judge_first();
        }
        self.last = None;
        self.best.take()
    }

    /// Holds the oldest frame that waits against what was seen.
    fn judge_first(&mut self) {
        let Some(drawn) = self.waiting.pop_front() else { return };
        let far_m = self.model.layout.config.far_m;
        for (step, seen) in drawn.seen.iter().enumerate() {
            let (Some((_, seen)), Some(predicted)) = (seen, drawn.predicted.get(step)) else {
                continue;
            };
            for (number, picture) in drawn.pictures.iter().enumerate() {
                let same =
                    |then: &&Picture| then.camera == picture.camera && then.size == picture.size;
                let Some(then) = seen.iter().find(same) else { continue };
                let truth = then.drawable_colors(far_m);
                let pictures = [&predicted[number], &drawn.predicted[0][number]];
                for (scores, colors) in self.scores.iter_mut().zip(pictures) {
                    let found = alike(picture.size, &truth, colors, &then.depths_m);
                    if let Some((ssim, psnr)) = found {
                        scores[step].ssim.add(ssim);
                        // What is drawn of a scene is never the same to the last bit.
                        scores[step].psnr.add(psnr.min(100.0));
                    }
                }
            }
        }
        let sheet = Sheet::of(&drawn, self.step_secs, far_m);
        let best = self.best.as_ref().map_or(f64::NEG_INFINITY, |best| best.change);
        self.best = sheet.filter(|sheet| sheet.change > best).or(self.best.take());
    }

    /// What was found in all recordings so far; none if nothing was drawn.
    pub fn report(&self) -> Option<VideoReport> {
        let row = |(method, scores): (Method, &Vec<Score>)| VideoRow {
            method,
            ssim: scores.iter().map(|score| score.ssim.get()).collect(),
            psnr: scores.iter().map(|score| score.psnr.get()).collect(),
            n_pictures: scores.iter().map(|score| score.ssim.n).collect(),
        };
        let rows: Vec<VideoRow> = METHODS.into_iter().zip(&self.scores).map(row).collect();
        let is_empty = rows.iter().all(|row| row.n_pictures.iter().all(|n| *n == 0));
        let (size, n_frames) = (self.model.layout.config.picture, self.n_frames);
        let picture_ms = self.picture_ms.get();
        (!is_empty).then_some(VideoReport { size, n_frames, picture_ms, rows })
    }
}

/// Where the points at `points` (m) are after each step of `prediction`, `[horizon][n]`.
fn carried(points: &[Vec3], prediction: &Prediction) -> Result<Vec<Vec<Vec3>>> {
    let from = &prediction.particles.positions;
    let guides = Guides::new(points, from)?;
    let mut to = from.clone();
    let step = |moves: &Vec<Vec3>| {
        to.iter_mut().zip(moves).for_each(|(position, way)| *position = plus(position, way));
        guides.carry(points, from, &to)
    };
    Ok(prediction.displacements.iter().map(step).collect())
}
