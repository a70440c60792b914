//! A picture of the truth beside the prediction.

pub(crate) mod canvas;

use std::path::Path;

use crate::eval::metrics::{Class, distance_m};
use crate::eval::replay::Replayed;
use crate::{Error, Result};
use canvas::{Canvas, Rgb};

type Vec3 = [f32; 3];

/// Size of one panel, and of the bands above and below both, in pixels.
const PANEL: [usize; 2] = [800, 600];
const BAND: usize = 64;
/// Direction that the picture is seen from: from the front right, from above (world frame).
const AZIMUTH_DEG: f32 = -55.0;
const ELEVATION_DEG: f32 = 38.0;
/// Distance of the eye from the middle, in radii of the scene.
const EYE_RADII: f32 = 3.5;
/// Ways shorter than this are not drawn (m).
const SHORTEST_WAY_M: f64 = 0.004;

const BACKGROUND: Rgb = [250, 250, 248];
const TEXT: Rgb = [40, 40, 46];
const MOVING: Rgb = [226, 74, 16];
const ROBOT: Rgb = [54, 104, 178];
const FALSE_MOTION: Rgb = [150, 60, 160];

/// One predicted frame whose truth is known for all steps.
#[derive(Debug, Clone)]
pub struct Shot {
    task: String,
    step_secs: f64,
    colors: Vec<Vec3>,
    /// What each particle is: moving if it does in any step.
    classes: Vec<Class>,
    /// Positions now and after each step (m), `[n_steps + 1][n]`.
    truth: Vec<Vec<Vec3>>,
    prediction: Vec<Vec<Vec3>>,
    /// Summed way of all moving points (m).
    activity_m: f64,
}

/// Keeps the frame in which the objects' points move most.
#[derive(Debug, Clone, Default)]
pub struct MostActive(Option<Shot>);

impl MostActive {
    /// Looks at one more frame.
    pub fn watch(&mut self, frame: &Replayed, step_secs: f64) {
        let shot = Shot::of(frame, step_secs);
        let best = self.0.as_ref().map_or(0.0, |best| best.activity_m);
        if let Some(shot) = shot.filter(|shot| shot.activity_m > best) {
            self.0 = Some(shot);
        }
    }

    /// The most active frame; none if no object moved or there is no truth.
    pub fn get(&self) -> Option<&Shot> {
        self.0.as_ref()
    }
}

impl Shot {
    /// None unless the truth reaches as far as the prediction.
    pub fn of(frame: &Replayed, step_secs: f64) -> Option<Self> {
        let (prediction, truth) = (frame.prediction?, frame.truth?);
        let n_steps = prediction.displacements.len();
        let (first, last) = (truth.positions.first()?, truth.positions.get(n_steps)?);
        let mut classes = truth.classes.first()?.clone();
        for step in &truth.classes {
            let moving = classes.iter_mut().zip(step).filter(|(_, now)| **now == Class::Moving);
            moving.for_each(|(class, _)| *class = Class::Moving);
        }
        let ways = classes.iter().zip(first.iter().zip(last));
        let moving = ways.filter(|(class, _)| **class == Class::Moving);
        let activity_m = moving.map(|(_, (from, to))| distance_m(from, to)).sum();
        let mut predicted = vec![first.clone()];
        for moves in &prediction.displacements {
            let last = predicted.last().into_iter().flatten().zip(moves);
            let next = last.map(|(x, d)| std::array::from_fn(|axis| x[axis] + d[axis])).collect();
            predicted.push(next);
        }
        Some(Self {
            task: frame.task.unwrap_or_default().to_owned(),
            step_secs,
            colors: prediction.particles.colors.clone(),
            classes,
            truth: truth.positions.clone(),
            prediction: predicted,
            activity_m,
        })
    }

    /// What the picture shows, in one line.
    pub fn caption(&self) -> String {
        let mean_mm = |end: Option<&Vec<Vec3>>| {
            let points = self.classes.iter().zip(end.into_iter().flatten());
            let pairs = points.zip(self.truth.last().into_iter().flatten());
            let moving = pairs.filter(|((class, _), _)| **class == Class::Moving);
            let errors: Vec<f64> = moving.map(|((_, a), b)| 1e3 * distance_m(a, b)).collect();
            errors.iter().sum::<f64>() / errors.len().max(1) as f64
        };
        format!(
            "{}, {} s ahead: mean error {:.0} mm on the points that move; nothing moves: {:.0} mm",
            self.task,
            self.secs(),
            mean_mm(self.prediction.last()),
            mean_mm(self.truth.first())
        )
    }

    fn secs(&self) -> f32 {
        (self.step_secs * (self.prediction.len() - 1) as f64) as f32
    }

