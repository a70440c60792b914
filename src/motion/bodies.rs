//! Bodies: which particles move as one, guessed from nearness, colour and motion, without a model of
//! any object; how each body moves, and what its particles are told of it.

use crate::graph::nearest::Nearest;
use crate::rigid::RigidMotion;

use super::grid::Grid;
use super::{Vec3, dot, minus, plus};

/// What a particle is told of its body, see [`Bodies::describe`].
pub const N_BODY_FEATURES: usize = 17;

/// Particles nearer than this belong together (m), if they look alike or move alike.
const REACH_M: f32 = 0.04;
/// Colours (0..1) that differ by less in each channel look alike.
const ALIKE: f32 = 0.12;
/// Motions that differ by less than this (m), or this share of the faster one, are alike.
const SAME_MOTION: (f32, f32) = (0.004, 0.15);
/// What is this near to the robot (m) is of the robot, and links no body to it.
const ROBOT_M: f32 = 0.012;
/// What is not this far above the support plane (m) is of the support.
const SUPPORT_M: f32 = 0.008;
/// Particles that bodies are made of at most; any others follow the nearest of these.
const MAX_ANCHORS: usize = 1024;
/// Bodies of fewer anchors are not fitted: each of their particles keeps its own motion.
const MIN_FIT: usize = 4;
/// Rounds of the robust fit, and the error (m) from which on it counts an anchor less.
const ROUNDS: usize = 5;
const SOFT_M: f32 = 0.002;

/// Scales of the features.
const MOTION_SCALE_M: f32 = 0.05;
const EXTENT_SCALE_M: f32 = 0.05;
const HEIGHT_SCALE_M: f32 = 0.25;
const NEARNESS_M: f32 = 0.03;

/// Groups particles into bodies, keeping its memory between calls.
#[derive(Debug, Default, Clone)]
pub(super) struct Bodies {
    grid: Grid,
    robot: Nearest,
    /// Particles that may belong to a body, and how far each is from the robot (m).
    free: Vec<u32>,
    nearest: Vec<u32>,
    distances: Vec<f32>,
    /// Of the anchors: their particle, and the tree of the union.
    anchors: Vec<Anchor>,
    parents: Vec<u32>,
    /// Anchors by body, and where each body's begin.
    members: Vec<u32>,
    starts: Vec<u32>,
    bodies: Vec<Body>,
    from: Vec<Vec3>,
    to: Vec<Vec3>,
    weights: Vec<f32>,
    scratch: [Vec<Vec3>; 2],
    features: Vec<[f32; N_BODY_FEATURES]>,
}

/// A particle that bodies are made of.
#[derive(Debug, Default, Clone, Copy)]
struct Anchor {
    position: Vec3,
    color: Vec3,
    motion: Vec3,
    onward: Vec3,
    confidence: f32,
    robot_m: f32,
    body: u32,
}

/// What is known of a body.
#[derive(Debug, Clone, Copy)]
struct Body {
    /// Its motion in the next step, if it goes on; none of small ones.
    onward: Option<RigidMotion>,
    center: Vec3,
    /// Standard deviation of its points along the axes (m).
    extent: Vec3,
    lowest_m: f32,
    /// Distance from the robot, and the share of it that is near.
    robot_m: f32,
    near_share: f32,
}

/// Particles with their motions, as [`super::MotionEstimator::estimate`] has found them.
pub(super) struct Moving<'a> {
    pub positions: &'a [Vec3],
    pub colors: &'a [Vec3],
    pub motions: &'a [Vec3],
    pub confidences: &'a [f32],
    pub support_m: Option<f32>,
}

impl Bodies {
    /// Forgets all bodies: none of `n` particles belongs to one.
    pub(super) fn clear(&mut self, n: usize) {
        self.features.clear();
        self.features.resize(n, [0.0; N_BODY_FEATURES]);
    }

    /// Finds the bodies of `particles`, and gives those of each body one rigid motion `onward`.
    pub(super) fn find(&mut self, particles: &Moving, robot: &[Vec3], onward: &mut [Vec3]) {
        self.clear(particles.positions.len());
        self.choose(particles, robot, onward);
        if self.anchors.is_empty() {
            return;
        }
        self.link();
        self.sort();
        self.fit();
        for j in 0..self.free.len() {
            let i = self.free[j] as usize;
            let (p, color) = (&particles.positions[i], &particles.colors[i]);
            let Some(body) = self.body_of(p, color) else { continue };
            if let Some(motion) = &self.bodies[body].onward {
                onward[i] = motion.motion_of(p);
            }
            self.features[i] = self.bodies[body].describe(p, &onward[i], particles.support_m);
        }
    }

