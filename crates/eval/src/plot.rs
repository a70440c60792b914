//! Panels of curves as SVG, by `plotters`.

use forecloud::{Error, Result};
use forecloud_bag::outputs::{Kind, Outputs, PLOT};
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::element::{DashedPathElement, DynElement, IntoDynElement};
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

pub use plotters::prelude::SeriesLabelPosition as Legend;

/// Okabe and Ito's colours, which most colour-blind people tell apart.
const COLORS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(60, 60, 60),
    // Others beside them, for comparisons of many.
    RGBColor(86, 180, 233),
    RGBColor(150, 90, 40),
    RGBColor(120, 70, 180),
    RGBColor(110, 140, 20),
    RGBColor(170, 20, 60),
    RGBColor(150, 150, 150),
];
/// Number of the neutral one, for bounds.
pub const GREY: usize = 5;
const PANEL: (u32, u32) = (560, 400);
/// Ticks that an axis has at most.
const MAX_TICKS: usize = 9;

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Line {
    /// Without gaps, with markers where the points are few.
    Solid,
    /// For bounds and models.
    Dashed,
    /// For what stands behind the others.
    Dotted,
}

/// A line through points, which have a marker each where it is solid and they are few.
#[derive(Debug, Clone)]
pub struct Curve {
    /// In the legend; empty for none.
    pub label: String,
    /// Number of its colour.
    pub color: usize,
    /// How it is drawn.
    pub line: Line,
    /// x and y of each point.
    pub points: Vec<[f64; 2]>,
    /// Standard errors of the points; empty for none.
    pub errors: Vec<f64>,
}

impl Curve {
    /// A curve without standard errors.
    pub fn new(label: impl Into<String>, color: usize, line: Line, points: Vec<[f64; 2]>) -> Self {
        Self { label: label.into(), color, line, points, errors: Vec::new() }
    }
}

/// Name with unit, range and scale of an axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// Name with unit.
    pub name: &'static str,
    /// From where to where.
    pub range: [f64; 2],
    /// Whether its scale is logarithmic.
    pub log: bool,
}

/// Curves over the same axes.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// In the order in which they are drawn.
    pub curves: Vec<Curve>,
    /// Where names stand.
    pub legend: Legend,
}

/// Why a plot could not be drawn, in the words of the library that draws.
type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Draws `panels` in rows of two into the file `path`.
///
/// # Errors
/// [`Error::Io`], and [`Error::Output`] for a file that is no plot of ours, and for panels without a range.
pub fn draw(path: &Path, panels: &[Panel]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|cause| Error::Io { path: folder.to_owned(), cause })?;
    }
    let drawn = svg(panels)
        .map_err(|problem| Error::Output { path: path.to_owned(), problem: problem.to_string() })?;
    Outputs::default().write(path, Kind::Plot, format!("{PLOT}{drawn}").as_bytes())
}

fn svg(panels: &[Panel]) -> Drawn<String> {
    let mut text = String::new();
    draw_into(&mut text, panels)?;
    Ok(text)
}

fn draw_into(text: &mut String, panels: &[Panel]) -> Drawn<()> {
    let columns = panels.len().min(2);
    let rows = panels.len().div_ceil(columns.max(1));
    let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
    let root = SVGBackend::with_string(text, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, panel) in root.split_evenly((rows, columns)).iter().zip(panels) {
        draw_panel(area, panel).map_err(|error| format!("{}: {error}", panel.title))?;
    }
    Ok(root.present()?)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_panel(area: &Area, panel: &Panel) -> Drawn<()> {
    let [x, y] = [&panel.x, &panel.y];
    let drawable =
        |axis: &Axis| axis.range.iter().all(|v| v.is_finite()) && axis.range[0] < axis.range[1];
    if !drawable(x) || !drawable(y) {
        return Err(format!("nothing to draw from {:?} and {:?}", x.range, y.range).into());
    }
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 17))
        .margin(12)
        .margin_right(20)
        .x_label_area_size(46)
        .y_label_area_size(66)
        .build_cartesian_2d(panel.x.clone(), panel.y.clone())?;
    chart
        .configure_mesh()
        .x_desc(panel.x.name)
        .y_desc(panel.y.name)
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .max_light_lines(0)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    for curve in &panel.curves {
        draw_curve(&mut chart, panel, curve)?;
    }
    chart
        .configure_series_labels()
        .position(panel.legend.clone())
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 13))
        .legend_area_size(30)
        .margin(6)
        .draw()?;
    Ok(())
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

