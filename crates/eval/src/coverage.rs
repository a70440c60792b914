//! Whether predictions are as sure as they say: how many errors lie within the radii that are told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::{Mean, TrueMotion, distance_m};
use forecloud::base::geometry::add;
use forecloud::predict::confidence::LEVELS;
use forecloud::predict::predictor::Prediction;
use forecloud::predict::situation::Situation;

/// Particles of a frame from which on ranks are compared.
const LEAST_RANKED: usize = 20;

/// What became of the radii, recording by recording.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// By situation, none for all of them, and step (0-based).
    #[serde(with = "entries")]
    cells: BTreeMap<(Option<Situation>, usize), Cell>,
    /// Recordings so far.
    n_recordings: usize,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Cell {
    /// Shares of errors within the radius of each level, a mean for each recording.
    within: BTreeMap<usize, [Mean; LEVELS.len()]>,
    /// Radius of each level (mm).
    radius_mm: [Mean; LEVELS.len()],
    /// Rank correlations, frame by frame.
    correlation: Mean,
}

/// How sure predictions are of the particles of one situation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfidenceRow {
    /// What the particles do at the start, and of the robot's whether its plan tells of the step; `all`: all of
    /// them.
    pub situation: &'static str,
    /// Recordings that have such particles.
    pub n_recordings: usize,
    /// Of all errors after each step those within the radius that half of them are to lie within: the
    /// mean over recordings.
    pub within_50: Vec<Option<f64>>,
    /// The same of the radius that nine of ten are to lie within.
    pub within_90: Vec<Option<f64>>,
    /// Mean of the first radius (mm).
    pub sigma_mm: Vec<Option<f64>>,
    /// Mean of the second one (mm).
    pub sigma_90_mm: Vec<Option<f64>>,
    /// Spearman's rank correlation of radius and error, over the particles of a frame: mean over frames.
    pub rank_correlation: Vec<Option<f64>>,
}

impl Coverage {
    /// All predictions that follow are of another recording.
    pub fn next_recording(&mut self) {
        self.n_recordings += 1;
    }

    /// Takes a prediction that was held against `truth`; nothing of models that are not calibrated.
    pub fn add(&mut self, prediction: &Prediction, truth: &TrueMotion) {
        let mut positions = prediction.particles.positions.clone();
        let steps = prediction.displacements.iter().zip(truth.positions.iter().skip(1));
        let [half, most] = &prediction.sigmas;
        for (step, (moves, there)) in steps.enumerate() {
            positions.iter_mut().zip(moves).for_each(|(p, way)| add(p, way));
            let Some((half, most)) = half.get(step).zip(most.get(step)) else { return };
            let errors = positions.iter().zip(there).map(|(p, there)| distance_m(p, there));
            let errors: Vec<f64> = errors.collect();
            let situation = |i: usize| prediction.situations[i].in_step(step, prediction.n_planned);
            for group in Situation::ALL.map(Some).into_iter().chain([None]) {
                let is_in = |&i: &usize| group.is_none_or(|group| situation(i) == group);
                let members: Vec<usize> = (0..errors.len()).filter(is_in).collect();
                if members.is_empty() {
                    continue;
                }
                let cell = self.cells.entry((group, step)).or_default();
                let within = cell.within.entry(self.n_recordings).or_default();
                for (level, radii) in [half, most].into_iter().enumerate() {
                    for &i in &members {
                        let radius = f64::from(radii[i]);
                        within[level].add(f64::from(u8::from(errors[i] <= radius)));
                        cell.radius_mm[level].add(1e3 * radius);
                    }
                }
                if members.len() >= LEAST_RANKED {
                    let told = members.iter().map(|&i| f64::from(half[i])).collect();
                    let found = members.iter().map(|&i| errors[i]).collect();
                    if let Some(correlation) = spearman(told, found) {
                        cell.correlation.add(correlation);
                    }
                }
            }
        }
    }

    /// Takes all that `other` has: its recordings follow.
    pub fn merge(&mut self, other: &Self) {
        for (&key, cell) in &other.cells {
            let own = self.cells.entry(key).or_default();
            for (&recording, means) in &cell.within {
                let within = own.within.entry(self.n_recordings + recording).or_default();
                within.iter_mut().zip(means).for_each(|(own, mean)| own.merge(*mean));
            }
            let radii = own.radius_mm.iter_mut().zip(&cell.radius_mm);
            radii.for_each(|(own, mean)| own.merge(*mean));
            own.correlation.merge(cell.correlation);
        }
        self.n_recordings += other.n_recordings;
    }

    /// Whether it can be of one recording and `horizon` steps.
    pub(super) fn can_be(&self, horizon: usize) -> bool {
        let keys = self.cells.iter().all(|(&(_, step), cell)| {
            let recordings = cell.within.keys().all(|&recording| recording <= 1);
            step < horizon && recordings
        });
        keys && self.n_recordings <= 1
    }

