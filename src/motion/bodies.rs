//! Bodies: which particles move as one, guessed from nearness, colour and motion, without a model of
//! any object; how each body moves, and what its particles are told of it.

use crate::graph::nearest::Nearest;
use crate::particles::SUPPORT_M;
use crate::rigid::RigidMotion;

use super::forest::Forest;
use super::grid::Grid;
use super::{Vec3, dot, minus, plus};

/// Numbers that a particle is told of its body, world frame, in this order: its own motion in the next
/// step if the body goes on, and that of the body's centre (3 each, of 5 cm); exp(-c / 3 cm) of the
/// body's clearance c above the support plane, and the particle's height above it (of 25 cm), 0 where
/// there is none; exp(-d / 3 cm) of the body's distance d from the robot, and the share of it within
/// 3 cm; its standard deviation along the axes, and where the particle is from its centre (3 each, of
/// 5 cm); 1.
pub const N_BODY_FEATURES: usize = 17;

/// Particles nearer than this belong together (m), if they look alike or move alike.
const REACH_M: f32 = 0.04;
/// Colours (0..1) that differ by less in each channel look alike.
const ALIKE: f32 = 0.12;
/// Motions that differ by less than this (m), or this share of the faster one, are alike.
const SAME_MOTION: (f32, f32) = (0.004, 0.15);
/// What is this near to the robot (m) is of the robot, and links no body to it.
const ROBOT_M: f32 = 0.012;
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
    anchors: Vec<Anchor>,
    joined: Forest,
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
        let is_raised =
            |p: &Vec3| particles.support_m.is_none_or(|height| p[2] > height + SUPPORT_M);
        self.free.clear();
        self.free
            .extend((0..positions.len() as u32).filter(|&i| is_raised(&positions[i as usize])));
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
        let Self { grid, anchors, joined, .. } = self;
        joined.reset(anchors.len());
        for (i, anchor) in anchors.iter().enumerate() {
            grid.near(&anchor.position, REACH_M, |place| {
                let j = grid.order()[place] as usize;
                if j < i && anchor.belongs_with(&anchors[j]) {
                    joined.join(i, j);
                }
            });
        }
    }

    /// Numbers the bodies, and sorts the anchors by body.
    fn sort(&mut self) {
        let Self { anchors, joined, members, starts, .. } = self;
        starts.clear();
        // Roots come first of their bodies.
        for i in 0..anchors.len() {
            let root = joined.root(i);
            if root == i {
                anchors[i].body = starts.len() as u32;
                starts.push(0);
            } else {
                anchors[i].body = anchors[root].body;
            }
            starts[anchors[i].body as usize] += 1;
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
                        *weight =
                            (anchor.confidence + 1e-3) / (dot(&error, &error).sqrt() + SOFT_M);
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
    /// What its particle at `p`, whose motion goes on as `onward`, is told: see [`N_BODY_FEATURES`].
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

#[cfg(test)]
mod tests {
    use super::super::rigid::Rigid;
    use super::*;
    use crate::graph::random::{draw, uniform};

    const TURN: Vec3 = [0.1, 0.2, -0.3];
    const SHIFT: Vec3 = [0.03, -0.01, 0.02];
    const RED: Vec3 = [0.8, 0.1, 0.1];
    const BLUE: Vec3 = [0.1, 0.1, 0.8];
    const CENTER: Vec3 = [0.1, 0.0, 0.2];

    /// Particles and their motions onward, all of confidence 1.
    #[derive(Default)]
    struct Scene {
        positions: Vec<Vec3>,
        colors: Vec<Vec3>,
        onward: Vec<Vec3>,
        confidences: Vec<f32>,
    }

    impl Scene {
        /// A box of 8 cm, its particles' motions by `motion`.
        fn add_box(&mut self, n: usize, at: Vec3, color: Vec3, motion: impl Fn(&Vec3) -> Vec3) {
            for i in 0..n as u64 {
                let local = |axis| 0.08 * uniform(draw(1, n as i64, i, axis)) - 0.04;
                let p = plus(&at, &[local(0), local(1), local(2)]);
                self.onward.push(motion(&p));
                self.positions.push(p);
                self.colors.push(color);
                self.confidences.push(1.0);
            }
        }

        fn find(&mut self, robot: &[Vec3], support_m: Option<f32>) -> Bodies {
            let mut bodies = Bodies::default();
            let motions = self.onward.clone();
            let moving = Moving {
                positions: &self.positions,
                colors: &self.colors,
                motions: &motions,
                confidences: &self.confidences,
                support_m,
            };
            bodies.find(&moving, robot, &mut self.onward);
            bodies
        }
    }

    fn turning(p: &Vec3) -> Vec3 {
        minus(&Rigid::default().then(&TURN, &SHIFT, &CENTER).apply(p), p)
    }

    fn error_m(scene: &Scene, i: usize, truth: &Vec3) -> f32 {
        let d = minus(&scene.onward[i], truth);
        dot(&d, &d).sqrt()
    }

    #[test]
    fn a_body_goes_on_rigidly_though_a_third_was_found_at_rest() {
        let mut scene = Scene::default();
        scene.add_box(120, CENTER, RED, turning);
        scene.onward.iter_mut().step_by(3).for_each(|motion| *motion = [0.0; 3]);
        scene.find(&[], Some(0.0));
        for i in 0..120 {
            let error = error_m(&scene, i, &turning(&scene.positions[i]));
            assert!(error < 5e-3, "particle {i} is off by {error} m");
        }
    }

    #[test]
    fn what_touches_is_one_body_if_it_looks_or_moves_alike() {
        let beside = plus(&CENTER, &[0.08, 0.0, 0.0]);
        let still = |_: &Vec3| [0.0; 3];
        let share_of = |color: Vec3, motion: fn(&Vec3) -> Vec3| {
            let mut scene = Scene::default();
            scene.add_box(120, CENTER, RED, turning);
            scene.add_box(120, beside, color, motion);
            let bodies = scene.find(&[], Some(0.0));
            (bodies.bodies.len(), scene)
        };
        let (n_bodies, apart) = share_of(BLUE, still);
        assert_eq!(n_bodies, 2);
        for i in 0..240 {
            let truth = if i < 120 { turning(&apart.positions[i]) } else { [0.0; 3] };
            assert!(error_m(&apart, i, &truth) < 1e-5, "{i}");
        }
        assert_eq!(share_of(RED, still).0, 1, "they look alike");
        assert_eq!(share_of(BLUE, turning).0, 1, "they move alike");
    }

    #[test]
    fn features_tell_of_the_body_and_nothing_of_support_and_robot() {
        let mut scene = Scene::default();
        scene.add_box(120, CENTER, RED, turning);
        scene.add_box(40, [-0.2, 0.0, 0.036], BLUE, |_| [0.0; 3]);
        // On the robot: not of the box that it holds.
        let robot = scene.positions[0];
        let bodies = scene.find(&[robot], Some(0.0));
        let features = bodies.features();
        assert_eq!(features[0], [0.0; N_BODY_FEATURES]);
        let lowest = (1..120).map(|i| scene.positions[i][2]).fold(f32::INFINITY, f32::min);
        for (i, features) in features.iter().enumerate().take(120) {
            let p = &scene.positions[i];
            let d = minus(p, &robot);
            if dot(&d, &d).sqrt() <= ROBOT_M {
                continue;
            }
            let near = |at: usize, value: f32| (features[at] - value).abs() < 1e-3;
            assert!(near(16, 1.0) && near(7, p[2] / HEIGHT_SCALE_M));
            assert!(near(6, (-lowest / NEARNESS_M).exp()), "{} for {lowest} m", features[6]);
            assert!(features[8] > 0.3 && features[8] < (-ROBOT_M / NEARNESS_M).exp());
            assert!(features[9] > 0.0 && features[9] < 0.7, "share near the robot {}", features[9]);
            let motion = turning(p);
            let center: Vec3 =
                std::array::from_fn(|axis| p[axis] - EXTENT_SCALE_M * features[13 + axis]);
            let of_center = turning(&center);
            for axis in 0..3 {
                assert!(near(axis, motion[axis] / MOTION_SCALE_M));
                assert!(near(3 + axis, of_center[axis] / MOTION_SCALE_M));
                // Uniform over ± 4 cm.
                let extent = features[10 + axis] * EXTENT_SCALE_M;
                assert!((extent - 0.04 / 3f32.sqrt()).abs() < 4e-3, "{extent} m");
            }
        }
        for (p, features) in scene.positions.iter().zip(features).skip(120) {
            assert!(p[2] > SUPPORT_M || *features == [0.0; N_BODY_FEATURES]);
        }
    }

    #[test]
    fn many_particles_follow_their_anchors_and_few_keep_their_motion() {
        let mut scene = Scene::default();
        scene.add_box(3 * MAX_ANCHORS + 5, CENTER, RED, turning);
        scene.onward.iter_mut().step_by(5).for_each(|motion| *motion = [0.0; 3]);
        let bodies = scene.find(&[], None);
        assert!(bodies.anchors.len() <= MAX_ANCHORS && bodies.anchors.len() > MAX_ANCHORS / 2);
        for i in 0..scene.positions.len() {
            assert!(error_m(&scene, i, &turning(&scene.positions[i])) < 2e-3);
            // Without a support, nothing is told of it.
            assert_eq!(bodies.features()[i][6..8], [0.0; 2]);
        }

        let mut few = Scene::default();
        few.add_box(MIN_FIT - 1, CENTER, RED, |p| p.map(|x| 0.1 * x * x));
        let before = few.onward.clone();
        few.find(&[], Some(0.0));
        assert_eq!(few.onward, before);
        Scene::default().find(&[], Some(0.0));
    }
}
