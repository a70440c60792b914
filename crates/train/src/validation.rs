//! Mean errors on windows of the validation recordings.

use serde::Serialize;

use super::dataset::Window;
use crate::labels::SURE;
use forecloud::base::geometry::Vec3;
use forecloud::engine::model::Rollout;
use forecloud_bag::recording::BodyKind;

/// Mean errors over validation windows, in millimetres; none where no window has such points, and
/// left out of JSON then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Validation {
    /// Windows that reach as far as the roll-out.
    pub n_windows: u64,
    /// Steps of the roll-out.
    pub n_steps: usize,
    /// Moving object points after 1 step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moving_1_mm: Option<f64>,
    /// Moving object points after the last step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moving_last_mm: Option<f64>,
    /// The points of both if nothing moved, after 1 step and after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nothing_mm: Option<[f64; 2]>,
    /// Robot points after 1 step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robot_1_mm: Option<f64>,
    /// False motion of static points in the first step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_1_mm: Option<f64>,
}

impl Validation {
    /// What could not be measured, and why; one line each.
    pub fn missing(&self) -> Vec<String> {
        let n_steps = self.n_steps;
        if self.n_windows == 0 {
            return vec![format!(
                "nothing could be measured: no window of the validation recordings reaches \
                 {n_steps} steps; longer recordings do"
            )];
        }
        let missing = |value: Option<f64>, what: &str| {
            value.is_none().then(|| format!("{what}: no validation window has such points"))
        };
        [
            missing(self.moving_1_mm, "moving objects after 1 step"),
            missing(self.moving_last_mm, &format!("moving objects after {n_steps} steps")),
            missing(self.robot_1_mm, "the robot"),
            missing(self.static_1_mm, "false motion of static points"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Moves all positions by their displacements.
pub(super) fn advance(positions: &mut [Vec3], displacements: &[Vec3]) {
    for (p, d) in positions.iter_mut().zip(displacements) {
        (0..3).for_each(|axis| p[axis] += d[axis]);
    }
}

fn distance_mm(a: &Vec3, b: &Vec3) -> f64 {
    let squares = (0..3).map(|axis| f64::from(a[axis] - b[axis]).powi(2));
    1e3 * squares.sum::<f64>().sqrt()
}

/// Sums of errors and their counts.
#[derive(Default)]
pub(super) struct Sums {
    n_windows: u64,
    slots: [(f64, u64); 6],
}

impl Sums {
    /// Takes a window that was rolled out `horizon` steps.
    pub(super) fn add(&mut self, window: &Window, rollout: &Rollout, horizon: usize) {
        self.n_windows += 1;
        let start = &window.scene.start.positions;
        let mut positions = start.clone();
        for t in 0..horizon {
            advance(&mut positions, rollout.displacements(t));
            let (first, last) = (t == 0, t + 1 == horizon);
            // What hindsight is not sure of is no measure.
            for i in (0..positions.len()).filter(|&i| window.weights[t][i] >= SURE) {
                let error = distance_mm(&positions[i], &window.targets[t][i]);
                let moved = distance_mm(&start[i], &window.targets[t][i]);
                let mut put = |slot: usize, value: f64| {
                    self.slots[slot].0 += value;
                    self.slots[slot].1 += 1;
                };
                match window.kinds[i] {
                    BodyKind::Object if window.moving[t][i] => {
                        if first {
                            put(0, error);
                            put(2, moved);
                        }
                        if last {
                            put(1, error);
                            put(3, moved);
                        }
                    }
                    BodyKind::Robot if first => put(4, error),
                    BodyKind::Static if first => put(5, error),
                    _ => {}
                }
            }
        }
    }

    /// The means; what has no points, or is not finite, is none.
    pub(super) fn means(&self, n_steps: usize) -> Validation {
        let mean = |slot: usize| {
            let (sum, n) = self.slots[slot];
            Some(sum / n as f64).filter(|mean| n > 0 && mean.is_finite())
        };
        Validation {
            n_windows: self.n_windows,
            n_steps,
            moving_1_mm: mean(0),
            moving_last_mm: mean(1),
            nothing_mm: mean(2).zip(mean(3)).map(Into::into),
            robot_1_mm: mean(4),
            static_1_mm: mean(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_told_and_is_no_null() {
        let nothing = Validation { n_steps: 5, ..Validation::default() };
        assert_eq!(serde_json::to_string(&nothing).unwrap(), r#"{"n_windows":0,"n_steps":5}"#);
        let told = nothing.missing();
        assert!(told.len() == 1 && told[0].contains("5 steps"), "{told:?}");
        let still =
            Validation { n_windows: 3, static_1_mm: Some(0.1), robot_1_mm: Some(0.2), ..nothing };
        let told = still.missing().join("\n");
        assert!(told.contains("moving objects after 1 step"), "{told}");
        assert!(told.contains("after 5 steps") && !told.contains("robot"), "{told}");
        assert!(!serde_json::to_string(&still).unwrap().contains("null"));
    }
}
