//! Predicted points held against one later observation.

use rayon::prelude::*;

use super::tally::{Tallies, Tally};
use crate::method::Method;
use crate::metrics::distance_m;
use crate::observed::Observed;
use crate::region::{Change, Region};
use forecloud::Result;
use forecloud::base::geometry::{PointTree, Vec3};
use forecloud::vision::cloud::Workspace;

/// Predictions of the same points (world frame, m).
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Where the points were seen, `[n]`.
    pub start: Vec<Vec3>,
    /// Where each method has them after each step, `[n_steps][n]`.
    pub predicted: Vec<(Method, Vec<Vec<Vec3>>)>,
}

impl Group {
    /// Of points at `start` and the displacements `[n_steps][n]` (m) in each step, by method.
    pub fn new<'a>(
        start: &[Vec3],
        displacements: impl IntoIterator<Item = (Method, &'a [Vec<Vec3>])>,
    ) -> Self {
        let follow = |steps: &[Vec<Vec3>]| -> Vec<Vec<Vec3>> {
            let mut positions = start.to_vec();
            let step = |moves: &Vec<Vec3>| {
                for (x, d) in positions.iter_mut().zip(moves) {
                    *x = std::array::from_fn(|axis| x[axis] + d[axis]);
                }
                positions.clone()
            };
            steps.iter().map(step).collect()
        };
        let methods = displacements.into_iter();
        let predicted = methods.map(|(method, steps)| (method, follow(steps))).collect();
        Self { start: start.to_vec(), predicted }
    }
}

/// Holds what was predicted from `start` for the end of `step` (0-based) against what was seen
/// `then`.
///
/// Predicted points belong to the region that they started in, observed points to their own.
///
/// # Errors
/// [`forecloud::Error::NonFinite`] if a predicted position is not finite.
pub fn judge(
    (start, then): (&Observed, &Observed),
    groups: &[Group],
    step: usize,
    workspace: &Workspace,
    tallies: &mut Tallies,
) -> Result<()> {
    let change = Change::between(start, then)?;
    let [drawn, again] = &then.drawn;
    let view = View { then, workspace, drawn, drawn_regions: change.regions(drawn, then) };
    for group in groups {
        let regions = change.regions(&group.start, start);
        for (method, predicted) in &group.predicted {
            let Some(points) = predicted.get(step) else { continue };
            let tallies = tallies.of(*method, step);
            view.add(points, &regions, tallies)?;
            let before = if step == 0 { &group.start } else { &predicted[step - 1] };
            for ((from, to), region) in before.iter().zip(points).zip(&regions) {
                tallies[*region as usize].step_motion_mm.add(1e3 * distance_m(from, to));
            }
        }
    }
    let regions = change.regions(again, then);
    view.add(again, &regions, tallies.of(Method::Observed, step))
}

/// An observation, and the points of it that look for predicted ones.
struct View<'a> {
    then: &'a Observed,
    workspace: &'a Workspace,
    drawn: &'a [Vec3],
    drawn_regions: Vec<Region>,
}

impl View<'_> {
    fn add(&self, points: &[Vec3], regions: &[Region], tallies: &mut [Tally]) -> Result<()> {
        let predicted = PointTree::new(points)?;
        let look = |x: &Vec3| {
            let inside = self.workspace.contains(*x);
            (self.then.surfaces.look(x), inside, self.then.cloud.distance_m(x))
        };
        // Collected in order: sums must not depend on the number of threads.
        let seen: Vec<_> = points.par_iter().with_min_len(128).map(look).collect();
        for ((sight, inside, distance_m), region) in seen.into_iter().zip(regions) {
            let tally = &mut tallies[*region as usize];
            tally.see(sight);
            tally.n_outside += u64::from(!inside);
            if let Some(distance_m) = distance_m.filter(|_| inside) {
                tally.to_observed_mm.add(1e3 * f64::from(distance_m));
            }
        }
        let distances = self.drawn.par_iter().with_min_len(128).map(|x| predicted.distance_m(x));
        let distances: Vec<_> = distances.collect();
        for (distance_m, region) in distances.into_iter().zip(&self.drawn_regions) {
            if let Some(distance_m) = distance_m {
                tallies[*region as usize].to_predicted_mm.add(1e3 * f64::from(distance_m));
            }
        }
        Ok(())
    }
}
