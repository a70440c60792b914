//! A picture of the truth beside the prediction; without truth, of what was seen later.

pub mod canvas;

use std::path::Path;

use crate::later::{CHANGED_M, Expected, Later, Seen, Start};
use crate::metrics::{Class, distance_m};
use crate::replay::Replayed;
use canvas::{Canvas, Rgb};
#[cfg(doc)]
use forecloud::Error;
use forecloud::Result;
use forecloud::base::geometry::{PointTree, Vec3};
use forecloud_bag::outputs::{Kind, Outputs};

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

/// Points seen nearer to each other than to what was there before, for something to be new.
const DENSE: usize = 4;

const BACKGROUND: Rgb = [250, 250, 248];
const TEXT: Rgb = [40, 40, 46];
const MOVING: Rgb = [226, 74, 16];
const ROBOT: Rgb = [54, 104, 178];
const FALSE_MOTION: Rgb = [150, 60, 160];

/// One predicted frame, and what truly happened or what was seen later.
#[derive(Debug, Clone)]
pub struct Shot {
    /// The task; none without truth.
    task: Option<String>,
    step_secs: f64,
    colors: Vec<Vec3>,
    /// What each particle is: moving if it does in any step.
    classes: Vec<Class>,
    /// Positions now and after each step (m), `[n_steps + 1][n]`.
    prediction: Vec<Vec<Vec3>>,
    beside: Beside,
    /// Summed way of what moves (m).
    activity_m: f64,
}

/// What the prediction stands beside.
#[derive(Debug, Clone)]
enum Beside {
    /// True positions now and after each step (m), `[n_steps + 1][n]`.
    Truth(Vec<Vec<Vec3>>),
    /// Points seen after the last step, and which of them were not there before.
    Seen(Seen, Vec<bool>),
}

/// Keeps the frame in which most moves; one with truth, if there is any.
#[derive(Debug, Clone)]
pub struct MostActive {
    best: Option<Shot>,
    later: Later,
    step_secs: f64,
}

impl MostActive {
    /// For predictions of `horizon` steps; without truth, a frame shows the end of a step if it
    /// misses it by no more than `tolerance_secs`.
    pub fn new(step_secs: f64, horizon: usize, tolerance_secs: f64) -> Self {
        Self { best: None, later: Later::new(step_secs, horizon, tolerance_secs), step_secs }
    }

    /// Looks at one more frame of the recording at hand.
    ///
    /// # Errors
    /// [`Error::NonFinite`] if a predicted position is not finite.
    pub fn watch(&mut self, frame: &Replayed) -> Result<()> {
        if frame.task.is_some() {
            Shot::known(frame, self.step_secs).into_iter().for_each(|shot| self.take(shot));
            return Ok(());
        }
        let done = frame.prediction.map_or(vec![], |prediction| self.later.watch(prediction));
        self.take_seen(&done)
    }

    /// Ends the recording at hand.
    ///
    /// # Errors
    /// As [`MostActive::watch`].
    pub fn end_recording(&mut self) -> Result<()> {
        let done = self.later.end();
        self.take_seen(&done)
    }

    /// The most active frame; none if no object moved, or if nothing was seen later.
    pub fn get(&self) -> Option<&Shot> {
        self.best.as_ref()
    }

    fn take_seen(&mut self, done: &[Expected]) -> Result<()> {
        for expected in done {
            let best = self.best.as_ref().map(Shot::rank);
            let Some(activity_m) = expected.activity_m()? else { continue };
            if best.is_none_or(|best| best < (false, activity_m)) {
                self.best = Shot::seen(expected, activity_m, self.step_secs)?.or(self.best.take());
            }
        }
        Ok(())
    }

    fn take(&mut self, shot: Shot) {
        let best = self.best.as_ref().map_or((true, 0.0), Shot::rank);
        if shot.rank() > best || (!best.0 && shot.activity_m > 0.0) {
            self.best = Some(shot);
        }
    }
}

impl Shot {
    /// None unless the truth reaches as far as the prediction.
    fn known(frame: &Replayed, step_secs: f64) -> Option<Self> {
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
        Some(Self {
            task: frame.task.map(str::to_owned),
            step_secs,
            colors: prediction.particles.colors.clone(),
            classes,
            prediction: Start::of(prediction, step_secs).predicted(),
            beside: Beside::Truth(truth.positions.clone()),
            activity_m,
        })
    }

    /// Up to the last step whose end was seen; none if none was.
    fn seen(expected: &Expected, activity_m: f64, step_secs: f64) -> Result<Option<Self>> {
        let Some((step, seen)) = expected.last() else { return Ok(None) };
        let mut prediction = expected.start.predicted();
        prediction.truncate(step + 2);
        let ends =
            prediction.first().into_iter().flatten().zip(prediction.last().into_iter().flatten());
        // Of what should rest, nothing is known.
        let class = |(from, to)| match distance_m(from, to) > SHORTEST_WAY_M {
            true => Class::Moving,
            false => Class::Static,
        };
        let classes = ends.map(class).collect();
        let (before, then) =
            (PointTree::new(&expected.start.positions)?, PointTree::new(&seen.positions)?);
        // Where particles are sparse, as on the support plane, they are never near those before.
        let is_new = |x: &Vec3| {
            let way_m = before.distance_m(x).unwrap_or(f32::INFINITY);
            way_m > CHANGED_M && then.within(x, 0.5 * way_m.min(1.0)).take(DENSE).count() == DENSE
        };
        let changed = seen.positions.iter().map(is_new).collect();
        Ok(Some(Self {
            task: None,
            step_secs,
            colors: expected.start.colors.clone(),
            classes,
            prediction,
            beside: Beside::Seen(seen.clone(), changed),
            activity_m,
        }))
    }

