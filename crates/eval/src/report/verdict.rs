//! Whether the model is better than doing without it, in one line.

use serde::Serialize;

use super::hindsight::HindsightRow;
use super::table::millimetres;
use super::{ErrorRow, Report};
use crate::method::Method;
use crate::metrics::Class;
use crate::region::Region;

/// Ratios of two errors within this of 1 are no difference.
const EVEN: f64 = 0.01;

/// The model beside the baselines, where something moves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// What is compared: `mean error`, or `Chamfer distance` where there is no truth.
    pub measure: &'static str,
    /// Of which points.
    pub points: &'static str,
    /// How far ahead (s).
    pub secs: f32,
    /// The model's value (mm).
    pub model_mm: f64,
    /// The baselines' values (mm); none of them is told what will happen.
    pub baselines: Vec<BaselineValue>,
    /// Mean motion predicted in a step for points that rest (mm).
    pub false_motion_mm: Option<f64>,
}

/// What a baseline comes to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BaselineValue {
    /// Which one.
    pub method: Method,
    /// Its value (mm).
    pub mm: f64,
}

fn chamfer(row: &HindsightRow) -> Values<'_> {
    (&row.chamfer_mm, &row.n_points)
}

/// Values of a method after each step, and points behind each.
type Values<'a> = (&'a [Option<f64>], &'a [u64]);

impl Verdict {
    /// Against the truth, and against what was seen later, as far as there are such figures.
    pub(super) fn all(report: &Report) -> Vec<Self> {
        let of_errors = |method: Method, class: Class| -> Option<Values> {
            let is_it = |row: &&ErrorRow| {
                row.method == method && row.class == class.name() && row.task.is_none()
            };
            report.errors.iter().find(is_it).map(|row| (&row.mean_mm[..], &row.n_points[..]))
        };
        let known = ["mean error", "object points that move"];
        let known = Self::new(
            known,
            report.step_secs,
            |method| of_errors(method, Class::Moving),
            of_errors(Method::Model, Class::Static),
        );
        let seen = report.hindsight.as_ref().and_then(|hindsight| {
            let (region, points) = match hindsight.has_regions() {
                true => (Region::Moving.name(), "moving regions"),
                false => ("all", "all points"),
            };
            let row = |method: Method, region| hindsight.of(region).find(|r| r.method == method);
            let motion = row(Method::Model, Region::Static.name());
            Self::new(
                ["Chamfer distance", points],
                report.step_secs,
                |method| row(method, region).map(chamfer),
                motion.map(|row| (&row.step_motion_mm[..], &row.n_points[..])),
            )
        });
        known.into_iter().chain(seen).collect()
    }

    /// After the last step of which all have a value.
    fn new<'a>(
        [measure, points]: [&'static str; 2],
        step_secs: f64,
        of: impl Fn(Method) -> Option<Values<'a>>,
        still: Option<Values>,
    ) -> Option<Self> {
        let (model, _) = of(Method::Model)?;
        let baselines = [Method::NothingMoves, Method::VelocityEstimated];
        let value = |method: Method, step: usize| *of(method)?.0.get(step)?;
        let is_known = |step: &usize| baselines.iter().all(|&b| value(b, *step).is_some());
        let step = (0..model.len()).rev().filter(|&step| model[step].is_some()).find(is_known)?;
        let baseline = |method| Some(BaselineValue { method, mm: value(method, step)? });
        Some(Self {
            measure,
            points,
            secs: ((step + 1) as f64 * step_secs) as f32,
            model_mm: model[step]?,
            baselines: baselines.into_iter().filter_map(baseline).collect(),
            false_motion_mm: still.and_then(pooled),
        })
    }

    /// In words.
    pub fn text(&self) -> String {
        let ratio = |baseline: &BaselineValue| self.model_mm / baseline.mm.max(1e-9);
        let among = |word: &str, is_it: &dyn Fn(f64) -> bool| {
            let names: Vec<String> = self
                .baselines
                .iter()
                .filter(|baseline| is_it(ratio(baseline)))
                .map(|b| format!("'{}' ({} mm)", b.method.label(), millimetres(b.mm)))
                .collect();
            (!names.is_empty()).then(|| format!("{word} {}", names.join(" and ")))
        };
        let parts = [
            among("better than", &|ratio| ratio < 1.0 - EVEN),
            among("no better than", &|ratio| (1.0 - EVEN..=1.0 + EVEN).contains(&ratio)),
            among("worse than", &|ratio| ratio > 1.0 + EVEN),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let false_motion = self.false_motion_mm.map_or(String::new(), |mm| {
            format!("; false motion of static points: {} mm per step", millimetres(mm))
        });
        format!(
            "the model is {}: {} mm {} of {}, {} s ahead{false_motion}",
            parts.join(", "),
            millimetres(self.model_mm),
            self.measure,
            self.points,
            self.secs
        )
    }
}

/// Mean over all steps.
fn pooled((means, counts): Values) -> Option<f64> {
    let known = means.iter().zip(counts).filter_map(|(mean, &n)| Some((mean.as_ref()?, n as f64)));
    let (sum, n) = known.fold((0.0, 0.0), |(sum, all), (mean, n)| (sum + mean * n, all + n));
    (n > 0.0).then(|| sum / n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(model_mm: f64) -> Verdict {
        let baseline = |method, mm| BaselineValue { method, mm };
        let baselines = [(Method::NothingMoves, 10.0), (Method::VelocityEstimated, 20.0)]
            .map(|(m, mm)| baseline(m, mm));
        let (measure, points) = ("mean error", "object points that move");
        let (baselines, false_motion_mm) = (baselines.to_vec(), Some(0.25));
        Verdict { measure, points, secs: 0.5, model_mm, baselines, false_motion_mm }
    }

    #[test]
    fn better_and_worse_are_told_apart() {
        let (still, estimated) =
            ("'nothing moves' (10.0 mm)", "'constant velocity, estimated' (20.0 mm)");
        for (model_mm, told) in [
            (5.0, format!("the model is better than {still} and {estimated}: 5.00 mm")),
            (
                10.05,
                format!("the model is better than {estimated}, no better than {still}: 10.1 mm"),
            ),
            (15.0, format!("the model is better than {estimated}, worse than {still}: 15.0 mm")),
            (30.0, format!("the model is worse than {still} and {estimated}: 30.0 mm")),
        ] {
            let text = verdict(model_mm).text();
            assert!(text.starts_with(&told), "{text}");
            let rest = " mean error of object points that move, 0.5 s ahead; false motion of static \
                        points: 0.25 mm per step";
            assert!(text.ends_with(rest), "{text}");
        }
    }

    #[test]
    fn means_are_weighted_by_their_points() {
        assert_eq!(pooled((&[Some(1.0), Some(4.0), None], &[1, 2, 0])), Some(3.0));
        assert_eq!(pooled((&[None], &[0])), None);
    }
}
