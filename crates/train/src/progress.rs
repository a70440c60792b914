//! What training has brought: errors of the model before and after on the same windows, with intervals
//! over recordings.

use std::ops::RangeInclusive;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::dataset::{Dataset, Window};
use super::validation::advance;
use crate::labels::SURE;
use forecloud::Result;
use forecloud::base::geometry::{Vec3, distance};
use forecloud::engine::model::{Mode, Model, Rollout};
use forecloud::predict::rest::Rest;
use forecloud_bag::recording::BodyKind;

/// Seed of windows and of the intervals' draws.
const SEED: u64 = 0;
/// Draws of recordings that an interval is made of, and the share of them that lies within.
const DRAWS: usize = 2000;
const WITHIN: f64 = 0.9;
/// Recordings from which an interval is told.
const MIN_RECORDINGS: usize = 3;
/// How much more static points may move than before: by this share, and by this (mm).
const STATIC_SHARE: f64 = 0.1;
const STATIC_MM: f64 = 0.05;
/// Ratio of errors from which what was known counts as forgotten.
const FORGOTTEN: f64 = 1.05;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Error of moving objects after one step.
    First,
    /// The same after the last step.
    Last,
    /// False motion of static points in the first step.
    Static,
}

/// Errors of two models on the same windows.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Steps of the roll-outs.
    pub n_steps: usize,
    /// Windows that were predicted.
    pub n_windows: usize,
    /// Of each recording.
    recordings: Vec<Errors>,
}

/// Sums of a recording by measure: of both models (mm), and how many points.
#[derive(Debug, Clone, Copy, Default)]
struct Errors([([f64; 2], u64); 3]);

/// A ratio of errors, after over before, and where it lies with 90 % for recordings like these.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    /// Over all points.
    pub of_all: f64,
    /// None where there are too few recordings to tell.
    pub interval: Option<RangeInclusive<f64>>,
}

/// Whether the new model is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Surely, on moving objects after one step or the last, and surely not worse on the other or on
    /// static points.
    Better,
    /// Surely on moving objects, but static points move falsely by a tenth and 0.05 mm more than before.
    Restless,
    /// Surely not.
    Worse,
    /// These recordings cannot tell.
    Unsure,
}

impl Progress {
    /// Of the models `before` and `after` on up to `n_windows` windows of `n_steps`, spread over `data`;
    /// what rests is held at rest, as the node and `replay` hold it.
    ///
    /// # Errors
    /// What roll-out and model return.
    pub fn new(
        [before, after]: [&Model; 2],
        data: &Dataset,
        n_windows: usize,
        n_steps: usize,
    ) -> Result<Self> {
        let recordings = vec![Errors::default(); data.n_recordings()];
        let mut progress = Self { n_steps, n_windows: 0, recordings };
        let models = [before, after];
        let mut rollouts =
            models.map(|model| Rollout::new(model.config.rollout(), Mode::Inference));
        let (mut rest, mut displacements) = (Rest::default(), Vec::new());
        let mut window = Window::default();
        let n = n_windows.min(data.n_windows());
        for index in (0..n).map(|i| i * data.n_windows() / n) {
            let mut rng = ChaCha8Rng::seed_from_u64(SEED);
            rng.set_stream(index as u64);
            if !data.get(index, &mut rng, n_steps, &mut window) {
                continue;
            }
            progress.n_windows += 1;
            for ((rollout, model), side) in rollouts.iter_mut().zip(models).zip(0..) {
                rollout.run(&model.weights, &window.scene, n_steps)?;
                displacements.clear();
                displacements.extend((0..n_steps).map(|t| rollout.displacements(t).to_vec()));
                rest.hold(&window.scene, &mut displacements);
                progress.recordings[data.recording_of(index)].add(&window, &displacements, side);
            }
        }
        Ok(progress)
    }

    /// Mean errors before and after (mm); none without such points.
    pub fn means(&self, measure: Measure) -> Option<[f64; 2]> {
        mean(self.recordings.iter(), measure)
    }