    /// A row for each situation that occurred, and one for all.
    pub fn rows(&self) -> Vec<ConfidenceRow> {
        let n_steps = self.cells.keys().map(|(_, step)| step + 1).max().unwrap_or(0);
        let row = |group: Option<Situation>| {
            let cells: Vec<Option<&Cell>> =
                (0..n_steps).map(|step| self.cells.get(&(group, step))).collect();
            // A robot's plans may tell of the first steps alone, or of none.
            let n_recordings = cells.iter().flatten().map(|cell| cell.within.len()).max()?;
            let each = |value: &dyn Fn(&Cell) -> Option<f64>| {
                cells.iter().map(|cell| cell.and_then(value)).collect::<Vec<_>>()
            };
            let within = |level: usize| {
                each(&|cell: &Cell| {
                    let shares = cell.within.values().filter_map(|means| means[level].get());
                    let mut mean = Mean::default();
                    shares.for_each(|share| mean.add(share));
                    mean.get()
                })
            };
            Some(ConfidenceRow {
                situation: group.map_or("all", Situation::name),
                n_recordings,
                within_50: within(0),
                within_90: within(1),
                sigma_mm: each(&|cell: &Cell| cell.radius_mm[0].get()),
                sigma_90_mm: each(&|cell: &Cell| cell.radius_mm[1].get()),
                rank_correlation: each(&|cell: &Cell| cell.correlation.get()),
            })
        };
        Situation::ALL.map(Some).into_iter().chain([None]).filter_map(row).collect()
    }
}

/// A map whose keys are no texts, as a list of its entries.
mod entries {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Cell, Situation};

    type Cells = BTreeMap<(Option<Situation>, usize), Cell>;

    pub(super) fn serialize<S: Serializer>(cells: &Cells, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(cells)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Cells, D::Error> {
        Ok(Vec::<((Option<Situation>, usize), Cell)>::deserialize(from)?.into_iter().collect())
    }
}

/// Spearman's rank correlation; none where either is all alike.
fn spearman(a: Vec<f64>, b: Vec<f64>) -> Option<f64> {
    let [a, b] = [ranks(&a), ranks(&b)];
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum()
    };
    let scale = (product(&a, &a) * product(&b, &b)).sqrt();
    (scale > 0.0).then(|| product(&a, &b) / scale)
}

/// Ranks from 0; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for alike in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = start as f64 + (alike.len() as f64 - 1.0) / 2.0;
        alike.iter().for_each(|&i| ranks[i] = rank);
        start += alike.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud_bag::recording::BodyKind;

    #[test]
    fn ranks_are_shared_by_equals_and_correlate() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 9.0]), [1.5, 0.0, 1.5, 3.0]);
        assert_eq!(spearman(vec![1.0, 2.0, 9.0], vec![0.1, 0.5, 0.6]), Some(1.0));
        assert_eq!(spearman(vec![1.0, 2.0, 9.0], vec![5.0, 4.0, -1.0]), Some(-1.0));
        assert_eq!(spearman(vec![1.0, 1.0], vec![5.0, 4.0]), None);
    }

    #[test]
    fn each_recording_counts_once() {
        let mut coverage = Coverage::default();
        // Of the first recording's particle the error is within both radii, of the second one's three
        // within the larger, within that, and within none.
        for offsets in [&[0.001f32][..], &[0.004, 0.004, 0.01]] {
            coverage.next_recording();
            let n = offsets.len();
            let mut prediction = Prediction {
                displacements: vec![vec![[0.0; 3]; n]],
                sigmas: [vec![vec![0.002; n]], vec![vec![0.005; n]]],
                situations: vec![Situation::Moving; n],
                ..Prediction::default()
            };
            prediction.particles.positions = vec![[0.0; 3]; n];
            let there = offsets.iter().map(|&x| [x, 0.0, 0.0]).collect();
            let truth = TrueMotion::new(
                vec![[0.0; 3]; n],
                [vec![[0.0; 3]; n], there],
                &vec![BodyKind::Object; n],
            );
            coverage.add(&prediction, &truth);
        }
        let rows = coverage.rows();
        let names: Vec<&str> = rows.iter().map(|row| row.situation).collect();
        assert_eq!(names, ["moving", "all"]);
        for row in rows {
            assert_eq!((row.n_recordings, row.within_50[0]), (2, Some(0.5)));
            let within_90 = row.within_90[0].unwrap();
            assert!((within_90 - (1.0 + 2.0 / 3.0) / 2.0).abs() < 1e-9, "{within_90}");
            assert!((row.sigma_90_mm[0].unwrap() - 5.0).abs() < 1e-3);
        }
    }
}