fn draw_curve<'b: 'a, 'a>(chart: &mut Chart<'a, 'b>, panel: &Panel, curve: &Curve) -> Drawn<()> {
    let color = COLORS[curve.color % COLORS.len()];
    let (line, style) = (curve.line, color.stroke_width(2));
    let inside = |[x, y]: &[f64; 2]| panel.x.holds(*x) && panel.y.holds(*y);
    let points: Vec<(f64, f64)> =
        curve.points.iter().filter(|at| inside(at)).map(|at| (at[0], at[1])).collect();
    let drawn = chart.draw_series([path_element(line, points.clone(), style)])?;
    if !curve.label.is_empty() {
        let sample = move |(x, y)| path_element(line, vec![(x, y), (x + 26, y)], style);
        drawn.label(&curve.label).legend(sample);
    }
    if line == Line::Solid && points.len() < 40 {
        chart.draw_series(points.iter().map(|&at| Circle::new(at, 2, color.filled())))?;
    }
    let bars = curve.points.iter().zip(&curve.errors);
    let bar = |([x, y], e): (&[f64; 2], &f64)| {
        ErrorBar::new_vertical(*x, y - e, *y, y + e, color.stroke_width(1), 8)
    };
    chart.draw_series(bars.map(bar))?;
    Ok(())
}

/// Of points on the chart, or on the paper for the legend.
fn path_element<'a, C: Clone + 'static>(
    line: Line,
    points: Vec<C>,
    style: ShapeStyle,
) -> DynElement<'static, SVGBackend<'a>, C> {
    let dashed = |points: Vec<C>, size, gap| DashedPathElement::new(points, size, gap, style);
    match line {
        Line::Solid => PathElement::new(points, style).into_dyn(),
        Line::Dashed => dashed(points, 8, 5).into_dyn(),
        Line::Dotted => dashed(points, 2, 4).into_dyn(),
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let [low, high, value] = [self.range[0], self.range[1], *value].map(|v| self.scaled(v));
        let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let most = hint.max_num_points().min(MAX_TICKS);
        match self.log {
            true => self.log_ticks(most),
            false => {
                let [low, high] = self.range;
                let axis: plotters::coord::types::RangedCoordf64 = (low..high).into();
                axis.key_points(most)
            }
        }
    }

    fn range(&self) -> Range<f64> {
        self.range[0]..self.range[1]
    }
}

impl Axis {
    /// An axis over the points' coordinate `of` (0 for x, 1 for y) of all curves, with a margin.
    pub fn spanning(name: &'static str, curves: &[Curve], of: usize, log: bool) -> Self {
        let values = curves.iter().flat_map(|curve| &curve.points).map(|point| point[of]);
        let fold = |start: f64, f: fn(f64, f64) -> f64| values.clone().fold(start, f);
        let [low, high] = [fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max)];
        let range = match log {
            true => [low / 1.3, high * 1.3],
            false => {
                let span = (high - low).max(0.1 * high.abs()).max(1e-9);
                [low - 0.15 * span, high + 0.08 * span]
            }
        };
        Self { name, range, log }
    }

    fn holds(&self, value: f64) -> bool {
        (self.range[0]..=self.range[1]).contains(&value)
    }

    fn scaled(&self, value: f64) -> f64 {
        if self.log { value.max(f64::MIN_POSITIVE).log10() } else { value }
    }

    /// Powers of ten, or, between few of them, 1, 2 and 5 of each.
    fn log_ticks(&self, most: usize) -> Vec<f64> {
        let [low, high] = self.range.map(|v| self.scaled(v));
        let inside = |tick: &f64| (low - 1e-9..=high + 1e-9).contains(&tick.log10());
        let ticks = |digits: &'static [f64], step: usize| -> Vec<f64> {
            let decades = (low.floor() as i32..=high.ceil() as i32).step_by(step);
            let of_decade = |decade| digits.iter().map(move |d| d * 10f64.powi(decade));
            decades.flat_map(of_decade).filter(inside).collect()
        };
        let fine = ticks(&[1.0, 2.0, 5.0], 1);
        if fine.len() <= most {
            return fine;
        }
        let steps = (1..).map(|step| ticks(&[1.0], step));
        steps.take(100).find(|ticks| ticks.len() <= most).unwrap_or_default()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        if !self.log || (1e-3..1e4).contains(value) {
            // Enough digits for any tick, without the rounding errors of the steps' sum.
            return format!("{}", (value * 1e6).round() / 1e6);
        }
        let exponent = (value.log10() + 1e-9).floor();
        let raised = |digit: char| match digit.to_digit(10) {
            Some(digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit as usize).unwrap_or(' '),
            None => '⁻',
        };
        let power: String = exponent.to_string().chars().map(raised).collect();
        match (value / 10f64.powf(exponent)).round() {
            1.0 => format!("10{power}"),
            digit => format!("{digit}·10{power}"),
        }
    }
}
