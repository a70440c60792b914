//! Finds the factors of a model's calibration.
//!
//! A model's sigma orders errors, but no network's is as large as the errors are. So it is multiplied by
//! factors under which a share of all errors lies within it: split conformal prediction (Papadopoulos
//! et al. 2002; Romano et al. 2019, scores normalised by the model's own spread), apart for each step
//! and situation, on recordings that no weight was trained with. Errors of one recording are alike, so
//! recordings are its units: each counts as much as any other, however many points it has.

mod conformal;

pub use conformal::LEAST_RECORDINGS;
use conformal::quantile;
use forecloud::engine::model::calibration::{Calibration, LEVELS};
use forecloud::engine::motion_class::MotionClass;
use forecloud::{Error, Result};

/// Errors over sigmas, by recording, from which factors are found.
#[derive(Debug, Default)]
pub struct Scores {
    /// `[situation][step][recording]` → scores.
    ratios: Vec<Vec<Vec<Vec<f32>>>>,
    n_recordings: usize,
}

impl Scores {
    /// All scores that follow are of another recording.
    pub fn next_recording(&mut self) {
        self.n_recordings += 1;
    }

    /// Forgets what was taken of the last recording: it could not be read to its end.
    pub fn drop_recording(&mut self) {
        self.n_recordings = self.n_recordings.saturating_sub(1);
        let of_steps = self.ratios.iter_mut().flatten();
        of_steps.for_each(|recordings| recordings.truncate(self.n_recordings));
    }

    /// Takes the error of a particle after `step` (0-based), over its sigma.
    pub fn add(&mut self, situation: MotionClass, step: usize, ratio: f32) {
        self.ratios.resize_with(MotionClass::ALL.len(), Vec::new);
        let of_steps = &mut self.ratios[situation as usize];
        of_steps.resize_with(of_steps.len().max(step + 1), Vec::new);
        let recordings = &mut of_steps[step];
        recordings.resize_with(self.n_recordings.max(1), Vec::new);
        recordings[self.n_recordings.max(1) - 1].push(ratio);
    }

    /// The factors for `n_steps` steps.
    ///
    /// # Errors
    /// [`Error::Config`] if no situation was seen in enough recordings.
    pub fn calibrate(&self, n_steps: usize) -> Result<Calibration> {
        let mut factors = vec![<[Vec<f32>; LEVELS.len()]>::default(); MotionClass::ALL.len()];
        for step in 0..n_steps {
            let all = self.of_all_situations(step);
            for (level, &share) in LEVELS.iter().enumerate() {
                let lists: Vec<&[f32]> = all.iter().map(Vec::as_slice).collect();
                let usual = factor_of(&lists, share).ok_or_else(|| Error::Config {
                    key: "calibration".into(),
                    problem: format!(
                        "{} recordings reach step {}: at least {LEAST_RECORDINGS} are needed",
                        all.len(),
                        step + 1
                    ),
                })?;
                for situation in MotionClass::ALL {
                    let own = factor_of(&self.recordings(situation, step), share);
                    factors[situation as usize][level].push(own.unwrap_or(usual));
                }
            }
        }
        let n_recordings = self.n_recordings;
        let calibration = Calibration { n_recordings, factors };
        calibration.validate()?;
        Ok(calibration)
    }

    /// Those of each recording that has any, of whatever situation.
    fn of_all_situations(&self, step: usize) -> Vec<Vec<f32>> {
        let mut all = vec![Vec::new(); self.n_recordings.max(1)];
        for recordings in self.ratios.iter().filter_map(|steps| steps.get(step)) {
            all.iter_mut().zip(recordings).for_each(|(all, ratios)| all.extend(ratios));
        }
        all.retain(|ratios| !ratios.is_empty());
        all
    }

    /// Those of each recording that has any.
    fn recordings(&self, situation: MotionClass, step: usize) -> Vec<&[f32]> {
        let of_steps = self.ratios.get(situation as usize).and_then(|steps| steps.get(step));
        let recordings = of_steps.into_iter().flatten().map(Vec::as_slice);
        recordings.filter(|ratios| !ratios.is_empty()).collect()
    }
}

