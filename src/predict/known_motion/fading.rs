//! What was said of the last steps and did not come fades from those ahead: hands and what they lead turn and stop.

use crate::base::geometry::{Vec3, add, bounds, length};
use crate::engine::motion_class::MotionClass;
use crate::engine::rollout_input::RolloutInput;

/// What is no farther than this (m) from the box that a link sweeps in a step may be moved by the robot.
const REACH_M: f32 = 0.1;
/// Share of its way that something must come down to be taken to fall.
const FALLS: f32 = 0.5;

/// How much of what the model says of each particle counts; its vectors are kept from one prediction to the next.
#[derive(Debug, Default)]
pub struct Fading {
    /// How much of a step's motion as the model predicts it the next one keeps, `[n]`.
    keeps: Vec<f32>,
    /// How far each goes until the end of the step at hand as the model has it (m), `[n]`.
    ways: Vec<Vec3>,
    /// Boxes (m) that the links of the robot sweep, `[n_steps][n_links]`.
    swept: Vec<[Vec3; 2]>,
    /// The first step in which the robot may reach each body.
    reached: Vec<usize>,
}

impl Fading {
    /// Takes what the evidence of each particle of `scene` tells, for a roll-out of `n_steps`.
    pub fn begin(&mut self, scene: &RolloutInput, n_steps: usize) {
        let start = &scene.start;
        self.ways.clear();
        self.ways.resize(start.positions.len(), [0.0; 3]);
        self.keeps.clear();
        let keeps = scene.evidence.iter().map(|known| known.map_or(1.0, |known| known.keeps));
        self.keeps.extend(keeps.chain(std::iter::repeat(1.0)).take(start.positions.len()));
        let n_links = self.sweep(scene, n_steps);
        self.reached.clear();
        self.reached.resize(start.body_motions.len(), usize::MAX);
        for ((p, &body), &keeps) in start.positions.iter().zip(&start.body_of).zip(&self.keeps) {
            let Some(reached) = self.reached.get_mut(body as usize).filter(|_| keeps < 1.0) else {
                continue;
            };
            let near = |[min, max]: &[Vec3; 2]| {
                (0..3).all(|k| min[k] - REACH_M < p[k] && p[k] < max[k] + REACH_M)
            };
            let mut steps = self.swept.chunks(n_links.max(1)).take(n_steps.min(*reached));
            *reached = steps.position(|links| links.iter().any(near)).unwrap_or(*reached);
        }
    }

    /// Finds the boxes that the links sweep in each step; returns how many there are.
    fn sweep(&mut self, scene: &RolloutInput, n_steps: usize) -> usize {
        let links = &scene.start.kinematic_links;
        let n_links = links.iter().max().map_or(0, |&link| link as usize + 1);
        self.swept.clear();
        self.swept.resize(n_steps * n_links, bounds(&[]));
        for (row, points) in scene.kinematic.iter().enumerate().skip(1) {
            // Where a step ends, and the next one begins.
            for step in [row.checked_sub(2), Some(row - 1)].into_iter().flatten() {
                if step >= n_steps {
                    continue;
                }
                for (p, &link) in points.iter().zip(links) {
                    let [min, max] = &mut self.swept[step * n_links + link as usize];
                    for k in 0..3 {
                        (min[k], max[k]) = (min[k].min(p[k]), max[k].max(p[k]));
                    }
                }
            }
        }
        n_links
    }

    /// How much counts of what the model says of particle `i` of `body` in `step`: that it goes by `way` (m). To be
    /// asked step by step. Falls are told by gravity, and what the robot moves by its plan, not by what came before;
    /// but what is in the air and does not come down hangs on something that nobody describes.
    pub fn share(
        &mut self,
        (i, body): (usize, u32),
        class: Option<MotionClass>,
        step: usize,
        way: &Vec3,
    ) -> f32 {
        let Some(so_far) = self.ways.get_mut(i) else { return 1.0 };
        add(so_far, way);
        let falls = class == Some(MotionClass::Flying) && so_far[2] < -FALLS * length(so_far);
        let is_reached = self.reached.get(body as usize).is_none_or(|&reached| reached <= step);
        if falls || is_reached { 1.0 } else { self.keeps[i].powi(step as i32) }
    }
}
