//! Predictions without a model, to hold the model's against.

use forecloud::base::geometry::{Neighbors, Vec3};
use forecloud::predict::predictor::Prediction;
use forecloud::{Error, Result};

/// Nothing moves: zeros, `[horizon][n]`.
pub fn nothing_moves(n: usize, horizon: usize) -> Vec<Vec<Vec3>> {
    vec![vec![[0.0; 3]; n]; horizon]
}

/// All go on as they went from `before` to `now` (m, `[n]`): displacements `[horizon][n]`.
pub fn constant_velocity(before: &[Vec3], now: &[Vec3], horizon: usize) -> Vec<Vec<Vec3>> {
    let step = |(from, to): (&Vec3, &Vec3)| std::array::from_fn(|axis| to[axis] - from[axis]);
    let step: Vec<Vec3> = before.iter().zip(now).map(step).collect();
    vec![step; horizon]
}

/// As [`constant_velocity`], each particle's motion guessed from its nearest neighbour among the
/// `history` particles, `elapsed_steps` steps older (which is near 1).
///
/// # Errors
/// [`Error::TooFewPoints`] without history, [`Error::NonFinite`] if a position is not finite.
pub fn estimated_velocity(
    history: &[Vec3],
    now: &[Vec3],
    elapsed_steps: f32,
    horizon: usize,
) -> Result<Vec<Vec<Vec3>>> {
    if history.is_empty() {
        return Err(Error::TooFewPoints { needed: 1, got: 0 });
    }
    let mut nearest = Vec::new();
    Neighbors::default().nearest(history, now, &mut nearest)?;
    let before: Vec<Vec3> = now
        .iter()
        .zip(nearest)
        .map(|(x, nearest)| {
            let from = history[nearest as usize];
            std::array::from_fn(|axis| x[axis] - (x[axis] - from[axis]) / elapsed_steps)
        })
        .collect();
    Ok(constant_velocity(&before, now, horizon))
}

/// [`estimated_velocity`] of what a prediction starts from, `[horizon][n]`.
///
/// # Errors
/// As [`estimated_velocity`].
pub fn of_prediction(
    prediction: &Prediction,
    step_secs: f64,
    horizon: usize,
) -> Result<Vec<Vec<Vec3>>> {
    let elapsed_secs = prediction.stamp.secs_since(prediction.history_stamp);
    let elapsed_steps = (elapsed_secs / step_secs) as f32;
    estimated_velocity(&prediction.history, &prediction.particles.positions, elapsed_steps, horizon)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_velocity_goes_on() {
        let steps = constant_velocity(&[[0.0, 1.0, 2.0]], &[[0.5, 1.0, 1.75]], 3);
        assert_eq!(steps, vec![vec![[0.5, 0.0, -0.25]]; 3]);
    }

    #[test]
    fn the_estimate_follows_the_nearest_point_of_the_history() {
        let history = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [5.0, 5.0, 5.0]];
        let now = [[0.25, 0.0, 0.0], [1.125, 0.0, 0.0]];
        let steps = estimated_velocity(&history, &now, 1.0, 2).unwrap();
        assert_eq!(steps, vec![vec![[0.25, 0.0, 0.0], [0.125, 0.0, 0.0]]; 2]);
        // The same way in half a step is twice as fast.
        let steps = estimated_velocity(&history, &now, 0.5, 1).unwrap();
        assert_eq!(steps, vec![vec![[0.5, 0.0, 0.0], [0.25, 0.0, 0.0]]]);
    }

    #[test]
    fn without_history_there_is_no_estimate() {
        let result = estimated_velocity(&[], &[[0.0; 3]], 1.0, 1);
        assert!(matches!(result, Err(Error::TooFewPoints { needed: 1, got: 0 })));
    }
}
