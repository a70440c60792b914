//! Errors of predicted motion, apart for each class of points.

use std::collections::BTreeMap;

use forecloud::base::geometry::Vec3;
use forecloud::message::Stamp;
use forecloud::{Error, Result};
use forecloud_bag::recording::{BodyIds, BodyKind, Truth, carry};

/// True motion in one step from which on an object's point counts as moving (m).
pub const MOVING_M: f64 = 0.002;

/// Change of the true motion from one step to the next from which on it is sudden (m a step).
/// Free fall changes it by 98 mm in steps of 0.1 s, an arm's way by a few.
pub const SUDDEN_M: f64 = 0.03;

/// What a particle is in one step; objects' points are judged anew in each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// On an object, and truly moving more than [`MOVING_M`] in this step.
    Moving,
    /// On an object that moves less in this step.
    Resting,
    /// On the robot.
    Robot,
    /// On the table, the floor or any other body that never moves.
    Static,
    /// Of the moving ones, those whose motion changes by more than [`SUDDEN_M`]: falls and impacts.
    /// They are reported apart, and count as moving.
    Sudden,
}

impl Class {
    /// All classes, in the order of reports.
    pub const ALL: [Self; 5] =
        [Self::Moving, Self::Sudden, Self::Resting, Self::Robot, Self::Static];
}

/// Where particles truly go, for as many steps as the truth reaches.
#[derive(Debug, Clone, Default)]
pub struct TrueMotion {
    /// True positions one step back (m), `[n]`.
    pub back: Vec<Vec3>,
    /// True positions now and after each step (m), `[n_steps + 1][n]`.
    pub positions: Vec<Vec<Vec3>>,
    /// What each particle is in each step, `[n_steps][n]`; sudden ones are moving ones here.
    pub classes: Vec<Vec<Class>>,
}

impl TrueMotion {
    /// Follows particles at `positions` (world frame, m), seen at `sources`, on their bodies.
    ///
    /// None if the truth does not know `stamp` and the time one step before it. Steps end where
    /// the truth ends.
    pub fn follow(
        truth: &Truth,
        ids: &BodyIds,
        (positions, sources): (&[Vec3], &[u32]),
        stamp: Stamp,
        step_secs: f64,
        horizon: usize,
    ) -> Option<Self> {
        let at = |steps: f64| truth.poses(stamp.plus_secs(steps * step_secs));
        let (now, before) = (at(0.0)?, at(-1.0)?);
        let ids: Vec<u16> = sources.iter().map(|&source| ids.id(source)).collect();
        let kinds: Vec<BodyKind> = ids.iter().map(|&id| truth.kind(id)).collect();
        let carried = |to| -> Vec<Vec3> {
            positions.iter().zip(&ids).map(|(&x, &id)| carry(x, id, now, to)).collect()
        };
        let ahead = (1..=horizon).map_while(|h| at(h as f64)).map(carried);
        Some(Self::new(carried(before), std::iter::once(positions.to_vec()).chain(ahead), &kinds))
    }

    /// Of true positions `[n]` one step back and `[n_steps + 1][n]` from now on (m), and of what
    /// the particles lie on `[n]`.
    pub fn new(
        back: Vec<Vec3>,
        positions: impl IntoIterator<Item = Vec<Vec3>>,
        kinds: &[BodyKind],
    ) -> Self {
        let positions: Vec<Vec<Vec3>> = positions.into_iter().collect();
        let class = |(kind, (from, to)): (&BodyKind, (&Vec3, &Vec3))| match kind {
            BodyKind::Static => Class::Static,
            BodyKind::Robot => Class::Robot,
            BodyKind::Object if distance_m(from, to) > MOVING_M => Class::Moving,
            BodyKind::Object => Class::Resting,
        };
        let steps = positions.iter().zip(positions.iter().skip(1));
        let classes = steps
            .map(|(from, to)| kinds.iter().zip(from.iter().zip(to)).map(class).collect())
            .collect();
        Self { back, positions, classes }
    }

    /// Whether the motion of particle `i` changes suddenly in `step` (0-based).
    fn is_sudden(&self, step: usize, i: usize) -> bool {
        let before = if step == 0 { &self.back } else { &self.positions[step - 1] };
        let (now, after) = (&self.positions[step][i], &self.positions[step + 1][i]);
        let goes_on = std::array::from_fn(|axis| 2.0 * now[axis] - before[i][axis]);
        self.classes[step][i] == Class::Moving && distance_m(after, &goes_on) > SUDDEN_M
    }