    /// Truth first, then activity.
    fn rank(&self) -> (bool, f64) {
        (self.task.is_some(), self.activity_m)
    }

    /// What the picture shows, in one line.
    pub fn caption(&self) -> String {
        let secs = self.secs();
        match &self.beside {
            Beside::Truth(truth) => format!(
                "{}, {secs} s ahead: mean error {:.0} mm on the points that move; nothing moves: \
                 {:.0} mm",
                self.task.as_deref().unwrap_or_default(),
                self.mean_error_mm(self.prediction.last(), truth),
                self.mean_error_mm(truth.first(), truth)
            ),
            Beside::Seen(_, changed) => {
                let share = |n: usize, of: usize| 100.0 * n as f64 / of.max(1) as f64;
                let n_changed = changed.iter().filter(|&&changed| changed).count();
                let n_moving = self.classes.iter().filter(|&&c| c == Class::Moving).count();
                format!(
                    "without truth, {secs} s ahead: {:.1} % of what was seen then lies where \
                     nothing was before; {:.1} % is predicted to move",
                    share(n_changed, changed.len()),
                    share(n_moving, self.classes.len())
                )
            }
        }
    }

    /// Of the points that move, at `ends`.
    fn mean_error_mm(&self, ends: Option<&Vec<Vec3>>, truth: &[Vec<Vec3>]) -> f64 {
        let points = self.classes.iter().zip(ends.into_iter().flatten());
        let pairs = points.zip(truth.last().into_iter().flatten());
        let moving = pairs.filter(|((class, _), _)| **class == Class::Moving);
        let errors: Vec<f64> = moving.map(|((_, a), b)| 1e3 * distance_m(a, b)).collect();
        errors.iter().sum::<f64>() / errors.len().max(1) as f64
    }

    fn secs(&self) -> f32 {
        (self.step_secs * (self.prediction.len() - 1) as f64) as f32
    }

    /// What truly happened, or was seen later, and the prediction, side by side, as PNG.
    pub fn png(&self) -> Vec<u8> {
        let [width, height] = PANEL;
        let mut canvas = Canvas::new([2 * width, height + 2 * BAND], BACKGROUND);
        let secs = self.secs();
        let left = match &self.beside {
            Beside::Truth(truth) => {
                let view = View::of(truth.iter().chain(&self.prediction).flatten());
                self.panel(&mut canvas, truth, |x| view.project(x, 0.0));
                self.panel(&mut canvas, &self.prediction, |x| view.project(x, width as f32));
                "Truth"
            }
            Beside::Seen(seen, changed) => {
                let view = View::of(self.prediction.iter().chain([&seen.positions]).flatten());
                seen_panel(&mut canvas, seen, changed, |x| view.project(x, 0.0));
                self.panel(&mut canvas, &self.prediction, |x| view.project(x, width as f32));
                "Seen"
            }
        };
        canvas.text([24, 20], 3, &format!("{left} after {secs} s"), TEXT);
        canvas.text([width + 24, 20], 3, &format!("Prediction after {secs} s"), TEXT);
        let bottom = height + BAND;
        canvas.text([24, bottom + 8], 2, &self.caption(), TEXT);
        let legend: &[_] = match &self.beside {
            Beside::Truth(_) => {
                &[("object", MOVING), ("robot", ROBOT), ("moves, but should rest", FALSE_MOTION)]
            }
            Beside::Seen(..) => &[("was not there before; is predicted to move", MOVING)],
        };
        let mut x = 24;
        for (name, color) in legend {
            canvas.disc([x as f32 + 6.0, bottom as f32 + 46.0], 6.0, *color);
            canvas.text([x + 20, bottom + 38], 2, name, TEXT);
            x += 44 + canvas::text_width(2, name);
        }
        canvas.png()
    }

    /// Writes [`Shot::png`] to a file; one that Forecloud did not write is not replaced.
    ///
    /// # Errors
    /// As [`Outputs::write`].
    pub fn save(&self, path: &Path, outputs: &Outputs) -> Result<()> {
        outputs.write(path, Kind::Picture, &self.png())
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
        let own = shown(self.colors.get(i));
        match self.classes[i] {
            Class::Moving | Class::Sudden => (MOVING, 5.0),
            Class::Robot => (ROBOT, 4.0),
            Class::Static | Class::Resting if moves => (FALSE_MOTION, 4.0),
            Class::Resting => (mix(own, BACKGROUND, 0.3), 4.5),
            Class::Static => (mix(own, BACKGROUND, 0.7), 3.5),
        }
    }
}

/// Points seen, the farthest first; those that were not there before stand out.
fn seen_panel(
    canvas: &mut Canvas,
    seen: &Seen,
    changed: &[bool],
    project: impl Fn(&Vec3) -> ([f32; 2], f32),
) {
    let mut order: Vec<usize> = (0..seen.positions.len()).collect();
    let depth = |i: &usize| project(&seen.positions[*i]).1;
    order.sort_by(|a, b| depth(b).total_cmp(&depth(a)));
    for i in order {
        let (color, radius) = match changed[i] {
            true => (MOVING, 5.0),
            false => (mix(shown(seen.colors.get(i)), BACKGROUND, 0.7), 3.5),
        };
        canvas.disc(project(&seen.positions[i]).0, radius, color);
    }
}

/// A colour of 0..1 as it is drawn.
fn shown(color: Option<&Vec3>) -> Rgb {
    color.map_or(TEXT, |color| color.map(|c| (255.0 * c) as u8))
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
