//! What a plan costs: goals, and predictions that are held against them. Pure functions in f64, every
//! sum in one order: the same prediction costs the same everywhere, to the bit.

mod goal;
mod reach;
mod spread;
#[cfg(test)]
mod tests;

use crate::base::geometry::Vec3;
use crate::robot::kinematics::NO_LINK;
use crate::vision::cloud::Workspace;
use crate::{Error, Result};

pub use goal::{Goal, MAX_CLOUD, MAX_KEEP_OUT, Mask, Reach, Select, Zone};
use reach::Aim;
use spread::{N_DRAWS, expected, offset, sigma, with_way};

/// What one plan would cost, term by term, each before its weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct PlanCost {
    /// The weighted sum.
    pub cost: f64,
    /// Half the width of the interval in which 90 % of such costs lie, by the prediction's sigma and a share
    /// of the target's way; 0 where the model does not tell.
    pub cost_90: f64,
    /// Distance of the target from where it is to be after the last step (m), as predicted.
    pub reach: f64,
    /// Mean over the steps of how deep something is in a box that nothing may enter (m).
    pub keep_out: f64,
    /// Mean displacement, and kappa times its sigma, of the tenth of everything else that moves most (m).
    pub leave: f64,
    /// Metres short of the wanted clearance in the worst step.
    pub clearance: f64,
    /// Root mean square of how far `reach` may be off, by the prediction's sigma (m).
    pub reach_sigma: f64,
    /// Probability that `reach` ends within the tolerance, by that; NaN where the model does not tell.
    pub success_probability: f64,
    /// Path length of the joints over the steps (rad or m).
    pub length: f64,
    /// Mean square of the joints' accelerations (rad²/s⁴ or m²/s⁴).
    pub smoothness: f64,
}

impl PlanCost {
    /// Of a plan that was not looked at.
    pub const UNKNOWN: Self = Self {
        cost: f64::INFINITY,
        cost_90: 0.0,
        reach: f64::INFINITY,
        keep_out: 0.0,
        leave: 0.0,
        clearance: 0.0,
        reach_sigma: 0.0,
        success_probability: f64::NAN,
        length: 0.0,
        smoothness: 0.0,
    };
}

/// What a goal's selection is looked for in: the particles of a frame, `[n]` each.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// Places (world frame, m).
    pub positions: &'a [Vec3],
    /// Where each was seen: camera << 24 | pixel.
    pub sources: &'a [u32],
    /// Width and height of each camera's depth image; none of cameras that are not there or send clouds.
    pub image_sizes: &'a [Option<[u32; 2]>],
    /// Number of the body of each; empty where not known.
    pub body_of: &'a [u32],
    /// Link of the robot that each lies on; empty where not known.
    pub on_links: &'a [u32],
    /// Box of the particles (world frame, m).
    pub workspace: &'a Workspace,
}

/// What a plan leads to: a roll-out.
#[derive(Debug, Clone, Copy)]
pub struct Consequence<'a> {
    /// Displacements of the particles in each step (m), `[n_steps][n]`.
    pub displacements: &'a [Vec<Vec3>],
    /// Radii that half, and 90 %, of the errors after each step lie within (m), `[n_steps][n]`; empty of
    /// models that don't tell.
    pub radii: [&'a [Vec<f32>]; 2],
    /// Points on the robot after each step (world frame, m), `[n_steps or more][n_robot]`.
    pub robot: &'a [Vec<Vec3>],
    /// Link of each of them, ascending.
    pub links: &'a [u32],
    /// Joints now and after each step (rad or m), `[n_joints]` each.
    pub joints: &'a [Vec<f64>],
    /// Their velocities now (rad/s or m/s).
    pub joint_velocities: &'a [f64],
    /// Seconds a step.
    pub step_secs: f64,
    /// Steps before the first of `displacements` in which nothing moves but the robot.
    pub lead: usize,
}