    /// Steps that the truth reaches ahead.
    pub fn n_steps(&self) -> usize {
        self.classes.len()
    }
}

/// A mean that is still growing.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Mean {
    /// Sum of the values.
    pub sum: f64,
    /// Number of values.
    pub n: u64,
}

impl Mean {
    /// Takes one more value.
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.n += 1;
    }

    /// Takes all values of `other`.
    pub fn merge(&mut self, other: Self) {
        self.sum += other.sum;
        self.n += other.n;
    }

    /// The mean; none of nothing.
    pub fn get(self) -> Option<f64> {
        (self.n > 0).then(|| self.sum / self.n as f64)
    }
}

/// One method's errors (mm): pooled over frames, and by task.
///
/// Of static points the error is false motion: the length of the displacement predicted for that
/// step alone. Of all others it is the distance between the predicted and the true position after
/// the step, with all steps before it.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Scores {
    by_task: BTreeMap<String, BTreeMap<usize, [Mean; Class::ALL.len()]>>,
}

impl Scores {
    /// Takes the prediction of one frame: `displacements`, `[horizon][n]` (m), from the positions
    /// at which `truth` starts.
    ///
    /// # Errors
    /// [`Error::Shape`] if a step has displacements of another number of particles.
    pub fn add(
        &mut self,
        task: &str,
        displacements: &[Vec<Vec3>],
        truth: &TrueMotion,
    ) -> Result<()> {
        let Some(start) = truth.positions.first() else { return Ok(()) };
        let mut predicted: Vec<Vec3> = start.clone();
        let steps = self.by_task.entry(task.to_owned()).or_default();
        let true_steps = truth.positions.iter().skip(1).zip(&truth.classes);
        for (step, (moves, (positions, classes))) in
            displacements.iter().zip(true_steps).enumerate()
        {
            if moves.len() != predicted.len() {
                let (expected, got) = (predicted.len(), moves.len());
                return Err(Error::Shape { what: "displacements of a step", expected, got });
            }
            let means = steps.entry(step).or_default();
            for (i, x) in predicted.iter_mut().enumerate() {
                *x = std::array::from_fn(|axis| x[axis] + moves[i][axis]);
                let error_m = match classes[i] {
                    Class::Static => distance_m(&moves[i], &[0.0; 3]),
                    _ => distance_m(x, &positions[i]),
                };
                means[classes[i] as usize].add(1e3 * error_m);
                if truth.is_sudden(step, i) {
                    means[Class::Sudden as usize].add(1e3 * error_m);
                }
            }
        }
        Ok(())
    }

    /// Takes all that `other` has.
    pub fn merge(&mut self, other: &Self) {
        for (task, steps) in &other.by_task {
            let own = self.by_task.entry(task.clone()).or_default();
            for (&step, means) in steps {
                let own = own.entry(step).or_default();
                own.iter_mut().zip(means).for_each(|(own, mean)| own.merge(*mean));
            }
        }
    }

    /// Whether it can be of `horizon` steps.
    pub(super) fn can_be(&self, horizon: usize) -> bool {
        self.by_task.values().all(|steps| steps.keys().all(|&step| step < horizon))
    }

    /// Mean error of `class` after `step` (0-based), of one task or of all (mm).
    pub fn mean(&self, class: Class, step: usize, task: Option<&str>) -> Mean {
        let mut pooled = Mean::default();
        let tasks = self.by_task.iter().filter(|(name, _)| task.is_none_or(|t| t == name.as_str()));
        tasks
            .filter_map(|(_, steps)| steps.get(&step))
            .for_each(|means| pooled.merge(means[class as usize]));
        pooled
    }

    /// The tasks, by name.
    pub fn tasks(&self) -> impl Iterator<Item = &str> {
        self.by_task.keys().map(String::as_str)
    }
}

/// Distance in f64.
pub(super) fn distance_m(a: &Vec3, b: &Vec3) -> f64 {
    (0..3).map(|axis| (f64::from(a[axis]) - f64::from(b[axis])).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests;
