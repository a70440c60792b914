//! One frame as the page shows it: positions in 16 bits an axis, as base64 in JSON.

use serde::Serialize;

use crate::baselines;
use crate::later::{Seen, Start};
use crate::metrics::{Class, Scores, TrueMotion};
use crate::page::scenes::Setting;
use crate::page::text::{base64, json};
use forecloud::Result;
use forecloud::base::geometry::Vec3;
use forecloud::message::Stamp;

/// Steps that are shown at most; of longer roll-outs every second one, or third, …
const MAX_STEPS: usize = 25;
/// Bytes of one scene, about: of larger ones only a part of the particles is shown.
const MAX_BYTES: usize = 5 << 18;
/// How far beyond the workspace positions are told apart (m).
const MARGIN_M: f32 = 1.0;

/// One frame of the page.
#[derive(Debug, Clone)]
pub struct Scene {
    /// Stamp of the frame.
    pub stamp: Stamp,
    /// Summed way of what moves; 0 in a still scene.
    pub activity: f64,
    /// How many of its recording are more active.
    pub(super) rank: usize,
    /// Its data for the page's script, ready for a script element.
    pub json: String,
}

/// What the page's script reads; see `view.js`.
#[derive(Serialize)]
struct Data {
    /// Steps of the prediction that one shown step stands for.
    stride: usize,
    n: usize,
    n_all: usize,
    steps: usize,
    min: Vec3,
    size: Vec3,
    colors: String,
    /// [`Class`] by number: moving if it moves in any step; none without truth.
    classes: Option<String>,
    /// `[steps + 1][n]`
    prediction: String,
    /// `[n_true_steps + 1][n]`
    truth: Option<String>,
    true_steps: usize,
    /// Metres in each step of the prediction, `[n]`, f32.
    estimated: Option<String>,
    velocity: Option<String>,
    seen: Option<Vec<Option<SeenData>>>,
    /// Mean errors on the points that move, after each shown step (mm).
    errors: Option<[Vec<Option<f64>>; 4]>,
    moving: Vec<u64>,
}

#[derive(Serialize)]
struct SeenData {
    n: usize,
    positions: String,
    colors: String,
}

impl Scene {
    /// A frame whose truth is known.
    ///
    /// # Errors
    /// As [`Scores::add`].
    pub(super) fn known(
        setting: &Setting,
        stamp: Stamp,
        activity: f64,
        start: &Start,
        truth: &TrueMotion,
    ) -> Result<Self> {
        let (now, horizon) = (&start.positions, start.displacements.len());
        let privileged = baselines::constant_velocity(&truth.back, now, horizon);
        let still = baselines::nothing_moves(now.len(), horizon);
        let estimated = start.estimated.as_ref().map(|step| vec![step.clone(); horizon]);
        let stride = stride(horizon);
        let shown = || (0..horizon).skip(stride - 1).step_by(stride);
        let mut moving = Vec::new();
        let mut errors: [Vec<Option<f64>>; 4] = Default::default();
        let methods =
            [Some(&start.displacements), Some(&still), estimated.as_ref(), Some(&privileged)];
        for (errors, method) in errors.iter_mut().zip(methods) {
            let Some(displacements) = method else { continue };
            let mut scores = Scores::default();
            scores.add("", displacements, truth)?;
            let means = shown().map(|step| scores.mean(Class::Moving, step, None));
            (*errors, moving) = means.map(|mean| (mean.get(), mean.n)).unzip();
        }
        let velocity = privileged.into_iter().next();
        let packer = Packer::new(setting, start);
        let classes = (0..now.len()).map(|i| overall(truth, i) as u8).collect();
        let data = Data {
            classes: Some(packer.bytes(classes)),
            truth: Some(packer.positions(truth.positions.iter().step_by(stride))),
            true_steps: truth.n_steps() / stride,
            velocity: velocity.map(|step| packer.floats(&step)),
            errors: Some(errors),
            moving,
            ..packer.data(start)
        };
        Ok(Self { stamp, activity, rank: 0, json: json(&data) })
    }