/// A goal in a frame: which particles are the target, and where they are to be.
#[derive(Debug, Clone)]
pub struct Judge {
    goal: Goal,
    /// Where all particles are (m).
    start: Vec<[f64; 3]>,
    /// The target, and everything else that is not the robot.
    target: Vec<u32>,
    others: Vec<u32>,
    aim: Aim,
    reach_now: f64,
}

impl Judge {
    /// Finds the target of `goal` in a frame.
    ///
    /// # Errors
    /// [`Error::Goal`] names the field, what is wrong and the remedy: numbers that are not finite or
    /// make no sense, an empty selection, a goal outside of the workspace.
    pub fn new(goal: &Goal, sight: &Sight) -> Result<Self> {
        goal.validate()?;
        Self::of_target(goal, sight, &goal.select.of(sight)?)
    }

    /// As [`Self::new`], of a valid goal whose target is known: `is_target` of each particle.
    ///
    /// # Errors
    /// [`Error::Goal`] without a target, and for a goal outside of the workspace.
    pub(crate) fn of_target(goal: &Goal, sight: &Sight, is_target: &[bool]) -> Result<Self> {
        if !is_target.contains(&true) {
            return goal::refused(
                "select",
                "none of the particles is the target's: take more of them",
            );
        }
        let is_robot = |i: usize| sight.on_links.get(i).is_some_and(|&link| link != NO_LINK);
        let of = |wanted: bool| -> Vec<u32> {
            let all = (0..sight.positions.len()).filter(|&i| is_target[i] == wanted);
            all.filter(|&i| wanted || !is_robot(i)).map(|i| i as u32).collect()
        };
        let start: Vec<[f64; 3]> = sight.positions.iter().map(|p| p.map(f64::from)).collect();
        let target = of(true);
        let places: Vec<[f64; 3]> = target.iter().map(|&i| start[i as usize]).collect();
        let aim = Aim::new(&goal.reach, &places, sight.workspace)?;
        let reach_now = aim.distance(&places);
        Ok(Self { goal: goal.clone(), start, others: of(false), target, aim, reach_now })
    }

    /// The goal.
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// Distance of the target from where it is to be, now (m).
    pub fn reach_now(&self) -> f64 {
        self.reach_now
    }

    /// Whether the target is where it is to be already.
    pub fn is_reached(&self) -> bool {
        self.reach_now <= self.goal.tolerance
    }

    /// The target's particles, by their numbers, ascending.
    pub fn target(&self) -> &[u32] {
        &self.target
    }

    /// Where the target's particles are now (world frame, m).
    pub fn target_places(&self) -> Vec<[f64; 3]> {
        self.target.iter().map(|&i| self.start[i as usize]).collect()
    }

    /// Where everything else is that is not the robot (world frame, m).
    pub fn other_places(&self) -> impl Iterator<Item = [f64; 3]> {
        self.others.iter().map(|&i| self.start[i as usize])
    }

    /// Where a particle of the target at `p` is wanted, as far as the goal tells (m).
    pub fn wanted(&self, p: &[f64; 3]) -> [f64; 3] {
        self.aim.wanted(p)
    }

