//! Finds what a model knows the like of, on recordings like its own.

use nalgebra::{SMatrix, SVector};

use crate::predict::conformal::quantile;
use crate::base::geometry::{Vec3, distance};
use crate::predict::situation::Situation;
use crate::{Error, Result};

use super::traits::{N_TRAITS, Traits};
use super::{Familiar, Kind, N_KINDS, Seen};

/// Share of what moves in known recordings that is no more unlike than the limit.
const KNOWN_SHARE: f64 = 0.98;
/// Least standard deviation of a trait, so that what hardly varied does not outweigh all others.
const LEAST_DEVIATION: f64 = 0.1;
/// Parts of the estimated motion that are tried for the trivial prediction.
const N_PARTS: usize = 40;

type Vector = SVector<f64, N_TRAITS>;
type Matrix = SMatrix<f64, N_TRAITS, N_TRAITS>;

/// Takes predictions of known recordings, one recording after the other; each counts as much as any
/// other, however much moves in it.
#[derive(Debug, Default)]
pub struct Finding {
    /// Of each recording.
    recordings: Vec<OfRecording>,
}

#[derive(Debug, Default)]
struct OfRecording {
    traits: [Vec<Traits>; N_KINDS],
    /// Sums of the errors after each step with each part of the motion `[moving, flying][step]`, and
    /// how many.
    errors: [Vec<([f64; N_PARTS + 1], u64)>; 2],
}

impl Finding {
    /// All predictions that follow are of another recording.
    pub fn next_recording(&mut self) {
        self.recordings.push(OfRecording::default());
    }

    /// Forgets what was taken of the last recording: it could not be read to its end.
    pub fn drop_recording(&mut self) {
        self.recordings.pop();
    }

    /// Takes what was `seen` to move, and where it is now and after each step, `[1 + n_steps][n]`, as far
    /// as that is known: `is_known` tells of a step (from 0) and a particle.
    pub fn add(
        &mut self,
        seen: &Seen,
        situations: &[Situation],
        positions: &[Vec<Vec3>],
        is_known: impl Fn(usize, usize) -> bool,
    ) {
        let Some(recording) = self.recordings.last_mut() else { return };
        let Some((now, later)) = positions.split_first() else { return };
        for (i, traits) in seen.traits.iter().enumerate() {
            let Some(traits) = traits else { continue };
            let kind = usize::from(!seen.is_in_body[i]);
            recording.traits[kind].push(*traits);
            let is_flying = situations[i] == Situation::Flying;
            let of_steps = &mut recording.errors[usize::from(is_flying)];
            let (start, onward) = (&now[i], &seen.onward[i]);
            for (step, there) in later.iter().enumerate().filter(|(step, _)| is_known(*step, i)) {
                of_steps.resize(of_steps.len().max(step + 1), ([0.0; N_PARTS + 1], 0));
                let (sums, n) = &mut of_steps[step];
                for (part, sum) in sums.iter_mut().enumerate() {
                    let motions = motions(part, step);
                    let told = std::array::from_fn(|axis| start[axis] + motions * onward[axis]);
                    *sum += f64::from(distance(&told, &there[i]));
                }
                *n += 1;
            }
        }
    }

    /// What is familiar from these recordings, for `n_steps` steps.
    ///
    /// # Errors
    /// [`Error::Config`] if they are too few.
    pub fn familiar(&self, n_steps: usize) -> Result<Familiar> {
        let [bodies, others] = [0, 1].map(|kind| self.kind(kind));
        let too_few = || {
            let problem = "something moves in fewer than 8 recordings: calibrate with more";
            Error::Config { key: "familiar".into(), problem: problem.into() }
        };
        let bodies = bodies.ok_or_else(too_few)?;
        // Where nothing but bodies was seen, what is none is held against them.
        let others = others.unwrap_or_else(|| bodies.clone());
        let lasting = [0, 1].map(|of| (0..n_steps).map(|step| self.lasting(of, step)).collect());
        let n_recordings = self.recordings.len();
        let familiar = Familiar { n_recordings, kinds: [bodies, others], lasting };
        familiar.validate()?;
        Ok(familiar)
    }

    /// None of too few recordings. The limit is found on distances from all other recordings: a
    /// recording of its own traits is never unlike.
    fn kind(&self, kind: usize) -> Option<Kind> {
        let lists = self.recordings.iter().map(|recording| recording.traits[kind].as_slice());
        let lists: Vec<&[Traits]> = lists.filter(|traits| !traits.is_empty()).collect();
        let moments: Vec<(Vector, Matrix)> = lists.iter().map(|traits| moments(traits)).collect();
        let without = |left_out: usize| {
            let others = moments.iter().enumerate().filter(|&(j, _)| j != left_out);
            spread(others.map(|(_, moments)| moments))
        };
        let distances = lists.iter().enumerate().map(|(j, traits)| {
            let others = without(j);
            traits.iter().map(|traits| others.distance(traits).0).collect::<Vec<f32>>()
        });
        let distances: Vec<Vec<f32>> = distances.collect();
        let distances: Vec<&[f32]> = distances.iter().map(Vec::as_slice).collect();
        let limit = quantile(&distances, KNOWN_SHARE)?;
        Some(Kind { limit, ..without(usize::MAX) })
    }

    /// The part of the motion whose error is least, in motions of a step.
    fn lasting(&self, of: usize, step: usize) -> f32 {
        let of_steps =
            self.recordings.iter().filter_map(|recording| recording.errors[of].get(step));
        let means =
            of_steps.filter(|(_, n)| *n > 0).map(|(sums, n)| sums.map(|sum| sum / *n as f64));
        let mut total = [0.0; N_PARTS + 1];
        means
            .for_each(|means| total.iter_mut().zip(means).for_each(|(total, mean)| *total += mean));
        let best = (0..=N_PARTS).min_by(|&a, &b| f64::total_cmp(&total[a], &total[b]));
        best.map_or(0.0, |part| motions(part, step))
    }
}

/// The `part`-th of what is tried for `step` (0-based): none of the motion to all of it.
fn motions(part: usize, step: usize) -> f32 {
    part as f32 / N_PARTS as f32 * (step + 1) as f32
}

/// Mean of the traits and of their products.
fn moments(traits: &[Traits]) -> (Vector, Matrix) {
    let (mut mean, mut products) = (Vector::zeros(), Matrix::zeros());
    for traits in traits {
        let x = Vector::from_fn(|i, _| f64::from(traits[i]));
        mean += x;
        products += x * x.transpose();
    }
    (mean / traits.len() as f64, products / traits.len() as f64)
}

/// Mean, deviation and precision over recordings; the limit is still to be found.
fn spread<'a>(moments: impl Iterator<Item = &'a (Vector, Matrix)>) -> Kind {
    let (mut mean, mut products, mut n) = (Vector::zeros(), Matrix::zeros(), 0.0);
    for (own_mean, own_products) in moments {
        mean += own_mean;
        products += own_products;
        n += 1.0;
    }
    let (mean, products) = (mean / n, products / n);
    let least = Matrix::identity() * LEAST_DEVIATION * LEAST_DEVIATION;
    let covariance = products - mean * mean.transpose() + least;
    // A covariance and a positive diagonal have an inverse.
    let precision = covariance.try_inverse().unwrap_or_else(Matrix::identity);
    Kind {
        mean: std::array::from_fn(|i| mean[i] as f32),
        deviation: std::array::from_fn(|i| covariance[(i, i)].max(0.0).sqrt() as f32),
        precision: std::array::from_fn(|i| std::array::from_fn(|j| precision[(i, j)] as f32)),
        limit: 1.0,
    }
}
