//! Bodies: which particles move as one, guessed from nearness, colour and motion, without a model of
//! any object; how each body moves, and what its particles are told of it.

use rayon::prelude::*;

use crate::base::geometry::{
    Forest, Nearest, RigidMotion, Vec3, distance, dot, minus, squared_distance,
};

use super::PastMotion;
use super::grid::Grid;
use super::settings::Settings;

/// Numbers that a particle is told of its body, world frame, in this order: its own motion in the next
/// step if the body goes on, and that of the body's centre (3 each, of 5 cm); exp(-c / 3 cm) of the
/// body's clearance c above the support plane, and the particle's height above it (of 25 cm), 0 where
/// there is none; exp(-d / 3 cm) of the body's distance d from the robot, and the share of it within
/// 3 cm; its standard deviation along the axes, and where the particle is from its centre (3 each, of
/// 5 cm); 1.
pub const N_BODY_FEATURES: usize = 17;

/// Whether the body that `features` tell of is farther than [`NEARNESS_M`] from the support plane and
/// from the robot, as far as is seen.
pub(crate) fn is_free(features: &[f32; N_BODY_FEATURES]) -> bool {
    let far = (-1.0f32).exp();
    features[16] == 1.0 && features[6] < far && features[8] < far
}

/// Scales of the features: no settings, as a model is trained with them. Motions a step are divided
/// by the first, so that usual ones are of order 1; nearness fades over the last.
pub(crate) const MOTION_SCALE_M: f32 = 0.05;
const EXTENT_SCALE_M: f32 = 0.05;
const HEIGHT_SCALE_M: f32 = 0.25;
pub(crate) const NEARNESS_M: f32 = 0.03;

/// Particles that one task looks at.
const CHUNK: usize = 128;
/// No body.
const NONE: u32 = u32::MAX;

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
}

/// A particle that bodies are made of.
#[derive(Debug, Default, Clone, Copy)]
struct Anchor {
    position: Vec3,
    color: Vec3,
    motion: Vec3,
    confidence: f32,
    robot_m: f32,
    body: u32,
}

/// What is known of a body.
#[derive(Debug, Clone, Copy)]
struct Body {
    /// Its motion in the next step, if it goes on; none of small ones.
    extrapolated_motion: Option<RigidMotion>,
    center: Vec3,
    /// Standard deviation of its points along the axes (m).
    extent: Vec3,
    lowest_m: f32,
    /// Distance from the robot, and the share of it that is near.
    robot_m: f32,
    near_share: f32,
}

/// Particles, the robot's points, and the support plane, where bodies are looked for.
pub(super) struct Place<'a> {
    pub positions: &'a [Vec3],
    pub colors: &'a [Vec3],
    pub robot: &'a [Vec3],
    pub support_m: Option<f32>,
}

impl Bodies {
    /// Finds the bodies of the particles, whose motions are `found`: gives those of each body one
    /// extrapolated rigid motion, and tells them of it.
    pub(super) fn find(&mut self, settings: &Settings, particles: &Place, found: &mut PastMotion) {
        self.choose(settings, particles, found);
        if self.anchors.is_empty() {
            return;
        }
        self.link(settings);
        self.sort();
        self.fit(settings);
        let mut of_free = std::mem::take(&mut self.nearest);
        of_free.resize(self.free.len(), 0);
        of_free.par_iter_mut().zip(&self.free).with_min_len(CHUNK).for_each(|(body, &i)| {
            let (p, color) = (&particles.positions[i as usize], &particles.colors[i as usize]);
            *body = self.body_of(settings, p, color).unwrap_or(NONE);
        });
        let PastMotion { extrapolated_motion, bodies, body_of, body_motions, .. } = found;
        body_motions.extend(self.bodies.iter().map(|body| body.extrapolated_motion));
        for (&i, &body) in self.free.iter().zip(&of_free) {
            let (number, i) = (body, i as usize);
            let Some(body) = self.bodies.get(number as usize) else { continue };
            let p = &particles.positions[i];
            body_of[i] = number;
            if let Some(motion) = &body.extrapolated_motion {
                extrapolated_motion[i] = motion.motion_of(p);
            }
            bodies[i] = body.describe(p, &extrapolated_motion[i], particles.support_m);
        }
        self.nearest = of_free;
    }