    /// What a plan costs that leads to `consequence`.
    ///
    /// # Errors
    /// [`Error::Shape`] for other numbers of particles, steps or joints.
    pub fn cost(&self, consequence: &Consequence) -> Result<PlanCost> {
        self.check(consequence)?;
        let goal = &self.goal;
        let end = self.end(consequence);
        let places: Vec<[f64; 3]> = self.target.iter().map(|&i| end[i as usize]).collect();
        let reach = self.aim.distance(&places);
        let last = consequence.displacements.len().saturating_sub(1);
        let radii = consequence.radii.map(|radii| radii.get(last).map(Vec::as_slice));
        let spread = match radii {
            [Some(half), Some(most)] => Some(self.reach_spread(&places, reach, half, most)),
            _ => None,
        };
        let (reach_sigma, reach_90, success_probability) = spread.unwrap_or((0.0, 0.0, f64::NAN));
        let keep_out = self.keep_out(consequence);
        let leave = self.leave(&end, radii);
        let clearance = self.clearance(consequence);
        let (length, smoothness) = motion(consequence);
        let cost = goal.reach_weight * (reach + goal.kappa * reach_sigma)
            + goal.keep_out_weight * keep_out
            + goal.leave_weight * leave
            + goal.clearance_weight * clearance
            + goal.length_weight * length
            + goal.smoothness_weight * smoothness;
        Ok(PlanCost {
            cost,
            cost_90: goal.reach_weight * reach_90,
            reach,
            keep_out,
            leave,
            clearance,
            reach_sigma,
            success_probability,
            length,
            smoothness,
        })
    }

    fn check(&self, consequence: &Consequence) -> Result<()> {
        let n = self.start.len();
        let steps = consequence.displacements.len();
        let shape = |what, expected, got| Err(Error::Shape { what, expected, got });
        let radii = consequence.radii.iter().flat_map(|radii| radii.iter().map(Vec::len));
        let lengths = consequence.displacements.iter().map(Vec::len).chain(radii);
        if let Some(got) = lengths.into_iter().find(|&got| got != n) {
            return shape("particles of a step", n, got);
        }
        if consequence.robot.len() < steps {
            return shape("rows of the robot's points", steps, consequence.robot.len());
        }
        if let Some(row) = consequence.robot.iter().find(|r| r.len() != consequence.links.len()) {
            return shape("points on the robot", consequence.links.len(), row.len());
        }
        let n_joints = consequence.joint_velocities.len();
        match consequence.joints.iter().find(|row| row.len() != n_joints) {
            Some(row) => shape("joints of a step", n_joints, row.len()),
            None => Ok(()),
        }
    }

    /// Where all particles are after the last step (m).
    fn end(&self, consequence: &Consequence) -> Vec<[f64; 3]> {
        let mut end = self.start.clone();
        for step in consequence.displacements {
            move_by(&mut end, step);
        }
        end
    }

    /// Root mean square error of `reach`, what 90 % of its errors lie within, and the probability of
    /// success. Errors of one thing's particles go one way: all are moved in the same direction, by what
    /// the prediction tells and by what the way that they are to go adds, of which a part is expected to be
    /// missing (see `spread`).
    fn reach_spread(
        &self,
        places: &[[f64; 3]],
        reach: f64,
        half: &[f32],
        most: &[f32],
    ) -> (f64, f64, f64) {
        let mut off = Vec::with_capacity(N_DRAWS);
        let (mut squares, mut n_good) = (0.0, 0);
        let spread = places.iter().zip(&self.target).map(|(place, &i)| {
            let (start, i) = (&self.start[i as usize], i as usize);
            let radii = [half[i].into(), most[i].into()];
            (expected(start, place), with_way(radii, goal::distance(place, start)))
        });
        let spread: Vec<([f64; 3], [f64; 2])> = spread.collect();
        let mut moved = places.to_vec();
        for draw in 0..N_DRAWS {
            for (to, (there, [half, most])) in moved.iter_mut().zip(&spread) {
                let by = offset(draw, *half, *most);
                *to = std::array::from_fn(|axis| there[axis] + by[axis]);
            }
            let drawn = self.aim.distance(&moved);
            n_good += usize::from(drawn <= self.goal.tolerance);
            squares += (drawn - reach) * (drawn - reach);
            off.push((drawn - reach).abs());
        }
        off.sort_by(f64::total_cmp);
        let within = off[(0.9 * N_DRAWS as f64).ceil() as usize - 1];
        ((squares / N_DRAWS as f64).sqrt(), within, n_good as f64 / N_DRAWS as f64)
    }