/// The factor under which a share of all errors lies; none of too few recordings: then that of all
/// situations is taken. What is never off has a sigma all the same.
fn factor_of(recordings: &[&[f32]], share: f64) -> Option<f32> {
    quantile(recordings, share).map(|factor| factor.max(LEAST_FACTOR))
}

/// Least factor.
const LEAST_FACTOR: f32 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::base::random::{draw, uniform};

    /// Scores of recordings that differ in scale, each of another number of points.
    fn scores(recordings: std::ops::Range<u64>) -> Scores {
        let mut scores = Scores::default();
        for recording in recordings {
            scores.next_recording();
            let scale = 0.5 + uniform(draw(1, 0, recording, 0));
            let n_points = 50 + (500.0 * uniform(draw(1, 0, recording, 1))) as u64;
            for point in 0..n_points {
                for step in 0..2 {
                    let ratio = -scale
                        * (1.0 + step as f32)
                        * uniform(draw(2, recording as i64, point, step as u64)).max(1e-6).ln();
                    scores.add(MotionClass::Moving, step, ratio);
                }
            }
        }
        scores
    }

    #[test]
    fn a_share_of_the_errors_of_other_recordings_lies_within() {
        let calibration = scores(0..100).calibrate(2).unwrap();
        let others = scores(1000..1200);
        for step in 0..2 {
            for (level, share) in LEVELS.into_iter().enumerate() {
                let factor = calibration.factor(MotionClass::Moving, level, step);
                let covered = others
                    .recordings(MotionClass::Moving, step)
                    .iter()
                    .map(|ratios| {
                        ratios.iter().filter(|ratio| **ratio <= factor).count() as f64
                            / ratios.len() as f64
                    })
                    .sum::<f64>()
                    / 200.0;
                assert!((covered - share).abs() < 0.03, "{covered} of {share} at step {step}");
            }
        }
        // Situations that were not seen take those of all; later steps those of the last.
        let factor = |situation, step| calibration.factor(situation, 1, step);
        assert_eq!(factor(MotionClass::Flying, 0), factor(MotionClass::Moving, 0));
        assert_eq!(factor(MotionClass::Moving, 9), factor(MotionClass::Moving, 1));
    }

    #[test]
    fn what_a_dropped_recording_had_is_forgotten() {
        let expected = scores(0..9).calibrate(2).unwrap();
        let mut scores = scores(0..9);
        scores.next_recording();
        scores.add(MotionClass::Moving, 0, 1e6);
        scores.add(MotionClass::Flying, 1, 1e6);
        scores.drop_recording();
        assert_eq!(scores.calibrate(2).unwrap(), expected);
        scores.next_recording();
        assert!(
            scores.recordings(MotionClass::Moving, 0).iter().all(|ratios| !ratios.contains(&1e6))
        );
    }

    #[test]
    fn too_few_recordings_and_factors_that_are_none_are_refused() {
        let told = scores(0..5).calibrate(2).unwrap_err().to_string();
        assert!(told.contains("5 recordings") && told.contains("at least 8"), "{told}");
        // A recording of many situations is one.
        let mut many = Scores::default();
        for _ in 0..3 {
            many.next_recording();
            MotionClass::ALL.into_iter().for_each(|situation| many.add(situation, 0, 1.0));
        }
        assert!(many.calibrate(1).unwrap_err().to_string().contains("3 recordings"));
        let good = scores(0..9).calibrate(2).unwrap();
        for change in [
            |c: &mut Calibration| c.factors[0][0].clear(),
            |c: &mut Calibration| c.factors.truncate(MotionClass::Unplanned as usize),
            |c: &mut Calibration| c.factors.push(c.factors[0].clone()),
            |c: &mut Calibration| c.factors[1][1][0] = f32::NAN,
            |c: &mut Calibration| c.factors[1][1][0] = 0.0,
            |c: &mut Calibration| c.factors.iter_mut().flatten().for_each(Vec::clear),
        ] {
            let mut wrong = good.clone();
            change(&mut wrong);
            assert!(wrong.validate().unwrap_err().to_string().contains("calibration"));
        }
    }
}