    /// Chooses the free particles, and the anchors among them.
    fn choose(&mut self, settings: &Settings, particles: &Place, found: &PastMotion) {
        let Settings { body_reach_m, body_robot_m, body_clearance_m, .. } = *settings;
        let Place { positions, robot, .. } = *particles;
        let is_raised =
            |p: &Vec3| particles.support_m.is_none_or(|height| p[2] > height + body_clearance_m);
        self.free.clear();
        self.free
            .extend((0..positions.len() as u32).filter(|&i| is_raised(&positions[i as usize])));
        self.nearest.clear();
        self.nearest.resize(self.free.len(), 0);
        self.robot.rebuild(robot);
        let chunks = self.nearest.par_chunks_mut(CHUNK).zip(self.free.par_chunks(CHUNK));
        chunks.for_each(|(nearest, free)| {
            self.robot.find(nearest.iter_mut().zip(free.iter().map(|&i| &positions[i as usize])));
        });
        self.distances.clear();
        self.distances.extend(self.free.iter().zip(&self.nearest).map(|(&i, &nearest)| {
            let Some(point) = robot.get(nearest as usize) else { return f32::INFINITY };
            distance(&positions[i as usize], point)
        }));
        let mut j = 0;
        self.free.retain(|_| {
            j += 1;
            self.distances[j - 1] > body_robot_m
        });
        self.distances.retain(|&distance| distance > body_robot_m);
        let stride = self.free.len().div_ceil(settings.body_anchors).max(1);
        self.anchors.clear();
        let chosen = self.free.iter().zip(&self.distances).step_by(stride);
        self.anchors.extend(chosen.map(|(&i, &robot_m)| {
            let i = i as usize;
            Anchor {
                position: positions[i],
                color: particles.colors[i],
                motion: found.motions[i],
                confidence: found.confidences[i],
                robot_m,
                body: 0,
            }
        }));
        self.scratch.iter_mut().for_each(Vec::clear);
        self.scratch[0].extend(self.anchors.iter().map(|anchor| anchor.position));
        self.scratch[1].extend(self.anchors.iter().map(|anchor| anchor.color));
        self.grid.rebuild(&self.scratch[0], &self.scratch[1], body_reach_m);
    }

