//! Sums over points, apart for each step, method and region.

use crate::method::Method;
use crate::metrics::Mean;
use crate::region::Region;
use crate::surface::Sight;

/// What was found of one kind of points.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Predicted points.
    pub n_points: u64,
    /// Of those: points that fall on a pixel with a measurement.
    pub n_covered: u64,
    /// Of the covered ones: points in front of the surface.
    pub n_in_front: u64,
    /// Of the covered ones: points on the surface.
    pub n_agree: u64,
    /// How far each covered point is in front of the surface (mm); 0 for those that are not.
    pub violation_mm: Mean,
    /// Predicted points that left the workspace; they have no Chamfer distance.
    pub n_outside: u64,
    /// Distances of predicted points to the observed cloud (mm).
    pub to_observed_mm: Mean,
    /// Distances of observed points to the predicted ones (mm).
    pub to_predicted_mm: Mean,
    /// Displacements of predicted points in the step alone (mm): of static ones, false motion.
    pub step_motion_mm: Mean,
}

impl Tally {
    /// Takes what the cameras say of one predicted point.
    pub fn see(&mut self, sight: Option<Sight>) {
        self.n_points += 1;
        let Some(sight) = sight else { return };
        let violation_m = match sight {
            Sight::InFront(by_m) => by_m,
            Sight::Agrees | Sight::Behind => 0.0,
        };
        self.n_covered += 1;
        self.n_in_front += u64::from(matches!(sight, Sight::InFront(_)));
        self.n_agree += u64::from(sight == Sight::Agrees);
        self.violation_mm.add(1e3 * f64::from(violation_m));
    }

    /// Takes all that `other` has.
    pub fn merge(&mut self, other: &Self) {
        self.n_points += other.n_points;
        self.n_covered += other.n_covered;
        self.n_in_front += other.n_in_front;
        self.n_agree += other.n_agree;
        self.violation_mm.merge(other.violation_mm);
        self.n_outside += other.n_outside;
        self.to_observed_mm.merge(other.to_observed_mm);
        self.to_predicted_mm.merge(other.to_predicted_mm);
        self.step_motion_mm.merge(other.step_motion_mm);
    }

    /// Share of the points that are covered; none of no points.
    pub fn coverage(&self) -> Option<f64> {
        share(self.n_covered, self.n_points)
    }

    /// Shares of the covered points that are in front, agree, and are behind (unknown); none if
    /// none is covered.
    pub fn shares(&self) -> Option<[f64; 3]> {
        let n_behind = self.n_covered - self.n_in_front - self.n_agree;
        let [front, agree, behind] = [self.n_in_front, self.n_agree, n_behind];
        let of_covered = |n| share(n, self.n_covered);
        Some([of_covered(front)?, of_covered(agree)?, of_covered(behind)?])
    }

    /// Mean of the Chamfer distances in both directions (mm); none unless there are both.
    pub fn chamfer_mm(&self) -> Option<f64> {
        Some(0.5 * (self.to_observed_mm.get()? + self.to_predicted_mm.get()?))
    }
}

fn share(n: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| n as f64 / of as f64)
}

/// Tallies of every step, method and region.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Tallies {
    steps: Vec<[[Tally; Region::ALL.len()]; Method::ALL.len()]>,
}

impl Tallies {
    /// The regions' tallies of a method after `step` (0-based).
    pub fn of(&mut self, method: Method, step: usize) -> &mut [Tally; Region::ALL.len()] {
        if self.steps.len() <= step {
            self.steps.resize_with(step + 1, Default::default);
        }
        &mut self.steps[step][method as usize]
    }

    /// The tally of a method after `step` (0-based), of one region or of all.
    pub fn get(&self, method: Method, step: usize, region: Option<Region>) -> Tally {
        let mut pooled = Tally::default();
        let Some(regions) = self.steps.get(step).map(|step| &step[method as usize]) else {
            return pooled;
        };
        let wanted = Region::ALL.into_iter().filter(|&r| region.is_none_or(|region| region == r));
        wanted.for_each(|region| pooled.merge(&regions[region as usize]));
        pooled
    }

    /// Whether it can be of `horizon` steps.
    pub(crate) fn can_be(&self, horizon: usize) -> bool {
        let fits = |tally: &Tally| {
            let told = tally.n_in_front.checked_add(tally.n_agree);
            told.is_some_and(|told| told <= tally.n_covered) && tally.n_covered <= tally.n_points
        };
        self.steps.len() <= horizon && self.steps.as_flattened().as_flattened().iter().all(fits)
    }

    /// Takes all that `other` has.
    pub fn merge(&mut self, other: &Self) {
        for (step, methods) in other.steps.iter().enumerate() {
            for (method, regions) in Method::ALL.into_iter().zip(methods) {
                let own = self.of(method, step);
                own.iter_mut().zip(regions).for_each(|(own, tally)| own.merge(tally));
            }
        }
    }
}
