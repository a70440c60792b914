//! What hindsight found, as rows for JSON.

use serde::Serialize;

use crate::hindsight::{Findings, StepCounts, Tally};
use crate::method::Method;
use crate::observed::ROBOT_M;
use crate::region::{MOVING_SHARE, RADIUS_M, Region};
use crate::surface::{TOLERANCE_BASE_M, TOLERANCE_QUADRATIC};

/// Predictions held against what the cameras saw later; `docs/src/guide/evaluation.md` defines all of it.
#[derive(Debug, Clone, Serialize)]
pub struct HindsightReport {
    /// A point lies on a surface measured at depth z (m) within `tolerance_base_m +
    /// tolerance_quadratic_per_m * z * z` (m).
    pub tolerance_base_m: f32,
    /// See `tolerance_base_m`.
    pub tolerance_quadratic_per_m: f32,
    /// Radius of the surroundings that tell whether a place moves (m).
    pub region_radius_m: f32,
    /// Share of the surroundings that must have changed in a moving region.
    pub region_moving_share: f64,
    /// Distance to the robot's model up to which a point is the robot's (m).
    pub robot_distance_m: f32,
    /// Predictions passed over, as frames come faster than steps.
    pub n_between_steps: u64,
    /// Frames that could not be read.
    pub n_unusable: u64,
    /// Most cameras of a frame that gave a cloud without a depth image: Chamfer distance only.
    pub n_cameras_without_depth: usize,
    /// For each step: predictions for whose end a frame was there, or missing.
    pub steps: Vec<StepCounts>,
    /// A row for each method and region.
    pub rows: Vec<HindsightRow>,
}

/// Measures of one method on the points of one region, after each step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HindsightRow {
    /// Whose prediction it is.
    pub method: Method,
    /// `moving`, `static`, `robot`, `hidden` (region unknown), or `all` of them, points pooled.
    pub region: &'static str,
    /// Predicted points.
    pub n_points: Vec<u64>,
    /// Of those: share that falls on a pixel with a measurement, 0..1.
    pub covered_share: Vec<Option<f64>>,
    /// Of the covered points: share in front of the surface measured there (wrong), 0..1.
    pub in_front_share: Vec<Option<f64>>,
    /// Of the covered points: share on the surface, 0..1.
    pub agree_share: Vec<Option<f64>>,
    /// Of the covered points: share behind the surface (hidden, not wrong), 0..1.
    pub unknown_share: Vec<Option<f64>>,
    /// How far a covered point is in front of the surface, along the optical axis: mean over all
    /// covered points, 0 for those that are not in front (mm).
    pub violation_mm: Vec<Option<f64>>,
    /// Mean distance of predicted points in the workspace to the nearest observed point (mm).
    pub chamfer_predicted_to_observed_mm: Vec<Option<f64>>,
    /// Mean distance of observed points to the nearest predicted point (mm).
    pub chamfer_observed_to_predicted_mm: Vec<Option<f64>>,
    /// Mean of the two (mm).
    pub chamfer_mm: Vec<Option<f64>>,
    /// Predicted points that left the workspace.
    pub n_outside_workspace: Vec<u64>,
    /// Observed points behind `chamfer_observed_to_predicted_mm`.
    pub n_observed_points: Vec<u64>,
    /// Mean displacement predicted for the step alone (mm); of `static` points: false motion.
    pub step_motion_mm: Vec<Option<f64>>,
}

impl HindsightReport {
    pub(super) fn new(findings: &Findings) -> Self {
        let regions = Region::ALL.into_iter().map(Some).chain([None]);
        let rows = regions.flat_map(|region| {
            Method::ALL.into_iter().map(move |method| HindsightRow::new(findings, method, region))
        });
        Self {
            tolerance_base_m: TOLERANCE_BASE_M,
            tolerance_quadratic_per_m: TOLERANCE_QUADRATIC,
            region_radius_m: RADIUS_M,
            region_moving_share: MOVING_SHARE,
            robot_distance_m: ROBOT_M,
            n_between_steps: findings.n_between_steps,
            n_unusable: findings.n_unusable,
            n_cameras_without_depth: findings.n_without_depth,
            steps: findings.steps.clone(),
            rows: rows.filter(|row| row.n_points.iter().any(|&n| n > 0)).collect(),
        }
    }

    /// The rows of one region, by its name in JSON.
    pub(crate) fn of(&self, region: &'static str) -> impl Iterator<Item = &HindsightRow> {
        self.rows.iter().filter(move |row| row.region == region)
    }

    /// Whether the depth images tell regions apart.
    pub(crate) fn has_regions(&self) -> bool {
        let is_seen = |share: &Option<f64>| share.is_some_and(|share| share > 0.0);
        self.of("all").any(|row| row.covered_share.iter().any(is_seen))
    }

    /// Share of the model's points that lie in a region, over all steps.
    pub(crate) fn share_of(&self, region: &'static str) -> f64 {
        let count = |region| -> u64 {
            let model = self.of(region).filter(|row| row.method == Method::Model);
            model.flat_map(|row| &row.n_points).sum()
        };
        count(region) as f64 / count("all").max(1) as f64
    }
}

impl HindsightRow {
    fn new(findings: &Findings, method: Method, region: Option<Region>) -> Self {
        let steps = 0..findings.steps.len();
        let tallies: Vec<Tally> =
            steps.map(|step| findings.tallies.get(method, step, region)).collect();
        let each = |value: fn(&Tally) -> Option<f64>| tallies.iter().map(value).collect();
        let count = |value: fn(&Tally) -> u64| tallies.iter().map(value).collect();
        Self {
            method,
            region: region.map_or("all", Region::name),
            n_points: count(|t| t.n_points),
            covered_share: each(Tally::coverage),
            in_front_share: each(|t| t.shares().map(|[front, ..]| front)),
            agree_share: each(|t| t.shares().map(|[_, agree, _]| agree)),
            unknown_share: each(|t| t.shares().map(|[.., behind]| behind)),
            violation_mm: each(|t| t.violation_mm.get()),
            chamfer_predicted_to_observed_mm: each(|t| t.to_observed_mm.get()),
            chamfer_observed_to_predicted_mm: each(|t| t.to_predicted_mm.get()),
            chamfer_mm: each(Tally::chamfer_mm),
            n_outside_workspace: count(|t| t.n_outside),
            n_observed_points: count(|t| t.to_predicted_mm.n),
            step_motion_mm: each(|t| t.step_motion_mm.get()),
        }
    }
}