    /// What each particle of the last call is told of its body; zeros for those of none.
    pub(super) fn features(&self) -> &[[f32; N_BODY_FEATURES]] {
        &self.features
    }

    /// Chooses the free particles, and the anchors among them.
    fn choose(&mut self, particles: &Moving, robot: &[Vec3], onward: &[Vec3]) {
        let positions = particles.positions;
        let is_raised = |p: &Vec3| particles.support_m.is_none_or(|height| p[2] > height + SUPPORT_M);
        self.free.clear();
        self.free.extend((0..positions.len() as u32).filter(|&i| is_raised(&positions[i as usize])));
        self.nearest.clear();
        self.nearest.resize(self.free.len(), 0);
        self.robot.rebuild(robot);
        let queries = self.free.iter().map(|&i| &positions[i as usize]);
        self.robot.find(self.nearest.iter_mut().zip(queries));
        self.distances.clear();
        self.distances.extend(self.free.iter().zip(&self.nearest).map(|(&i, &nearest)| {
            let Some(point) = robot.get(nearest as usize) else { return f32::INFINITY };
            let d = minus(&positions[i as usize], point);
            dot(&d, &d).sqrt()
        }));
        let mut j = 0;
        self.free.retain(|_| {
            j += 1;
            self.distances[j - 1] > ROBOT_M
        });
        self.distances.retain(|&distance| distance > ROBOT_M);
        let stride = self.free.len().div_ceil(MAX_ANCHORS).max(1);
        self.anchors.clear();
        let chosen = self.free.iter().zip(&self.distances).step_by(stride);
        self.anchors.extend(chosen.map(|(&i, &robot_m)| {
            let i = i as usize;
            Anchor {
                position: positions[i],
                color: particles.colors[i],
                motion: particles.motions[i],
                onward: onward[i],
                confidence: particles.confidences[i],
                robot_m,
                body: 0,
            }
        }));
        self.scratch.iter_mut().for_each(Vec::clear);
        self.scratch[0].extend(self.anchors.iter().map(|anchor| anchor.position));
        self.scratch[1].extend(self.anchors.iter().map(|anchor| anchor.color));
        self.grid.rebuild(&self.scratch[0], &self.scratch[1], REACH_M);
    }

    /// Joins the anchors that belong together.
    fn link(&mut self) {
        let Self { grid, anchors, parents, .. } = self;
        parents.clear();
        parents.extend(0..anchors.len() as u32);
        for (i, anchor) in anchors.iter().enumerate() {
            grid.near(&anchor.position, REACH_M, |place| {
                let j = grid.order()[place] as usize;
                if j < i && anchor.belongs_with(&anchors[j]) {
                    let (a, b) = (root(parents, i as u32), root(parents, j as u32));
                    // The earlier one: the result does not depend on the order of joining.
                    parents[a.max(b) as usize] = a.min(b);
                }
            });
        }
    }

    /// Numbers the bodies, and sorts the anchors by body.
    fn sort(&mut self) {
        let Self { anchors, parents, members, starts, .. } = self;
        starts.clear();
        // Roots come first of their bodies.
        for i in 0..anchors.len() as u32 {
            let root = root(parents, i);
            if root == i {
                anchors[i as usize].body = starts.len() as u32;
                starts.push(0);
            } else {
                anchors[i as usize].body = anchors[root as usize].body;
            }
            starts[anchors[i as usize].body as usize] += 1;
        }
        let mut sum = 0;
        for start in starts.iter_mut() {
            sum += std::mem::replace(start, sum);
        }
        members.clear();
        members.resize(anchors.len(), 0);
        for (i, anchor) in anchors.iter().enumerate() {
            let at = &mut starts[anchor.body as usize];
            members[*at as usize] = i as u32;
            *at += 1;
        }
        // Each now is where the next one begins.
        starts.rotate_right(1);
        starts[0] = 0;
        starts.push(anchors.len() as u32);
    }

