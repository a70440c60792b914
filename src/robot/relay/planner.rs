//! All motions under way as one plan.

use std::collections::HashSet;

use super::motion::Motion;
use crate::message::{Header, JointTrajectory, Stamp, TrajectoryPoint};

/// The UUID of a goal.
pub type GoalId = [u8; 16];

/// Points of a plan at most. Longer ones are cut: the rest comes with the next message.
const MAX_PLAN_POINTS: usize = 4096;
/// Joints of a plan at most: those held longest are left out.
const MAX_PLAN_JOINTS: usize = 1024;
/// Latest time of a point (eleven days): what ROS has room for is not much longer.
const MAX_AHEAD_NANOS: i64 = 1_000_000_000_000_000;
/// Seconds between two plans while nothing changes: who subscribes late, or missed one, gets it then.
const REPEAT_SECS: f64 = 1.0;
/// Seconds between two plans while only the speed changes: a ramp comes as a hundred values a second,
/// and a frame keeps eight plans.
const SPEED_SECS: f64 = 0.1;
/// Speed scaling below which the robot counts as standing, and change that is worth a plan.
const SMALL_FACTOR: f64 = 0.005;
/// Largest speed scaling that is believed.
const MAX_FACTOR: f64 = 10.0;

/// What changed since the last plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Speed,
    Goals,
}

/// The goals under way, and the one plan that they make.
///
/// A plan names the joints of all active goals, and those of goals that ended while others go on,
/// which are held. Once none is active, one plan without points says so.
pub struct Planner {
    /// In the order of their starts.
    motions: Vec<Motion>,
    /// Speed scaling: 1 is the planned speed.
    factor: f64,
    change: Change,
    published: Option<Stamp>,
}

impl Default for Planner {
    fn default() -> Self {
        Self { motions: Vec::new(), factor: 1.0, change: Change::None, published: None }
    }
}

impl Planner {
    /// A controller starts on a goal, `None` if nothing is known of where it goes. What it did before
    /// ends. `is_scaled`: whether the robot's speed scaling counts for it.
    pub fn start(
        &mut self,
        controller: usize,
        goal: GoalId,
        trajectory: Option<JointTrajectory>,
        is_scaled: bool,
        now: Stamp,
    ) {
        self.advance(now);
        let before =
            |motion: &&mut Motion| motion.controller == controller && motion.goal.is_some();
        for motion in self.motions.iter_mut().filter(before) {
            motion.hold();
            self.change = Change::Goals;
        }
        if let Some(trajectory) = trajectory.filter(|trajectory| !trajectory.points.is_empty()) {
            self.motions.push(Motion::new(controller, goal, is_scaled, trajectory, now));
            self.change = Change::Goals;
        }
        self.forget_shadowed();
    }

    /// A goal ended, however it did, or is being cancelled: its joints stop where they are.
    pub fn end(&mut self, goal: &GoalId, now: Stamp) {
        self.advance(now);
        if let Some(motion) = self.motions.iter_mut().find(|m| m.goal.as_ref() == Some(goal)) {
            motion.hold();
            self.change = Change::Goals;
        }
    }

    /// All goals count as ended: nobody hears of them any more.
    pub fn end_all(&mut self, now: Stamp) {
        self.advance(now);
        for motion in self.motions.iter_mut().filter(|motion| motion.goal.is_some()) {
            motion.hold();
            self.change = Change::Goals;
        }
    }

    /// The robot runs at `factor` times the planned speed; below half a percent it stands. Whether
    /// that can be: it is a number from 0 to 10.
    pub fn set_speed(&mut self, factor: f64, now: Stamp) -> bool {
        if !(0.0..=MAX_FACTOR).contains(&factor) {
            return false;
        }
        let factor = if factor < SMALL_FACTOR { 0.0 } else { factor };
        let is_small = (factor - self.factor).abs() < SMALL_FACTOR;
        let is_whole = [0.0, 1.0].contains(&factor) && factor != self.factor;
        if !is_small || is_whole {
            self.advance(now);
            self.factor = factor;
            self.change = self.change.max_speed();
        }
        true
    }