    /// Draws the truth and the prediction side by side and writes them as PNG.
    ///
    /// # Errors
    /// [`Error::Io`] if the file can't be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let [width, height] = PANEL;
        let mut canvas = Canvas::new([2 * width, height + 2 * BAND], BACKGROUND);
        let view = View::of(self.truth.iter().chain(&self.prediction).flatten());
        let secs = self.secs();
        let panels = [("Truth", &self.truth), ("Prediction", &self.prediction)];
        for (index, (name, steps)) in panels.into_iter().enumerate() {
            let left = index * width;
            self.panel(&mut canvas, steps, |x| view.project(x, left as f32));
            canvas.text([left + 24, 20], 3, &format!("{name} after {secs} s"), TEXT);
        }
        let bottom = height + BAND;
        canvas.text([24, bottom + 8], 2, &self.caption(), TEXT);
        let mut x = 24;
        for (name, color) in
            [("object", MOVING), ("robot", ROBOT), ("moves, but should rest", FALSE_MOTION)]
        {
            canvas.disc([x as f32 + 6.0, bottom as f32 + 46.0], 6.0, color);
            canvas.text([x + 20, bottom + 38], 2, name, TEXT);
            x += 20 + 16 * (name.len() + 3);
        }
        let io = |cause| Error::Io { path: path.to_owned(), cause };
        std::fs::write(path, canvas.png()).map_err(io)
    }

    /// Ways as lines, ends as discs, the farthest first.
    fn panel(
        &self,
        canvas: &mut Canvas,
        steps: &[Vec<Vec3>],
        project: impl Fn(&Vec3) -> ([f32; 2], f32),
    ) {
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return };
        let mut order: Vec<usize> = (0..last.len()).collect();
        let depth = |i: &usize| project(&last[*i]).1;
        order.sort_by(|a, b| depth(b).total_cmp(&depth(a)));
        for i in order {
            let moves = distance_m(&first[i], &last[i]) > SHORTEST_WAY_M;
            let (color, radius) = self.look(i, moves);
            if moves {
                for pair in steps.windows(2) {
                    let ends = [&pair[0][i], &pair[1][i]].map(|x| project(x).0);
                    canvas.line(ends, 1.5, mix(color, BACKGROUND, 0.55));
                }
            }
            canvas.disc(project(&last[i]).0, radius, color);
        }
    }

    /// Colour and radius in pixels.
    fn look(&self, i: usize, moves: bool) -> (Rgb, f32) {
        let own = self.colors.get(i).map_or(TEXT, |color| color.map(|c| (255.0 * c) as u8));
        match self.classes[i] {
            Class::Moving | Class::Sudden => (MOVING, 5.0),
            Class::Robot => (ROBOT, 4.0),
            Class::Static | Class::Resting if moves => (FALSE_MOTION, 4.0),
            Class::Resting => (mix(own, BACKGROUND, 0.3), 4.5),
            Class::Static => (mix(own, BACKGROUND, 0.7), 3.5),
        }
    }
}

fn mix(a: Rgb, b: Rgb, share_of_b: f32) -> Rgb {
    std::array::from_fn(|c| {
        (f32::from(a[c]) * (1.0 - share_of_b) + f32::from(b[c]) * share_of_b) as u8
    })
}

/// Perspective view of the whole scene, fitted to a panel.
struct View {
    center: Vec3,
    right: Vec3,
    up: Vec3,
    to_eye: Vec3,
    eye_m: f32,
    scale: f32,
    offset: [f32; 2],
}

impl View {
    fn of<'a>(points: impl Iterator<Item = &'a Vec3> + Clone) -> Self {
        let (min, max) = bounds(points.clone().copied());
        let center: Vec3 = std::array::from_fn(|axis| 0.5 * (min[axis] + max[axis]));
        let radius = points.clone().map(|x| distance_m(x, &center) as f32).fold(0.05, f32::max);
        let (sin_a, cos_a) = AZIMUTH_DEG.to_radians().sin_cos();
        let (sin_e, cos_e) = ELEVATION_DEG.to_radians().sin_cos();
        let mut view = Self {
            center,
            right: [-sin_a, cos_a, 0.0],
            up: [-sin_e * cos_a, -sin_e * sin_a, cos_e],
            to_eye: [cos_e * cos_a, cos_e * sin_a, sin_e],
            eye_m: EYE_RADII * radius,
            scale: 1.0,
            offset: [0.0; 2],
        };
        let (min, max) = bounds(points.map(|x| {
            let ([x, y], depth) = view.project(x, 0.0);
            [x, y, depth]
        }));
        let size = PANEL.map(|side| side as f32);
        let fit = |axis: usize| 0.92 * size[axis] / (max[axis] - min[axis]).max(1e-6);
        view.scale = fit(0).min(fit(1));
        let middle = |axis: usize| 0.5 * (size[axis] - view.scale * (min[axis] + max[axis]));
        view.offset = [middle(0), middle(1) + BAND as f32];
        view
    }

    /// Pixel (from the top left; `left` is where the panel begins), and distance from the eye (m).
    fn project(&self, x: &Vec3, left: f32) -> ([f32; 2], f32) {
        let from_center: Vec3 = std::array::from_fn(|axis| x[axis] - self.center[axis]);
        let along = |axis: &Vec3| (0..3).map(|i| axis[i] * from_center[i]).sum::<f32>();
        let depth = (self.eye_m - along(&self.to_eye)).max(1e-3);
        let pixel = |axis: &Vec3| self.scale * along(axis) * self.eye_m / depth;
        let [dx, dy] = self.offset;
        ([left + dx + pixel(&self.right), dy - pixel(&self.up)], depth)
    }
}

fn bounds(points: impl Iterator<Item = Vec3>) -> (Vec3, Vec3) {
    points.fold(([f32::INFINITY; 3], [f32::NEG_INFINITY; 3]), |(min, max), x| {
        let both = |f: fn(f32, f32) -> f32, a: Vec3| std::array::from_fn(|i| f(a[i], x[i]));
        (both(f32::min, min), both(f32::max, max))
    })
}
