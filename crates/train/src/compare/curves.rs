//! The runs' validation errors against the CPU time of their training, as a picture.

use super::run::Point;
use super::table::Table;
use forecloud_eval::picture::canvas::{Canvas, Rgb, text_width};

/// Size of the picture, and left, right, top and bottom margins of its axes, in pixels.
const SIZE: [usize; 2] = [1000, 640];
const MARGINS: [usize; 4] = [90, 30, 50, 60];
const LEGEND_LINE: usize = 22;

const BACKGROUND: Rgb = [255, 255, 255];
const TEXT: Rgb = [40, 40, 46];
const GRID: Rgb = [225, 225, 228];
/// Okabe and Ito's colours, which most colour-blind people tell apart; others beside them.
const COLORS: [Rgb; 12] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [230, 159, 0],
    [86, 180, 233],
    [60, 60, 60],
    [150, 90, 40],
    [120, 70, 180],
    [110, 140, 20],
    [170, 20, 60],
    [150, 150, 150],
];

/// Of each run a thin line, of each variant the mean over its seeds as a thick one; PNG.
pub(super) fn png(table: &Table) -> Vec<u8> {
    let mut canvas = Canvas::new(SIZE, BACKGROUND);
    let n_steps = table.plan.settings.validation_steps;
    let name =
        format!("Validation: mean error of moving points after {n_steps} steps, mm, against CPU s");
    canvas.text([MARGINS[0], 18], 1, &name, TEXT);
    let means: Vec<Vec<[f64; 2]>> = table
        .rows
        .iter()
        .map(|row| mean_curve(&table.curves(&row.name).collect::<Vec<_>>()))
        .collect();
    let singles = |name: &str| -> Vec<Vec<[f64; 2]>> {
        table.curves(name).map(|curve| curve.iter().filter_map(place).collect()).collect()
    };
    let all: Vec<[f64; 2]> = table
        .rows
        .iter()
        .flat_map(|row| singles(&row.name))
        .chain(means.iter().cloned())
        .flatten()
        .collect();
    let Some(axes) = Axes::over(&all) else {
        canvas.text([MARGINS[0], 60], 2, "no validation knows moving points", TEXT);
        return canvas.png();
    };
    axes.draw(&mut canvas);
    for (i, (row, mean)) in table.rows.iter().zip(&means).enumerate() {
        let color = COLORS[i % COLORS.len()];
        for single in singles(&row.name) {
            axes.curve(&mut canvas, &single, 1.0, color.map(|c| c / 2 + 127));
        }
        axes.curve(&mut canvas, mean, 3.0, color);
        let [x, y] = [SIZE[0] - 280, MARGINS[2] + 12 + i * LEGEND_LINE];
        let from = [x as f32, y as f32 + 4.0];
        canvas.line([from, [from[0] + 26.0, from[1]]], 3.0, color);
        canvas.text([x + 36, y], 1, &row.name, TEXT);
    }
    canvas.png()
}

fn place(point: &Point) -> Option<[f64; 2]> {
    Some([point.cpu_secs, point.moving_last_mm?])
}

/// Means over runs, validation by validation: all have them at the same steps.
fn mean_curve(curves: &[&[Point]]) -> Vec<[f64; 2]> {
    let length = curves.iter().map(|curve| curve.len()).min().unwrap_or(0);
    let mean = |i: usize| {
        let points: Option<Vec<[f64; 2]>> = curves.iter().map(|curve| place(&curve[i])).collect();
        let points = points?;
        let n = points.len() as f64;
        Some([0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / n))
    };
    (0..length).filter_map(mean).collect()
}

/// Ranges of both axes.
struct Axes {
    low: [f64; 2],
    high: [f64; 2],
}

impl Axes {
    /// Over all `points` and time 0; none without points.
    fn over(points: &[[f64; 2]]) -> Option<Self> {
        let of = |axis: usize, f: fn(f64, f64) -> f64| {
            points.iter().map(|point| point[axis]).filter(|v| v.is_finite()).reduce(f)
        };
        let (bottom, top) = (of(1, f64::min)?, of(1, f64::max)?);
        let room = 0.06 * (top - bottom).max(1e-3);
        let right = of(0, f64::max)?.max(1e-3);
        Some(Self { low: [0.0, bottom - room], high: [right, top + room] })
    }

    fn pixel(&self, point: [f64; 2]) -> [f32; 2] {
        let [left, right, top, bottom] = MARGINS;
        let (width, height) = (SIZE[0] - left - right, SIZE[1] - top - bottom);
        let share =
            |axis: usize| (point[axis] - self.low[axis]) / (self.high[axis] - self.low[axis]);
        let x = left as f64 + share(0) * width as f64;
        let y = (top + height) as f64 - share(1) * height as f64;
        [x as f32, y as f32]
    }

    fn curve(&self, canvas: &mut Canvas, points: &[[f64; 2]], width: f32, color: Rgb) {
        for pair in points.windows(2) {
            canvas.line([self.pixel(pair[0]), self.pixel(pair[1])], width, color);
        }
        for point in points {
            canvas.disc(self.pixel(*point), 1.2 * width, color);
        }
    }

    fn draw(&self, canvas: &mut Canvas) {
        let bottom = (SIZE[1] - MARGINS[3]) as f32;
        for value in ticks(self.low[0], self.high[0]) {
            let [x, _] = self.pixel([value, self.low[1]]);
            canvas.line([[x, MARGINS[2] as f32], [x, bottom]], 1.0, GRID);
            let label = label(value);
            let at = (x as usize).saturating_sub(text_width(1, &label) / 2);
            canvas.text([at, SIZE[1] - MARGINS[3] + 12], 1, &label, TEXT);
        }
        for value in ticks(self.low[1], self.high[1]) {
            let [left, y] = self.pixel([0.0, value]);
            canvas.line([[left, y], [(SIZE[0] - MARGINS[1]) as f32, y]], 1.0, GRID);
            let label = label(value);
            let at = MARGINS[0].saturating_sub(10 + text_width(1, &label));
            canvas.text([at, (y as usize).saturating_sub(4)], 1, &label, TEXT);
        }
    }
}

fn label(value: f64) -> String {
    format!("{}", (value * 1e4).round() / 1e4)
}

/// Round numbers between `low` and `high`: 1, 2 or 5 times a power of ten apart, ten at most.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 10.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
    let first = (low / step).ceil() as i64;
    (first..).map(|i| i as f64 * step).take(11).take_while(|value| *value <= high).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 40.0), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0]);
        let fine = ticks(17.3, 18.1);
        assert!(fine.len() >= 4 && fine.len() <= 11, "{fine:?}");
        assert!(fine.iter().all(|tick| (17.3..=18.1).contains(tick)), "{fine:?}");
    }

    #[test]
    fn the_mean_ends_where_the_shortest_run_does() {
        let point = |step, mm| Point {
            step,
            cpu_secs: step as f64,
            moving_1_mm: Some(1.0),
            moving_last_mm: Some(mm),
        };
        let (a, b) = ([point(1, 4.0), point(2, 2.0)], [point(1, 8.0)]);
        assert_eq!(mean_curve(&[&a, &b]), [[1.0, 6.0]]);
        assert!(mean_curve(&[]).is_empty());
    }
}