    fn keep_out(&self, consequence: &Consequence) -> f64 {
        let zones = &self.goal.keep_out;
        let n_steps = consequence.lead + consequence.displacements.len();
        if zones.is_empty() || n_steps == 0 {
            return 0.0;
        }
        let all = || self.target.iter().chain(&self.others).map(|&i| i as usize);
        let before: Vec<Vec<f64>> =
            zones.iter().map(|zone| self.start.iter().map(|p| zone.depth(p)).collect()).collect();
        let (mut places, mut sum) = (self.start.clone(), 0.0);
        for step in consequence.displacements {
            move_by(&mut places, step);
            // What was in a box at the start is no intruder unless it goes deeper.
            let deepest = zones.iter().zip(&before).map(|(zone, before)| {
                all().map(|i| zone.depth(&places[i]) - before[i]).fold(0.0, f64::max)
            });
            sum += deepest.fold(0.0, f64::max);
        }
        sum / n_steps as f64
    }

    fn leave(&self, end: &[[f64; 3]], radii: [Option<&[f32]>; 2]) -> f64 {
        if self.others.is_empty() {
            return 0.0;
        }
        let kappa = self.goal.kappa;
        let mut moved: Vec<f64> = self
            .others
            .iter()
            .map(|&i| i as usize)
            .map(|i| {
                let [half, most] = radii.map(|radii| radii.map_or(0.0, |radii| radii[i].into()));
                let sigma = sigma(half, most);
                goal::distance(&end[i], &self.start[i]) + kappa * sigma
            })
            .collect();
        moved.sort_by(|a, b| b.total_cmp(a));
        let worst = &moved[..moved.len().div_ceil(10)];
        worst.iter().sum::<f64>() / worst.len() as f64
    }

    fn clearance(&self, consequence: &Consequence) -> f64 {
        let wanted = self.goal.clearance;
        if self.goal.clearance_weight == 0.0 || consequence.links.is_empty() {
            return 0.0;
        }
        let (mut places, mut worst) = (self.start.clone(), 0.0);
        for (step, row) in consequence.displacements.iter().zip(consequence.robot) {
            move_by(&mut places, step);
            let mut from = 0;
            while let Some(link) = consequence.links.get(from) {
                let to = from + consequence.links[from..].partition_point(|other| other <= link);
                let points: Vec<[f64; 3]> =
                    row[from..to].iter().map(|p| p.map(f64::from)).collect();
                let near = Zone::around(&points).grown(wanted);
                let others = self.others.iter().map(|&i| &places[i as usize]);
                for other in others.filter(|p| near.contains(p)) {
                    let nearest = points.iter().map(|p| goal::distance(p, other));
                    worst = f64::max(worst, wanted - nearest.fold(f64::INFINITY, f64::min));
                }
                from = to;
            }
        }
        worst
    }
}

fn move_by(places: &mut [[f64; 3]], step: &[Vec3]) {
    for (p, d) in places.iter_mut().zip(step) {
        p.iter_mut().zip(d).for_each(|(x, d)| *x += f64::from(*d));
    }
}

/// Path length, and mean square of the accelerations, of the joints.
fn motion(consequence: &Consequence) -> (f64, f64) {
    let &Consequence { joints, joint_velocities, step_secs, .. } = consequence;
    let (mut length, mut squares, mut n) = (0.0, 0.0, 0);
    let mut velocities = joint_velocities.to_vec();
    for pair in joints.windows(2) {
        let mut way = 0.0;
        for (j, velocity) in velocities.iter_mut().enumerate() {
            let moved = pair[1][j] - pair[0][j];
            way += moved * moved;
            let next = moved / step_secs;
            let acceleration = (next - *velocity) / step_secs;
            squares += acceleration * acceleration;
            n += 1;
            *velocity = next;
        }
        length += way.sqrt();
    }
    (length, if n == 0 { 0.0 } else { squares / f64::from(n) })
}