    /// A frame without truth, with what was `seen` after each step, `[n_steps]`.
    pub(super) fn seen(
        setting: &Setting,
        stamp: Stamp,
        activity: f64,
        start: &Start,
        seen: &[Option<Seen>],
    ) -> Result<Self> {
        let stride = stride(start.displacements.len());
        let packer = Packer::new(setting, start);
        let pack = |seen: &Option<Seen>| {
            seen.as_ref().map(|seen| SeenData {
                n: packer.kept(seen.positions.len()).count(),
                positions: packer.positions([&seen.positions]),
                colors: packer.colors(&seen.colors),
            })
        };
        let shown = seen.iter().skip(stride - 1).step_by(stride).map(pack).collect();
        let data = Data { seen: Some(shown), ..packer.data(start) };
        Ok(Self { stamp, activity, rank: 0, json: json(&data) })
    }
}

/// What a particle is over all steps.
fn overall(truth: &TrueMotion, i: usize) -> Class {
    let mut classes = truth.classes.iter().map(|step| step[i]);
    let first = classes.clone().next().unwrap_or(Class::Static);
    if classes.any(|class| class == Class::Moving) { Class::Moving } else { first }
}

fn stride(n_steps: usize) -> usize {
    n_steps.div_ceil(MAX_STEPS).max(1)
}

/// Makes positions into 16 bits an axis of a box, and leaves particles out where there are too many.
struct Packer {
    min: Vec3,
    size: Vec3,
    stride: usize,
    n: usize,
    n_kept_most: usize,
}

impl Packer {
    fn new(setting: &Setting, start: &Start) -> Self {
        let workspace = &setting.workspace;
        let min = workspace.min.map(|x| x - MARGIN_M);
        let size = std::array::from_fn(|i| workspace.max[i] + MARGIN_M - min[i]);
        let (n, n_steps) = (start.positions.len(), start.displacements.len());
        let stride = stride(n_steps);
        // Start, class and velocities; a step: two positions, or one and what is seen. Base64 adds
        // a third.
        let bytes_each = (40 + 15 * (n_steps / stride)) * 4 / 3;
        Self { min, size, stride, n, n_kept_most: MAX_BYTES / bytes_each }
    }

    /// Every particle, or as many as [`MAX_BYTES`] allow, evenly along the Morton curve.
    fn kept(&self, n: usize) -> impl Iterator<Item = usize> + use<> {
        let n_kept = n.min(self.n_kept_most);
        (0..n_kept).map(move |i| i * n / n_kept)
    }

    fn positions<'a>(&self, steps: impl IntoIterator<Item = &'a Vec<Vec3>>) -> String {
        let mut bytes = Vec::new();
        for positions in steps {
            for i in self.kept(positions.len()) {
                for (axis, x) in positions[i].iter().enumerate() {
                    let share = (x - self.min[axis]) / self.size[axis];
                    // The conversion saturates at both ends and reads NaN as 0.
                    bytes.extend(((share * 65_535.0).round() as u16).to_le_bytes());
                }
            }
        }
        base64(&bytes)
    }

    fn colors(&self, colors: &[Vec3]) -> String {
        let byte = |channel: f32| (channel * 255.0).round() as u8;
        let bytes: Vec<u8> = self.kept(colors.len()).flat_map(|i| colors[i].map(byte)).collect();
        base64(&bytes)
    }

    fn bytes(&self, values: Vec<u8>) -> String {
        base64(&self.kept(values.len()).map(|i| values[i]).collect::<Vec<u8>>())
    }

    fn floats(&self, step: &[Vec3]) -> String {
        let rows = self.kept(step.len()).flat_map(|i| step[i]);
        base64(&rows.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    }

    fn data(&self, start: &Start) -> Data {
        let mut predicted = vec![start.positions.clone()];
        let mut last = start.positions.clone();
        for (step, moves) in start.displacements.iter().enumerate() {
            for (x, d) in last.iter_mut().zip(moves) {
                *x = std::array::from_fn(|axis| x[axis] + d[axis]);
            }
            if (step + 1) % self.stride == 0 {
                predicted.push(last.clone());
            }
        }
        Data {
            stride: self.stride,
            n: self.kept(self.n).count(),
            n_all: self.n,
            steps: predicted.len() - 1,
            min: self.min,
            size: self.size,
            colors: self.colors(&start.colors),
            classes: None,
            prediction: self.positions(&predicted),
            truth: None,
            true_steps: 0,
            estimated: start.estimated.as_ref().map(|step| self.floats(step)),
            velocity: None,
            seen: None,
            errors: None,
            moving: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
