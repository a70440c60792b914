//! Estimates held against the truth.

use std::time::Instant;

use anyhow::Result;
use forecloud::base::geometry::{add, distance, length, minus};
use forecloud::vision::motion::{MotionEstimator, PastMotion, Settings, TwoFrames};
use forecloud_bag::recording::BodyKind;
use forecloud_train::config::MOVING_M;

use crate::steps::Step;

/// What was found; lengths in metres.
#[derive(Default)]
pub struct Findings {
    pub n_recordings: usize,
    /// Object points that moved: error, true motion, confidence.
    moving: Vec<[f32; 3]>,
    /// Motion of object points at rest, and of static points.
    false_object: Mean,
    pub false_static: Mean,
    /// Error on points of the robot that moved.
    robot: Mean,
    unknown: Mean,
    /// Error of the extrapolated motion on object points that move in the next step.
    pub extrapolated_motion: Mean,
    pub frame_ms: Mean,
}

#[derive(Default)]
pub struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, x: f32) {
        self.sum += f64::from(x);
        self.count += 1.0;
    }

    pub fn get(&self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { 0.0 }
    }
}

impl Findings {
    /// Estimates the steps of one more recording.
    pub fn measure(&mut self, settings: Settings, steps: &[Step]) -> Result<()> {
        self.n_recordings += 1;
        let (mut estimator, mut found) = (MotionEstimator::new(settings)?, PastMotion::default());
        for Step { frames, links, truths, extrapolated_motion } in steps {
            let start = Instant::now();
            let Some(now) = frames.last() else { continue };
            let mut particles = now.particles.clone();
            let mut motions = vec![[0.0; 3]; particles.len()];
            // Back from now, a way after the other.
            for pair in frames.windows(2).rev() {
                let [before, now] = pair else { continue };
                let frames = TwoFrames {
                    particles: &particles,
                    clouds: [&before.cloud, &now.cloud],
                    robot: [&before.kinematic, &now.kinematic],
                    links,
                    camera_moved: false,
                };
                estimator.estimate(&frames, &mut found);
                for ((p, sum), d) in
                    particles.positions.iter_mut().zip(&mut motions).zip(&found.motions)
                {
                    *p = minus(p, d);
                    add(sum, d);
                }
            }
            found.motions = motions;
            self.frame_ms.add(start.elapsed().as_secs_f32() * 1e3);
            for (i, (kind, truth)) in truths.iter().enumerate() {
                let error = distance(&found.motions[i], truth);
                let moves = length(truth) > MOVING_M;
                match kind {
                    BodyKind::Object if moves => {
                        self.moving.push([error, length(truth), found.confidences[i]]);
                        self.unknown.add(f32::from(found.confidences[i] == 0.0));
                    }
                    BodyKind::Object => self.false_object.add(error),
                    BodyKind::Robot if moves => self.robot.add(error),
                    BodyKind::Robot => {}
                    BodyKind::Static => self.false_static.add(error),
                }
            }
            for (i, truth) in extrapolated_motion.iter().enumerate() {
                if truths[i].0 == BodyKind::Object && length(truth) > MOVING_M {
                    self.extrapolated_motion.add(distance(&found.extrapolated_motion[i], truth));
                }
            }
        }
        Ok(())
    }

    /// Mean error of the moving points over their mean motion.
    pub fn ratio(&self) -> f64 {
        self.mean(0) / self.mean(1).max(1e-9)
    }

    fn mean(&self, i: usize) -> f64 {
        let sum = self.moving.iter().map(|m| f64::from(m[i])).sum::<f64>();
        sum / self.moving.len().max(1) as f64
    }

    pub fn print(&mut self, split: &str, task: &str) {
        let n = self.moving.len().max(1) as f64;
        let product = |i: usize, j: usize| {
            let products = self.moving.iter().map(|m| f64::from(m[i]) * f64::from(m[j]));
            products.sum::<f64>() / n - self.mean(i) * self.mean(j)
        };
        let correlation = product(0, 2) / (product(0, 0) * product(2, 2)).sqrt().max(1e-12);
        self.moving.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let median = self.moving.get(self.moving.len() / 2).map_or(0.0, |m| m[0]);
        println!(
            "| {split} | {task} | {} | {} | {:.1} | {:.2} | {:.2} | {:.3} | {:.3} | {correlation:.2} | \
             {:.2} | {:.3} | {:.1} | {:.2} | {:.2} |",
            self.n_recordings,
            self.moving.len(),
            1e3 * self.mean(1),
            1e3 * self.mean(0),
            1e3 * median,
            self.ratio(),
            self.unknown.get(),
            1e3 * self.false_object.get(),
            1e3 * self.false_static.get(),
            1e3 * self.robot.get(),
            1e3 * self.extrapolated_motion.get(),
            self.frame_ms.get(),
        );
    }
}