    /// Fits each body's motion, and measures it.
    fn fit(&mut self) {
        let Self { anchors, members, starts, bodies, from, to, weights, .. } = self;
        bodies.clear();
        for ends in starts.windows(2) {
            let members = &members[ends[0] as usize..ends[1] as usize];
            let of_body = || members.iter().map(|&i| &anchors[i as usize]);
            from.clear();
            from.extend(of_body().map(|anchor| anchor.position));
            let onward = (members.len() >= MIN_FIT).then(|| {
                to.clear();
                to.extend(of_body().map(|anchor| plus(&anchor.position, &anchor.onward)));
                weights.clear();
                weights.extend(of_body().map(|anchor| anchor.confidence + 1e-3));
                let mut motion = RigidMotion::fit_weighted(from, to, |i| weights[i]);
                for _ in 1..ROUNDS {
                    // Least distances by reweighted least squares (Weiszfeld 1937).
                    for ((weight, anchor), p) in weights.iter_mut().zip(of_body()).zip(&*from) {
                        let error = minus(&motion.motion_of(p), &anchor.onward);
                        *weight = (anchor.confidence + 1e-3) / (dot(&error, &error).sqrt() + SOFT_M);
                    }
                    motion = RigidMotion::fit_weighted(from, to, |i| weights[i]);
                }
                motion
            });
            let n = members.len() as f32;
            let mean = |f: &dyn Fn(&Vec3) -> f32| from.iter().map(f).sum::<f32>() / n;
            let center: Vec3 = std::array::from_fn(|axis| mean(&|p| p[axis]));
            let variance = |axis: usize| mean(&|p| (p[axis] - center[axis]).powi(2));
            let near = of_body().filter(|anchor| anchor.robot_m < NEARNESS_M).count();
            let least = |f: fn(&Anchor) -> f32| of_body().map(f).fold(f32::INFINITY, f32::min);
            bodies.push(Body {
                onward,
                center,
                extent: std::array::from_fn(|axis| variance(axis).sqrt()),
                lowest_m: least(|anchor| anchor.position[2]),
                robot_m: least(|anchor| anchor.robot_m),
                near_share: near as f32 / n,
            });
        }
    }

    /// The body of a free particle: that of the anchor nearest in place and colour; none beyond
    /// their reach.
    fn body_of(&self, p: &Vec3, color: &Vec3) -> Option<usize> {
        let mut best = (f32::INFINITY, None);
        self.grid.near(p, REACH_M, |place| {
            let anchor = &self.anchors[self.grid.order()[place] as usize];
            let (d, c) = (minus(&anchor.position, p), minus(&anchor.color, color));
            let distance = dot(&d, &d) / (REACH_M * REACH_M) + dot(&c, &c) / (ALIKE * ALIKE);
            if distance < best.0 {
                best = (distance, Some(anchor.body as usize));
            }
        });
        best.1
    }
}

impl Anchor {
    fn belongs_with(&self, other: &Self) -> bool {
        let looks = minus(&self.color, &other.color);
        if looks.iter().all(|c| c.abs() < ALIKE) {
            return true;
        }
        let d = minus(&self.motion, &other.motion);
        let squared = |v: &Vec3| dot(v, v);
        let faster = squared(&self.motion).max(squared(&other.motion)).sqrt();
        squared(&d).sqrt() < SAME_MOTION.0 + SAME_MOTION.1 * faster
    }
}

impl Body {
    /// What its particle at `p`, whose motion goes on as `onward`, is told: that motion; the motion of
    /// the body's centre; how near its lowest point is to the support (1 touches it), and how high the
    /// particle is above it, 0 where there is none; how near the body is to the robot, and which share
    /// of it; its extent; where the particle is in it; 1.
    fn describe(&self, p: &Vec3, onward: &Vec3, support_m: Option<f32>) -> [f32; N_BODY_FEATURES] {
        let mut features = [0.0; N_BODY_FEATURES];
        let center = self.onward.map_or(*onward, |motion| motion.motion_of(&self.center));
        let arm = minus(p, &self.center);
        for axis in 0..3 {
            features[axis] = onward[axis] / MOTION_SCALE_M;
            features[3 + axis] = center[axis] / MOTION_SCALE_M;
            features[10 + axis] = self.extent[axis] / EXTENT_SCALE_M;
            features[13 + axis] = arm[axis] / EXTENT_SCALE_M;
        }
        if let Some(height) = support_m {
            features[6] = (-(self.lowest_m - height).max(0.0) / NEARNESS_M).exp();
            features[7] = (p[2] - height) / HEIGHT_SCALE_M;
        }
        features[8] = (-self.robot_m / NEARNESS_M).exp();
        features[9] = self.near_share;
        features[16] = 1.0;
        features
    }
}

/// The root of `i`'s tree; halves the way to it.
fn root(parents: &mut [u32], mut i: u32) -> u32 {
    while parents[i as usize] != i {
        parents[i as usize] = parents[parents[i as usize] as usize];
        i = parents[i as usize];
    }
    i
}