    /// The plan to publish at `now`, if one is due: at once when a goal starts or ends, soon when the
    /// speed changes, and every second while a goal is active.
    pub fn due(&mut self, now: Stamp) -> Option<JointTrajectory> {
        if self.motions.is_empty() {
            self.change = Change::None;
            return None;
        }
        let since = self.published.map_or(f64::INFINITY, |then| now.secs_since(then).abs());
        let is_due = match self.change {
            Change::Goals => true,
            Change::Speed => since >= SPEED_SECS,
            Change::None => since >= REPEAT_SECS,
        };
        is_due.then(|| {
            self.advance(now);
            (self.change, self.published) = (Change::None, Some(now));
            let plan = self.merged(now);
            if plan.points.is_empty() {
                self.motions.clear();
            }
            plan
        })
    }

    fn advance(&mut self, now: Stamp) {
        for motion in &mut self.motions {
            motion.advance(now, if motion.is_scaled { self.factor } else { 1.0 });
        }
    }

    /// The motions, those that count for a joint before others that have it: active before held, new
    /// before old.
    fn by_rank(&self) -> impl Iterator<Item = (usize, &Motion)> {
        let of = |active: bool| {
            let motions = self.motions.iter().enumerate().rev();
            motions.filter(move |(_, motion)| motion.goal.is_some() == active)
        };
        of(true).chain(of(false))
    }

    /// Forgets held motions all of whose joints others have, and those that no plan has room for.
    fn forget_shadowed(&mut self) {
        let mut seen: HashSet<&str> = HashSet::new();
        let mut kept = vec![false; self.motions.len()];
        for (i, motion) in self.by_rank() {
            let n_before = seen.len();
            if motion.goal.is_none() && n_before + motion.joint_names().len() > MAX_PLAN_JOINTS {
                continue;
            }
            seen.extend(motion.joint_names().iter().map(String::as_str));
            kept[i] = motion.goal.is_some() || seen.len() > n_before;
        }
        let mut kept = kept.into_iter();
        self.motions.retain(|_| kept.next().unwrap_or(true));
    }

    /// The plan from `now` on, to which all motions have come.
    fn merged(&self, now: Stamp) -> JointTrajectory {
        // Joints, and of each motion with some of them, which columns those are.
        let mut joint_names: Vec<String> = Vec::new();
        let mut parts: Vec<(&Motion, f64, Vec<usize>)> = Vec::new();
        let mut seen: HashSet<&str> = HashSet::new();
        for (_, motion) in self.by_rank() {
            let names = motion.joint_names().iter().enumerate();
            let own: Vec<usize> =
                names.filter(|(_, name)| seen.insert(name)).map(|(i, _)| i).collect();
            parts.push((motion, if motion.is_scaled { self.factor } else { 1.0 }, own));
        }
        // The same order from plan to plan.
        parts.sort_by_key(|(motion, ..)| motion.controller);
        for (motion, _, own) in &parts {
            joint_names.extend(own.iter().filter_map(|&i| motion.joint_names().get(i)).cloned());
        }
        let header = Header { stamp: now, ..Header::default() };
        if parts.iter().all(|(motion, ..)| motion.goal.is_none()) {
            return JointTrajectory { header, joint_names, points: Vec::new() };
        }
        let points = ahead(&parts).into_iter().map(|nanos| {
            let (mut positions, mut all) = (Vec::with_capacity(joint_names.len()), Vec::new());
            for (motion, factor, own) in &parts {
                all.clear();
                motion.positions_at(nanos, *factor, &mut all);
                positions.extend(own.iter().filter_map(|&i| all.get(i)));
            }
            TrajectoryPoint { positions, time_from_start_nanos: nanos }
        });
        JointTrajectory { header, points: points.collect(), joint_names }
    }
}

impl Change {
    fn max_speed(self) -> Self {
        if self == Self::Goals { Self::Goals } else { Self::Speed }
    }
}

/// Nanoseconds from now of the points of all parts, ascending, with now itself.
fn ahead(parts: &[(&Motion, f64, Vec<usize>)]) -> Vec<i64> {
    let mut ahead = vec![0];
    for (motion, factor, _) in parts {
        let times = motion.points_ahead(*factor).take(MAX_PLAN_POINTS);
        ahead.extend(times.map(|nanos| nanos.clamp(1, MAX_AHEAD_NANOS)));
    }
    ahead.sort_unstable();
    ahead.dedup();
    ahead.truncate(MAX_PLAN_POINTS);
    ahead
}