    /// The error after over that before; none without such points.
    pub fn ratio(&self, measure: Measure) -> Option<Ratio> {
        let ratio = |[before, after]: [f64; 2]| after / before.max(1e-9);
        let of_all = ratio(self.means(measure)?);
        let having: Vec<&Errors> =
            self.recordings.iter().filter(|errors| errors.0[measure as usize].1 > 0).collect();
        if having.len() < MIN_RECORDINGS {
            return Some(Ratio { of_all, interval: None });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let mut draws: Vec<f64> = (0..DRAWS)
            .filter_map(|_| {
                let drawn = (0..having.len()).map(|_| having[rng.random_range(0..having.len())]);
                mean(drawn, measure).map(ratio)
            })
            .collect();
        draws.sort_by(f64::total_cmp);
        let at = |share: f64| draws[(share * (draws.len() - 1) as f64).round() as usize];
        let tail = (1.0 - WITHIN) / 2.0;
        Some(Ratio { of_all, interval: Some(at(tail)..=at(1.0 - tail)) })
    }

    /// Whether errors on what was known before have grown by more than 5 %, after one step or the last;
    /// none where nothing moves, which can't tell.
    pub fn has_forgotten(&self) -> Option<bool> {
        let ratios = [Measure::First, Measure::Last].map(|measure| self.ratio(measure));
        let ratios = ratios.iter().flatten();
        ratios.map(|ratio| ratio.of_all > FORGOTTEN).reduce(|first, last| first || last)
    }

    /// Whether it is the better one.
    pub fn verdict(&self) -> Verdict {
        let intervals = [Measure::First, Measure::Last]
            .map(|measure| self.ratio(measure).and_then(|ratio| ratio.interval));
        let surely =
            |holds: fn(&RangeInclusive<f64>) -> bool| intervals.iter().flatten().any(holds);
        let (lower, higher) =
            (surely(|interval| *interval.end() < 1.0), surely(|interval| *interval.start() > 1.0));
        let moves = self
            .means(Measure::Static)
            .is_some_and(|[before, after]| after > (1.0 + STATIC_SHARE) * before + STATIC_MM);
        match (lower, higher) {
            (true, false) if moves => Verdict::Restless,
            (true, false) => Verdict::Better,
            (false, true) => Verdict::Worse,
            _ => Verdict::Unsure,
        }
    }
}

fn mean<'a>(errors: impl Iterator<Item = &'a Errors>, measure: Measure) -> Option<[f64; 2]> {
    let (mut sums, mut n) = ([0.0; 2], 0);
    for (own, own_n) in errors.map(|errors| &errors.0[measure as usize]) {
        (0..2).for_each(|side| sums[side] += own[side]);
        n += own_n;
    }
    (n > 0).then(|| sums.map(|sum| sum / n as f64))
}

impl Errors {
    /// Takes the errors of one model, `side`, that predicts these displacements (m), `[n_steps][n]`, on a
    /// window; points are counted with the second one.
    fn add(&mut self, window: &Window, displacements: &[Vec<Vec3>], side: usize) {
        let n_steps = displacements.len();
        let start = &window.scene.start.positions;
        let mut positions: Vec<Vec3> = start.clone();
        for (step, displacements) in displacements.iter().enumerate() {
            advance(&mut positions, displacements);
            for (i, p) in positions.iter().enumerate() {
                // What hindsight is not sure of is no measure.
                if window.weights[step][i] < SURE {
                    continue;
                }
                let mut put = |measure: Measure, error_m: f32| {
                    let (sums, n) = &mut self.0[measure as usize];
                    sums[side] += 1e3 * f64::from(error_m);
                    *n += side as u64;
                };
                let error_m = distance(p, &window.targets[step][i]);
                match window.kinds[i] {
                    BodyKind::Object if window.moving[step][i] => {
                        if step == 0 {
                            put(Measure::First, error_m);
                        }
                        if step + 1 == n_steps {
                            put(Measure::Last, error_m);
                        }
                    }
                    BodyKind::Static if step == 0 => put(Measure::Static, distance(p, &start[i])),
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of recordings with these errors of ten moving points each, before and after, one step.
    fn progress(errors: &[[f64; 2]], still: [f64; 2]) -> Progress {
        let of = |e: &[f64; 2]| {
            let moving = (e.map(|e| 10.0 * e), 10);
            Errors([moving, moving, (still.map(|e| 10.0 * e), 10)])
        };
        Progress { n_steps: 1, n_windows: 1, recordings: errors.iter().map(of).collect() }
    }

    #[test]
    fn a_verdict_needs_recordings_that_agree() {
        let verdict = |errors: &[[f64; 2]]| progress(errors, [0.1; 2]).verdict();
        assert_eq!(verdict(&[[10.0, 8.0], [20.0, 15.0], [5.0, 4.5], [8.0, 7.0]]), Verdict::Better);
        assert_eq!(verdict(&[[8.0, 10.0], [15.0, 20.0], [4.5, 5.0]]), Verdict::Worse);
        assert_eq!(verdict(&[[10.0, 8.0], [8.0, 12.0], [5.0, 4.5]]), Verdict::Unsure);
        assert_eq!(verdict(&[[10.0, 5.0]]), Verdict::Unsure, "one recording tells nothing");
        assert_eq!(verdict(&[]), Verdict::Unsure);
        let restless = progress(&[[10.0, 8.0]; 4], [0.1, 0.3]);
        assert_eq!(restless.verdict(), Verdict::Restless, "what stands still must not move");
    }

    #[test]
    fn a_twentieth_more_is_not_forgotten() {
        let of = |after: f64| progress(&[[10.0, after], [10.0, after]], [0.1; 2]);
        for (after, expected) in [(10.4, false), (8.0, false), (10.6, true)] {
            assert_eq!(of(after).has_forgotten(), Some(expected), "{after}");
        }
        assert_eq!(progress(&[], [0.0; 2]).has_forgotten(), None, "nothing was measured");
    }

    #[test]
    fn intervals_are_over_recordings() {
        let found = progress(&[[10.0, 5.0], [10.0, 8.0], [10.0, 11.0]], [0.0; 2]);
        assert_eq!(found.means(Measure::First), Some([10.0, 8.0]));
        let Ratio { of_all, interval } = found.ratio(Measure::Last).unwrap();
        assert!((of_all - 0.8).abs() < 1e-12);
        let interval = interval.unwrap();
        assert!(*interval.start() < 0.7 && *interval.end() > 0.9, "{interval:?}");
        assert_eq!(found.ratio(Measure::Last), found.ratio(Measure::Last), "seeded");
        assert_eq!(progress(&[], [0.0; 2]).ratio(Measure::First), None);
    }
}