    /// Joins the anchors that belong together.
    fn link(&mut self, settings: &Settings) {
        let Self { grid, anchors, joined, .. } = self;
        joined.reset(anchors.len());
        for (i, anchor) in anchors.iter().enumerate() {
            grid.near(&anchor.position, settings.body_reach_m, |place| {
                let j = grid.cells.order()[place] as usize;
                if j < i && anchor.belongs_with(&anchors[j], settings) {
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
    fn fit(&mut self, settings: &Settings) {
        let Settings { body_soft_m, body_min_weight, .. } = *settings;
        let Self { anchors, members, starts, bodies, from, to, weights, .. } = self;
        bodies.clear();
        for ends in starts.windows(2) {
            let members = &members[ends[0] as usize..ends[1] as usize];
            let of_body = || members.iter().map(|&i| &anchors[i as usize]);
            from.clear();
            from.extend(of_body().map(|anchor| minus(&anchor.position, &anchor.motion)));
            let extrapolated_motion = (members.len() >= settings.body_min_fit).then(|| {
                to.clear();
                to.extend(of_body().map(|anchor| anchor.position));
                weights.clear();
                weights.extend(of_body().map(|anchor| anchor.confidence + body_min_weight));
                let mut motion = RigidMotion::fit_weighted(from, to, |i| weights[i]);
                for _ in 1..settings.body_rounds {
                    // Least distances by reweighted least squares (Weiszfeld 1937).
                    for ((weight, anchor), p) in weights.iter_mut().zip(of_body()).zip(&*from) {
                        let error_m = distance(&motion.motion_of(p), &anchor.motion);
                        *weight = (anchor.confidence + body_min_weight) / (error_m + body_soft_m);
                    }
                    motion = RigidMotion::fit_weighted(from, to, |i| weights[i]);
                }
                motion.again()
            });
            from.clear();
            from.extend(of_body().map(|anchor| anchor.position));
            let n = members.len() as f32;
            let mean = |f: &dyn Fn(&Vec3) -> f32| from.iter().map(f).sum::<f32>() / n;
            let center: Vec3 = std::array::from_fn(|axis| mean(&|p| p[axis]));
            let variance = |axis: usize| mean(&|p| (p[axis] - center[axis]).powi(2));
            let near = of_body().filter(|anchor| anchor.robot_m < NEARNESS_M).count();
            let least = |f: fn(&Anchor) -> f32| of_body().map(f).fold(f32::INFINITY, f32::min);
            bodies.push(Body {
                extrapolated_motion,
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
    fn body_of(&self, settings: &Settings, p: &Vec3, color: &Vec3) -> Option<u32> {
        let Settings { body_reach_m: reach_m, body_color: alike, .. } = *settings;
        let mut best = (f32::INFINITY, None);
        self.grid.near(p, reach_m, |place| {
            let anchor = &self.anchors[self.grid.cells.order()[place] as usize];
            let place = squared_distance(&anchor.position, p) / (reach_m * reach_m);
            let distance = place + squared_distance(&anchor.color, color) / (alike * alike);
            if distance < best.0 {
                best = (distance, Some(anchor.body));
            }
        });
        best.1
    }
}

impl Anchor {
    fn belongs_with(&self, other: &Self, settings: &Settings) -> bool {
        let looks = minus(&self.color, &other.color);
        if looks.iter().all(|c| c.abs() < settings.body_color) {
            return true;
        }
        let faster = dot(&self.motion, &self.motion).max(dot(&other.motion, &other.motion)).sqrt();
        distance(&self.motion, &other.motion)
            < settings.body_motion_m + settings.body_motion_share * faster
    }
}

impl Body {
    /// What its particle at `p`, whose motion is `extrapolated_motion`, is told: see [`N_BODY_FEATURES`].
    fn describe(
        &self,
        p: &Vec3,
        extrapolated_motion: &Vec3,
        support_m: Option<f32>,
    ) -> [f32; N_BODY_FEATURES] {
        let mut features = [0.0; N_BODY_FEATURES];
        let center = self
            .extrapolated_motion
            .map_or(*extrapolated_motion, |motion| motion.motion_of(&self.center));
        let arm = minus(p, &self.center);
        for axis in 0..3 {
            features[axis] = extrapolated_motion[axis] / MOTION_SCALE_M;
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
    use super::*;
    use crate::base::geometry::{Rigid, plus};
    use crate::base::random::{draw, uniform};

    const TURN: Vec3 = [0.1, 0.2, -0.3];
    const SHIFT: Vec3 = [0.03, -0.01, 0.02];
    const RED: Vec3 = [0.8, 0.1, 0.1];
    const BLUE: Vec3 = [0.1, 0.1, 0.8];
    const CENTER: Vec3 = [0.1, 0.0, 0.2];

    /// Particles and their motions in the step before, all of confidence 1.
    #[derive(Default)]
    struct Scene {
        positions: Vec<Vec3>,
        colors: Vec<Vec3>,
        found: PastMotion,
    }

    impl Scene {
        /// A box of 8 cm that is here now, its particles' motions by `motion`.
        fn add_box(&mut self, n: usize, at: Vec3, color: Vec3, motion: impl Fn(&Vec3) -> Vec3) {
            for i in 0..n as u64 {
                let local = |axis| 0.08 * uniform(draw(1, n as i64, i, axis)) - 0.04;
                let p = plus(&at, &[local(0), local(1), local(2)]);
                self.found.motions.push(motion(&p));
                self.positions.push(p);
                self.colors.push(color);
                self.found.confidences.push(1.0);
            }
        }

        fn find(&mut self, robot: &[Vec3], support_m: Option<f32>) -> Bodies {
            let mut bodies = Bodies::default();
            self.found.extrapolated_motion.clone_from(&self.found.motions);
            self.found.bodies.resize(self.positions.len(), [0.0; N_BODY_FEATURES]);
            self.found.body_of.resize(self.positions.len(), crate::vision::motion::NO_BODY);
            let Self { positions, colors, found } = self;
            let place = Place { positions, colors, robot, support_m };
            bodies.find(&Settings::default(), &place, found);
            bodies
        }
    }

    /// How the point that is at `p` now came there, turning about where `CENTER` was, and going there.
    fn turning(p: &Vec3) -> Vec3 {
        let pose = Rigid::default().then(&TURN, &SHIFT, &minus(&CENTER, &SHIFT));
        minus(p, &pose.undo(p))
    }

    /// How it goes on: straight with the centre of these particles, and turning about it.
    fn going_on(p: &Vec3, of: &[Vec3]) -> Vec3 {
        let mean = |f: &dyn Fn(&Vec3) -> Vec3, axis: usize| {
            of.iter().map(|p| f(p)[axis]).sum::<f32>() / of.len() as f32
        };
        let center: Vec3 = std::array::from_fn(|axis| mean(&|p| *p, axis));
        let way: Vec3 = std::array::from_fn(|axis| mean(&turning, axis));
        minus(&Rigid::default().then(&TURN, &way, &center).apply(p), p)
    }

    fn error_m(scene: &Scene, i: usize, truth: &Vec3) -> f32 {
        distance(&scene.found.extrapolated_motion[i], truth)
    }

    #[test]
    fn a_body_goes_on_rigidly_though_a_third_was_found_at_rest() {
        let mut scene = Scene::default();
        scene.add_box(120, CENTER, RED, turning);
        scene.found.motions.iter_mut().step_by(3).for_each(|motion| *motion = [0.0; 3]);
        scene.find(&[], Some(0.0));
        for i in 0..120 {
            let error = error_m(&scene, i, &going_on(&scene.positions[i], &scene.positions));
            assert!(error < 7e-3, "particle {i} is off by {error} m");
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
            let p = &apart.positions;
            let truth = if i < 120 { going_on(&p[i], &p[..120]) } else { [0.0; 3] };
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
        scene.find(&[robot], Some(0.0));
        let features = &scene.found.bodies;
        let Settings { body_robot_m, body_clearance_m, .. } = Settings::default();
        assert_eq!(features[0], [0.0; N_BODY_FEATURES]);
        let free = scene.positions[..120].iter().filter(|p| distance(p, &robot) > body_robot_m);
        let free: Vec<Vec3> = free.copied().collect();
        let lowest = (1..120).map(|i| scene.positions[i][2]).fold(f32::INFINITY, f32::min);
        for (i, features) in features.iter().enumerate().take(120) {
            let p = &scene.positions[i];
            if distance(p, &robot) <= body_robot_m {
                continue;
            }
            let near = |at: usize, value: f32| (features[at] - value).abs() < 1e-3;
            assert!(near(16, 1.0) && near(7, p[2] / HEIGHT_SCALE_M));
            assert!(near(6, (-lowest / NEARNESS_M).exp()), "{} for {lowest} m", features[6]);
            assert!(features[8] > 0.3 && features[8] < (-body_robot_m / NEARNESS_M).exp());
            assert!(features[9] > 0.0 && features[9] < 0.7, "share near the robot {}", features[9]);
            let motion = going_on(p, &free);
            let center: Vec3 =
                std::array::from_fn(|axis| p[axis] - EXTENT_SCALE_M * features[13 + axis]);
            let of_center = going_on(&center, &free);
            for axis in 0..3 {
                assert!(near(axis, motion[axis] / MOTION_SCALE_M));
                assert!(near(3 + axis, of_center[axis] / MOTION_SCALE_M));
                // Uniform over ± 4 cm.
                let extent = features[10 + axis] * EXTENT_SCALE_M;
                assert!((extent - 0.04 / 3f32.sqrt()).abs() < 4e-3, "{extent} m");
            }
        }
        for (p, features) in scene.positions.iter().zip(features).skip(120) {
            assert!(p[2] > body_clearance_m || *features == [0.0; N_BODY_FEATURES]);
        }
    }

    #[test]
    fn many_particles_follow_their_anchors_and_few_keep_their_motion() {
        let Settings { body_anchors, body_min_fit, .. } = Settings::default();
        let mut scene = Scene::default();
        scene.add_box(3 * body_anchors + 5, CENTER, RED, turning);
        scene.found.motions.iter_mut().step_by(5).for_each(|motion| *motion = [0.0; 3]);
        let bodies = scene.find(&[], None);
        assert!(bodies.anchors.len() <= body_anchors && bodies.anchors.len() > body_anchors / 2);
        for i in 0..scene.positions.len() {
            let truth = going_on(&scene.positions[i], &scene.positions);
            assert!(error_m(&scene, i, &truth) < 2e-3);
            // Without a support, nothing is told of it.
            assert_eq!(scene.found.bodies[i][6..8], [0.0; 2]);
        }

        let mut few = Scene::default();
        few.add_box(body_min_fit - 1, CENTER, RED, |p| p.map(|x| 0.1 * x * x));
        let before = few.found.motions.clone();
        few.find(&[], Some(0.0));
        assert_eq!(few.found.extrapolated_motion, before);
        Scene::default().find(&[], Some(0.0));
    }
}
