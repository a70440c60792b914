//! The honest fall-back: how unlike all that a model knows what moves in a scene is, and what is
//! predicted of it then.
//!
//! A network says something of any input. So each body that moves is held against those of recordings
//! like the model's own, by a few traits that a person can check, and their Mahalanobis distance
//! (Mahalanobis 1936; to find inputs unlike training Lee et al. 2018). From a limit on, which hardly any
//! body of such recordings exceeds, the prediction leans on the best trivial one, and from half as much
//! again it is that one: the estimated motion goes on, as much of it as usually lasts.

mod find;
#[cfg(test)]
mod tests;
mod traits;

use serde::{Deserialize, Serialize};

use crate::base::geometry::{Vec3, add, distance};
use crate::vision::motion::NO_BODY;
use crate::engine::scene::StepState;
use crate::predict::situation::Situation;
use crate::{Error, Result};

pub use find::Finding;
pub use traits::{Difference, N_TRAITS, Traits};

/// What a prediction's start is judged by.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Traits of each particle, `[n]`; none of what rests or lies on the robot.
    pub traits: Vec<Option<Traits>>,
    /// The motion of each in the next step, if it goes on as it was estimated to move (m), `[n]`.
    pub onward: Vec<Vec3>,
    /// Whether it belongs to a body, `[n]`.
    pub is_in_body: Vec<bool>,
}

/// Distance, over the limit, from which on nothing of the model's prediction is left.
const LEANS_FULLY: f32 = 1.5;
/// Particles of a body, and those of none.
const N_KINDS: usize = 2;

/// What a model knows the like of: in its file, found by `forecloud calibrate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Familiar {
    /// Recordings that it was found on.
    pub n_recordings: usize,
    /// Of particles of a body, and of those of none.
    pub kinds: [Kind; N_KINDS],
    /// The best trivial prediction: where a particle is after each step, in estimated motions of a step
    /// from where it was; of what moves, and of what flies. Later steps are as the last, and none is
    /// taken for less than one before it.
    pub lasting: [Vec<f32>; 2],
}

/// Traits of known recordings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// Their mean.
    pub mean: Traits,
    /// Their standard deviation.
    pub deviation: Traits,
    /// The inverse of their covariance.
    pub precision: [Traits; N_TRAITS],
    /// The squared Mahalanobis distance above which a body is unlike them.
    pub limit: f32,
}

/// How unlike what is known a prediction's start is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unlike {
    /// For each particle its body's distance over the limit, `[n]`: unlike above 1; 0 of what rests or
    /// lies on the robot. Empty of models that don't know.
    pub distances: Vec<f32>,
    /// Particles that move, or of whose motion nothing is known.
    pub n_moving: usize,
    /// Of those, the unlike ones.
    pub n_unlike: usize,
    /// In what these differ most.
    pub most: Option<Difference>,
}

impl Kind {
    /// The squared Mahalanobis distance of `traits`, and each trait's part in it.
    fn distance(&self, traits: &Traits) -> (f32, Traits) {
        let off: Traits = std::array::from_fn(|i| traits[i] - self.mean[i]);
        let parts: Traits = std::array::from_fn(|i| {
            off[i] * self.precision[i].iter().zip(&off).map(|(p, off)| p * off).sum::<f32>()
        });
        (parts.iter().sum::<f32>().max(0.0), parts)
    }

    fn is_good(&self) -> bool {
        let numbers = || self.mean.iter().chain(self.precision.as_flattened());
        let positive = || self.deviation.iter().chain([&self.limit]);
        numbers().chain(positive()).all(|x| x.is_finite()) && positive().all(|&x| x > 0.0)
    }
}

