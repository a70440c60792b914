//! Whether the robot can go a way: it must not touch itself, what things stand on, the goal's boxes, or,
//! before it may, anything that the cameras see.
//!
//! It is looked at by the points on its moving links, which lie a centimetre or more apart, at places
//! along the way: what no camera sees and no box tells of, links that no joint moves (the base), and
//! edges between two points are not seen.

use super::motion::Situation;
use super::path::Path;
use crate::base::geometry::{Vec3, squared_distance};
use crate::planner::candidates::{Seen, Snapshot};
use crate::planner::costs::{Judge, Zone};
use crate::robot::kinematics::Robot;

/// Way of any joint between two looks (rad or m).
const LOOK: f64 = 0.08;
/// Height above what things stand on that the robot keeps (m).
const ABOVE_M: f32 = 0.004;
/// Clearance of its links to each other (m).
const APART_M: f32 = 0.015;

/// What the robot may run into.
pub(super) struct Surroundings {
    floor: Option<f32>,
    zones: Vec<Zone>,
    seen: Seen,
    /// Points of each link with its number.
    runs: Vec<std::ops::Range<usize>>,
    /// Pairs of links that could touch.
    pairs: Vec<[usize; 2]>,
    /// Points of the robot that stand in something now: they are let out.
    inside: Vec<bool>,
}

impl Surroundings {
    /// What is there in a frame.
    pub fn new(snapshot: &Snapshot, judge: &Judge, situation: &Situation) -> Self {
        let floor = situation.floor().map(|z| z as f32);
        let mut this = Self {
            floor,
            zones: judge.goal().keep_out.clone(),
            seen: Seen::default(),
            runs: Vec::new(),
            pairs: Vec::new(),
            inside: Vec::new(),
        };
        let places = judge.other_places().chain(judge.target_places());
        this.seen = Seen::new(places.map(|p| p.map(|x| x as f32)), floor);
        let Ok(robot) = snapshot.robot() else { return this };
        let mut robot = Robot::clone(robot);
        let mut now = Vec::new();
        let is_placed = snapshot.robot_forecast.mount(&mut robot).is_ok()
            && robot.place(situation.joints(), &mut now).is_ok();
        if !is_placed {
            return this;
        }
        this.inside = now.iter().map(|p| this.touches(p)).collect();
        let mut at = 0;
        let mut nodes = Vec::new();
        for (node, points) in robot.surfaces() {
            nodes.push(node);
            this.runs.push(at..at + points.len());
            at += points.len();
        }
        for a in 0..nodes.len() {
            for b in a + 1..nodes.len() {
                let is_near = this.nearest(&now, [a, b], 2.0 * APART_M);
                if !are_joined(&robot, nodes[a], nodes[b]) && !is_near {
                    this.pairs.push([a, b]);
                }
            }
        }
        this
    }

    /// Whether `robot` can go a way; else why not. Moves it about.
    pub fn check(&self, robot: &mut Robot, path: &Path) -> std::result::Result<(), &'static str> {
        let mut points = Vec::new();
        for pair in path.points.windows(2) {
            let ((from, a), (to, b)) = (&pair[0], &pair[1]);
            let far = a.iter().zip(b).map(|(a, b)| (b - a).abs()).fold(0.0, f64::max);
            let n = (far / LOOK).ceil().max(1.0);
            for i in 1..=n as usize {
                let share = i as f64 / n;
                let joints: Vec<f64> = a.iter().zip(b).map(|(a, b)| a + share * (b - a)).collect();
                robot.place(&joints, &mut points).map_err(|_| "at joints that can't be placed")?;
                let secs = from + share * (to - from);
                self.look(&points, secs <= path.free_until + 1e-9)?;
            }
        }
        Ok(())
    }

    fn look(&self, points: &[Vec3], is_free: bool) -> std::result::Result<(), &'static str> {
        let outside = || points.iter().zip(&self.inside).filter(|(_, inside)| !**inside);
        if let Some(floor) = self.floor
            && outside().any(|(p, _)| p[2] < floor + ABOVE_M)
        {
            return Err("into what things stand on");
        }
        let in_zone = |p: &Vec3| {
            let p = p.map(f64::from);
            self.zones.iter().any(|zone| zone.contains(&p))
        };
        if !self.zones.is_empty() && outside().any(|(p, _)| in_zone(p)) {
            return Err("into a keep-out box");
        }
        if is_free && outside().any(|(p, _)| self.seen.is_near(p)) {
            return Err("into things on the way");
        }
        match self.pairs.iter().any(|&pair| self.nearest(points, pair, APART_M)) {
            true => Err("into the robot itself"),
            false => Ok(()),
        }
    }

    /// Whether a point of the robot stands in something.
    fn touches(&self, p: &Vec3) -> bool {
        self.floor.is_some_and(|floor| p[2] < floor + ABOVE_M)
            || self.zones.iter().any(|zone| zone.contains(&p.map(f64::from)))
            || self.seen.is_near(p)
    }

    /// Whether two links come nearer to each other than `apart` (m).
    fn nearest(&self, points: &[Vec3], pair: [usize; 2], apart: f32) -> bool {
        let [a, b] = pair.map(|run| &points[self.runs[run].clone()]);
        let bounds = |points: &[Vec3]| Zone::around_points(points).grown(f64::from(apart));
        let near_b = bounds(b);
        let candidates: Vec<&Vec3> =
            a.iter().filter(|p| near_b.contains(&p.map(f64::from))).collect();
        if candidates.is_empty() {
            return false;
        }
        let near_a = bounds(a);
        let others: Vec<&Vec3> = b.iter().filter(|p| near_a.contains(&p.map(f64::from))).collect();
        candidates.iter().any(|p| others.iter().any(|q| squared_distance(p, q) < apart * apart))
    }
}

/// Whether one of two links hangs on the other, with at most one link between, or both on one.
fn are_joined(robot: &Robot, a: usize, b: usize) -> bool {
    let line = |link: usize| {
        let parent = robot.parent_of(link);
        [link, parent, robot.parent_of(parent)]
    };
    let (of_a, of_b) = (line(a), line(b));
    of_a.contains(&b) || of_b.contains(&a) || (of_a[1] == of_b[1] && of_a[1] != 0)
}
