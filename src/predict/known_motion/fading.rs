//! What was said of the last steps and did not come fades from those ahead: hands and what they lead turn and stop.

use crate::base::geometry::{Vec3, add, bounds, length};
use crate::engine::motion_class::MotionClass;
use crate::engine::rollout_input::RolloutInput;

/// What is no farther than this (m) from the box that a link sweeps may be moved by the robot.
const REACH_M: f32 = 0.1;
/// Share of its way that something must come down to be taken to fall, or how much further down it must go in each
/// step than in the one before (m): gravity takes a tenth of a metre of a step of 0.1 s.
const FALLS: f32 = 0.5;
const GRAVITY_M: f32 = 0.04;

/// How much of what the model says of each particle counts; its vectors are kept from one prediction to the next.
#[derive(Debug, Default)]
pub struct Fading {
    /// How much of a step's motion as the model predicts it the next one keeps, `[n]`.
    keeps: Vec<f32>,
    /// How far each goes until the end of the step at hand as the model has it (m), `[n]`; and how high in the first.
    ways: Vec<(Vec3, f32)>,
    /// Boxes (m) that the links of the robot sweep, now and in all steps that its plan tells of.
    swept: Vec<[Vec3; 2]>,
    /// Whether the robot may reach each body.
    reached: Vec<bool>,
}

impl Fading {
    /// Takes what the evidence of each particle of `scene` tells.
    pub fn begin(&mut self, scene: &RolloutInput) {
        let start = &scene.start;
        self.ways.clear();
        self.ways.resize(start.positions.len(), Default::default());
        self.keeps.clear();
        let keeps = scene.evidence.iter().map(|known| known.map_or(1.0, |known| known.keeps));
        self.keeps.extend(keeps.chain(std::iter::repeat(1.0)).take(start.positions.len()));
        self.sweep(scene);
        self.reached.clear();
        self.reached.resize(start.body_motions.len(), false);
        for ((p, &body), &keeps) in start.positions.iter().zip(&start.body_of).zip(&self.keeps) {
            let near = |[min, max]: &[Vec3; 2]| {
                (0..3).all(|k| min[k] - REACH_M < p[k] && p[k] < max[k] + REACH_M)
            };
            let reached = self.reached.get_mut(body as usize);
            if let Some(reached) = reached.filter(|is| !**is && keeps < 1.0) {
                *reached = self.swept.iter().any(near);
            }
        }
    }

    /// Finds the boxes that the links sweep, from now on: in all steps that are known, however few are predicted.
    fn sweep(&mut self, scene: &RolloutInput) {
        self.swept.clear();
        for row in scene.kinematic.iter().skip(1) {
            for (p, &link) in row.iter().zip(&scene.start.kinematic_links) {
                let link = link as usize;
                if link >= self.swept.len() {
                    self.swept.resize(link + 1, bounds(&[]));
                }
                let [min, max] = &mut self.swept[link];
                for k in 0..3 {
                    (min[k], max[k]) = (min[k].min(p[k]), max[k].max(p[k]));
                }
            }
        }
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
        let Some((so_far, first)) = self.ways.get_mut(i) else { return 1.0 };
        add(so_far, way);
        if step == 0 {
            *first = way[2];
        }
        let falls =
            so_far[2] < -FALLS * length(so_far) || way[2] < *first - GRAVITY_M * step as f32;
        let is_falling = class == Some(MotionClass::Flying) && falls;
        let is_reached = self.reached.get(body as usize).is_none_or(|is_reached| *is_reached);
        if is_falling || is_reached { 1.0 } else { self.keeps[i].powi(step as i32) }
    }
}