impl Familiar {
    /// Most steps that it may tell of.
    const MAX_STEPS: usize = 100;

    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names what is wrong.
    pub fn validate(&self) -> Result<()> {
        let problem = if !self.kinds.iter().all(Kind::is_good) {
            "a number is not finite, or a deviation or limit not positive"
        } else if self.lasting.iter().any(|steps| !(1..=Self::MAX_STEPS).contains(&steps.len())) {
            "what lasts of a motion is told of no step, or of more than 100"
        } else if !self.lasting.iter().flatten().all(|motions| (0.0..=1e3).contains(motions)) {
            "what lasts of a motion is not in 0..=1000"
        } else {
            return Ok(());
        };
        Err(Error::Config { key: "familiar".into(), problem: problem.into() })
    }

    /// Where a particle is after `step` (0-based), in estimated motions of a step: never less far than
    /// after an earlier one, as nothing turns back by itself, though the mean error were less.
    fn lasting(&self, situation: Situation, step: usize) -> f32 {
        let steps = self.lasting[usize::from(situation == Situation::Flying)].iter();
        steps.take(step + 1).copied().fold(0.0, f32::max)
    }
}

/// Sums over the unlike particles of a kind.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    n: usize,
    traits: Traits,
    /// What each trait has in the distances.
    parts: Traits,
}

impl Sums {
    fn add(&mut self, traits: &Traits, parts: &Traits) {
        self.n += 1;
        self.traits.iter_mut().zip(traits).for_each(|(sum, x)| *sum += x);
        self.parts.iter_mut().zip(parts).for_each(|(sum, x)| *sum += x);
    }

    /// In what they differ most; none of none.
    fn most(&self, kind: &Kind) -> Option<Difference> {
        let largest = |&a: &usize, &b: &usize| f32::total_cmp(&self.parts[a], &self.parts[b]);
        let index = (0..N_TRAITS).filter(|_| self.n > 0).max_by(largest)?;
        Some(Difference::new(index, self.traits[index] / self.n as f32, kind))
    }
}

/// Makes predictions of what is unlike lean on the trivial one; keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Novelty {
    gaps: Vec<f32>,
    /// How far each step's predictions were moved (m), `[n_steps][n]`; of so many steps as were.
    moved: Vec<Vec<f32>>,
    n_moved: usize,
    /// Of each body: the sum of its particles' squared distances, and their number.
    bodies: Vec<(f32, usize)>,
    /// Where each particle is after the step at hand, from where it was at the start: as the model has
    /// it, and as it is predicted.
    by_model: Vec<Vec3>,
    predicted: Vec<Vec3>,
}

impl Novelty {
    /// Takes what is to be judged of `start`, whose positions the model is told from the centre of its
    /// workspace, in units of half its side (m).
    pub fn look(
        &mut self,
        start: &StepState,
        situations: &[Situation],
        (center_m, half_side_m): (Vec3, f32),
        seen: &mut Seen,
    ) {
        // What the last prediction was moved by says nothing of this one, whether or not it will lean.
        self.n_moved = 0;
        let place = (center_m, half_side_m);
        traits::of_all(start, situations, place, &mut self.gaps, &mut seen.traits);
        let n = start.positions.len();
        seen.onward.clone_from(if start.onward.len() == n {
            &start.onward
        } else {
            &start.velocities
        });
        seen.is_in_body.clear();
        seen.is_in_body.extend((0..n).map(|i| kind_of(start, i) == 0));
    }

    /// Says how unlike what is `familiar` each particle is of what was `seen` of `start`.
    pub fn judge(
        &mut self,
        familiar: &Familiar,
        start: &StepState,
        seen: &Seen,
        unlike: &mut Unlike,
    ) {
        let traits = &seen.traits;
        self.bodies.clear();
        self.bodies.resize(start.body_motions.len(), (0.0, 0));
        unlike.distances.clear();
        (unlike.n_moving, unlike.n_unlike, unlike.most) = (0, 0, None);
        for (i, traits) in traits.iter().enumerate() {
            let kind = &familiar.kinds[kind_of(start, i)];
            let squared = traits.as_ref().map_or(0.0, |traits| kind.distance(traits).0);
            unlike.distances.push(squared / kind.limit);
            if let (Some(_), Some(body)) = (traits, self.bodies.get_mut(body_of(start, i))) {
                *body = (body.0 + squared / kind.limit, body.1 + 1);
            }
        }
        let mut sums = [Sums::default(); N_KINDS];
        for (i, traits) in traits.iter().enumerate() {
            let Some(traits) = traits else { continue };
            // A body is unlike, or is not, as a whole.
            let body = self.bodies.get(body_of(start, i));
            let squared = body.map_or(unlike.distances[i], |&(sum, n)| sum / n.max(1) as f32);
            unlike.distances[i] = squared.sqrt();
            unlike.n_moving += 1;
            if squared > 1.0 {
                unlike.n_unlike += 1;
                let kind = kind_of(start, i);
                sums[kind].add(traits, &familiar.kinds[kind].distance(traits).1);
            }
        }
        // Of the kind that is unlike the most often: what is usual is another for each.
        let kind = usize::from(sums[1].n > sums[0].n);
        unlike.most = sums[kind].most(&familiar.kinds[kind]);
    }

    /// Makes the displacements `[n_steps][n]` of what is unlike lean on the trivial prediction. Each step
    /// depends on those before it alone.
    pub fn lean(
        &mut self,
        familiar: &Familiar,
        seen: &Seen,
        situations: &[Situation],
        unlike: &Unlike,
        displacements: &mut [Vec<Vec3>],
    ) {
        self.n_moved = 0;
        if unlike.n_unlike == 0 {
            return;
        }
        let n = seen.onward.len();
        for all in [&mut self.by_model, &mut self.predicted] {
            all.clear();
            all.resize(n, [0.0; 3]);
        }
        self.n_moved = displacements.len();
        self.moved.resize_with(self.moved.len().max(self.n_moved), Vec::new);
        for (step, displacements) in displacements.iter_mut().enumerate() {
            let moved = &mut self.moved[step];
            moved.clear();
            moved.resize(n, 0.0);
            for (i, moves) in displacements.iter_mut().enumerate() {
                let share = lean_of(unlike.distances[i]);
                if share == 0.0 {
                    continue;
                }
                add(&mut self.by_model[i], moves);
                let motions = familiar.lasting(situations[i], step);
                let onward = &seen.onward[i];
                let (model, before) = (self.by_model[i], self.predicted[i]);
                let there: Vec3 = std::array::from_fn(|axis| {
                    (1.0 - share) * model[axis] + share * motions * onward[axis]
                });
                *moves = std::array::from_fn(|axis| there[axis] - before[axis]);
                moved[i] = distance(&model, &there);
                self.predicted[i] = there;
            }
        }
    }

    /// Widens the radii `[level][n_steps][n]` (m) by how far the last [`Novelty::lean`] moved each
    /// prediction: so far do the two that it lies between disagree.
    pub fn widen(&self, radii: &mut [Vec<Vec<f32>>]) {
        for radii in radii {
            for (radii, moved) in radii.iter_mut().zip(&self.moved[..self.n_moved]) {
                radii
                    .iter_mut()
                    .zip(moved)
                    .for_each(|(radius, moved)| *radius = radius.hypot(*moved));
            }
        }
    }
}

/// How much a prediction of this distance over the limit leans on the trivial one: 0 to 1.
fn lean_of(distance: f32) -> f32 {
    ((distance - 1.0) / (LEANS_FULLY - 1.0)).clamp(0.0, 1.0)
}

/// The number of the particle's body; more than there are of particles of none.
fn body_of(start: &StepState, i: usize) -> usize {
    start.body_of.get(i).map_or(NO_BODY, |&body| body) as usize
}

/// 1 of particles of no body.
fn kind_of(start: &StepState, i: usize) -> usize {
    usize::from(body_of(start, i) == NO_BODY as usize)
}
