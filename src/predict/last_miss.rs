//! The last miss: what was predicted about one step ago, held against what is measured now.

use crate::base::geometry::{Nearest, Vec3, add, length, minus, squared_distance};
use crate::engine::motion_class::MotionClass;
use crate::engine::rollout_input::{Evidence, StepState};
use crate::predict::prediction::Prediction;
use crate::predict::robot_reach::RobotReach;
use crate::predict::track_record::{Said, SceneRecord, Seen, TrackRecord};
use crate::vision::motion::NO_BODY;

/// How far a particle may lie from where another came from (m) to be taken for it.
const SAME_M: f32 = 0.03;
/// Particles of a body that must be found again for its misses to count.
const MIN_FOUND: u32 = 3;
/// Noise of a particle's measured motion (m): no radius is held to less.
const NOISE_M: f32 = 0.002;

/// What was said of the particles of a frame, and how they did until then; in metres a step.
#[derive(Debug, Default, Clone)]
pub struct Outlook {
    /// What the model and going on say of the next steps, `[n]`; empty where nothing was predicted from the
    /// frame.
    said: Vec<Said>,
    /// Number of the body of each, `[n]`, and how the bodies did until then, by their numbers; none of those
    /// that nobody looked at.
    body_of: Vec<u32>,
    records: Vec<TrackRecord>,
    scene: SceneRecord,
    /// What was predicted of the first step in the end, and how sure that was (m), `[n]`; the last is empty where
    /// that was not told.
    predicted: Vec<Vec3>,
    sigma_90: Vec<f32>,
    classes: Vec<MotionClass>,
}

impl Outlook {
    /// Nothing was said.
    pub fn clear(&mut self) {
        self.said.clear();
    }

    /// Whether something was predicted from the frame.
    pub fn is_some(&self) -> bool {
        !self.said.is_empty()
    }

    /// Takes what `prediction` says, what was `said` before the evidence counted, and how the bodies `body_of`
    /// the particles did by the `looked` of now.
    pub fn take(
        &mut self,
        said: &[Said],
        (body_of, looked): (&[u32], &LastMiss),
        prediction: &Prediction,
    ) {
        let replace = |into: &mut Vec<Vec3>, by: Option<&Vec<Vec3>>| {
            into.clear();
            into.extend(by.into_iter().flatten());
        };
        self.said.clear();
        self.said.extend_from_slice(said);
        self.body_of.clear();
        self.body_of.extend_from_slice(body_of);
        self.records.clear();
        self.records.extend(looked.bodies.iter().map(|sums| sums.record));
        self.scene = looked.scene;
        replace(&mut self.predicted, prediction.displacements.first());
        self.sigma_90.clear();
        self.sigma_90.extend(prediction.told_sigmas(1).first().into_iter().flatten());
        self.classes.clone_from(&prediction.situations);
    }
}

/// How many particles of one class moved within sigma_90 of what was predicted one step ago.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Those that were found again.
    pub n: u32,
    /// Of them those within sigma_90, or within the noise of the measured motion where that is more.
    pub n_within: u32,
}

/// [`Outcome`]s by class, in the order of [`MotionClass::ALL`].
pub type Outcomes = [Outcome; MotionClass::ALL.len()];

/// What is summed over a body.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    record: TrackRecord,
    seen: Seen,
    n_found: u32,
    is_near_robot: bool,
}

/// Holds predictions against what came; its vectors are kept.
#[derive(Debug, Default)]
pub struct LastMiss {
    search: Nearest,
    queries: Vec<Vec3>,
    nearest: Vec<u32>,
    robot: RobotReach,
    bodies: Vec<Sums>,
    scene: SceneRecord,
    /// Of each body.
    evidence: Vec<Option<Evidence>>,
}

impl LastMiss {
    /// What the past of the particles of `now` tells of them, `[n]`, into `evidence`: those of a body alike.
    /// `past`: the particles of a frame (m), what was said of them, and how many steps it lies back; without it
    /// nothing is known. `robot`: points on it one step back, now and in the steps ahead (m), as
    /// [`RolloutInput::kinematic`](crate::engine::rollout_input::RolloutInput::kinematic).
    ///
    /// Returns how many came to lie where they were predicted.
    pub fn look(
        &mut self,
        now: &StepState,
        robot: &[Vec<Vec3>],
        past: Option<(&[Vec3], &Outlook, f32)>,
        evidence: &mut Vec<Option<Evidence>>,
    ) -> Outcomes {
        evidence.clear();
        self.evidence.clear();
        self.bodies.clear();
        self.scene = SceneRecord::default();
        let mut outcomes = Outcomes::default();
        let (Some((before, outlook, steps)), n) = (past, now.positions.len()) else {
            return outcomes;
        };
        if before.is_empty() || outlook.said.len() != before.len() || now.body_of.len() != n {
            return outcomes;
        }
        let came_from = |(p, v): (&Vec3, &Vec3)| minus(p, &v.map(|x| x * steps));
        self.queries.clear();
        self.queries.extend(now.positions.iter().zip(&now.velocities).map(came_from));
        self.find(before, SAME_M);
        let n_bodies =
            now.body_of.iter().filter(|body| **body != NO_BODY).max().map_or(0, |b| b + 1);
        self.bodies.resize(n_bodies as usize, Sums::default());
        for i in 0..n {
            let j = self.nearest[i] as usize;
            let is_same = squared_distance(&self.queries[i], &before[j]) < SAME_M * SAME_M;
            if !is_same || now.velocity_known[i] < 0.5 {
                continue;
            }
            let motion = &now.velocities[i];
            outlook.count(j, motion, &mut outcomes);
            if let Some(sums) = self.bodies.get_mut(now.body_of[i] as usize) {
                sums.add(motion, &outlook.said[j], outlook.record(j));
            }
        }
        // The plan tells the model of that.
        for (sums, is_near) in self.bodies.iter_mut().zip(self.robot.is_near(now, robot)) {
            sums.is_near_robot = is_near;
        }
        self.scene = outlook.scene;
        self.scene.begin();
        for (body, sums) in self.bodies.iter_mut().enumerate() {
            let motion = now.body_motions.get(body).copied().flatten();
            sums.seen.turn_rad = motion.map_or(0.0, |motion| motion.turn()[2]);
            sums.finish();
            self.scene.add(&sums.record, sums.n_found);
        }
        let scene = &self.scene;
        self.evidence.extend(self.bodies.iter().map(|sums| sums.record.evidence(scene)));
        evidence.resize(n, None);
        self.tell(&now.body_of, evidence);
        outcomes
    }

    /// What [`LastMiss::look`] found last, of particles of the bodies `body_of`, into `evidence`, where there is any.
    pub fn tell(&self, body_of: &[u32], evidence: &mut [Option<Evidence>]) {
        for (known, &body) in evidence.iter_mut().zip(body_of) {
            *known = self.evidence.get(body as usize).copied().flatten();
        }
    }

    /// The nearest of `points` to each query, as far as there is one within `reach`.
    fn find(&mut self, points: &[Vec3], reach: f32) {
        self.search.rebuild(points);
        self.nearest.clear();
        self.nearest.resize(self.queries.len(), 0);
        self.search.find_within(reach, self.nearest.iter_mut().zip(&self.queries));
    }
}

impl Outlook {
    /// How the body of particle `j` did.
    fn record(&self, j: usize) -> Option<&TrackRecord> {
        self.records.get(*self.body_of.get(j)? as usize)
    }

    /// Counts particle `j`, which moved by `motion` (m).
    fn count(&self, j: usize, motion: &Vec3, outcomes: &mut Outcomes) {
        let told = self.predicted.get(j).zip(self.sigma_90.get(j)).zip(self.classes.get(j));
        let Some(((predicted, sigma_90), class)) = told else { return };
        let outcome = &mut outcomes[*class as usize];
        outcome.n += 1;
        outcome.n_within += u32::from(length(&minus(motion, predicted)) <= sigma_90.max(NOISE_M));
    }
}

impl Sums {
    /// Adds a particle that moved by `motion` (m), what was `said` of that, and its record.
    fn add(&mut self, motion: &Vec3, said: &Said, record: Option<&TrackRecord>) {
        add(&mut self.seen.motion, motion);
        for (sum, said) in self.seen.said.iter_mut().flatten().zip(said.iter().flatten()) {
            add(sum, said);
        }
        let expected = [&said[0][0], &said[1][0], &[0.0; 3]];
        for (square, expected) in self.seen.squares.iter_mut().zip(expected) {
            *square += length(&minus(motion, expected)).powi(2);
        }
        if let Some(record) = record {
            self.record.sum(record);
        }
        self.n_found += 1;
    }

    /// Takes the means; forgets what too few tell of, or what the robot may move.
    fn finish(&mut self) {
        if self.n_found < MIN_FOUND || self.is_near_robot {
            self.record = TrackRecord::default();
            return;
        }
        let mean = 1.0 / self.n_found as f32;
        let Seen { motion, said, squares, .. } = &mut self.seen;
        let vectors = said.iter_mut().flatten().flatten().chain(motion);
        vectors.chain(squares).for_each(|x| *x *= mean);
        self.record.scale(mean);
        self.record.add(&self.seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAY: Vec3 = [0.02, 0.0, 0.0];

    /// Two bodies of ten particles half a metre apart, of which the first moved by `WAY` until now.
    fn bodies() -> (StepState, Vec<Vec3>) {
        let place = |i: usize| [0.01 * (i % 10) as f32, 0.5 * (i / 10) as f32, 0.1];
        let before: Vec<Vec3> = (0..20).map(place).collect();
        let velocities: Vec<Vec3> = (0..20).map(|i| if i < 10 { WAY } else { [0.0; 3] }).collect();
        let positions = before.iter().zip(&velocities).map(|(p, v)| [0, 1, 2].map(|k| p[k] + v[k]));
        let now = StepState {
            positions: positions.collect(),
            velocities,
            velocity_known: vec![1.0; 20],
            body_of: (0..20).map(|i| i / 10).collect(),
            ..StepState::default()
        };
        (now, before)
    }

    /// The model says that all rest, within a millimetre; going on is right.
    fn outlook(now: &StepState) -> Outlook {
        let said = now.velocities.iter().map(|v| [[[0.0; 3]; 3], [*v; 3]]);
        Outlook {
            said: said.collect(),
            body_of: Vec::new(),
            records: Vec::new(),
            scene: SceneRecord::default(),
            predicted: vec![[0.0; 3]; 20],
            sigma_90: vec![0.001; 20],
            classes: vec![MotionClass::Moving; 20],
        }
    }

    type Found = (LastMiss, Vec<Option<Evidence>>, Outcomes);

    fn look(now: &StepState, robot: &[Vec<Vec3>], before: &[Vec3], outlook: &Outlook) -> Found {
        let (mut last, mut evidence) = (LastMiss::default(), Vec::new());
        let outcomes = last.look(now, robot, Some((before, outlook, 1.0)), &mut evidence);
        (last, evidence, outcomes)
    }

    #[test]
    fn each_body_has_its_own_record_and_what_came_is_counted() {
        let (now, before) = bodies();
        let (mut last, evidence, outcomes) = look(&now, &[], &before, &outlook(&now));
        assert!(evidence[..10].iter().all(|known| *known == evidence[0]));
        assert!(evidence[10..].iter().all(|known| *known == evidence[19]));
        let [model_m, on_m] = evidence[0].expect("it was looked at").misses_m;
        assert!((model_m - 0.02).abs() < 1e-6 && on_m < 1e-6, "{model_m} {on_m}");
        assert_eq!(evidence[19].expect("it was looked at").misses_m, [0.0, 0.0]);
        assert_eq!(outcomes[MotionClass::Moving as usize], Outcome { n: 20, n_within: 10 });
        // Again: the records go on with the particles, and then it counts that the model is wrong.
        assert_eq!(evidence[0].map(|known| known.model), Some(1.0));
        let mut second = outlook(&now);
        second.body_of = now.body_of.clone();
        second.records = last.bodies.iter().map(|sums| sums.record).collect();
        let (_, evidence, _) = look(&now, &[], &before, &second);
        assert!(evidence[0].is_some_and(|known| known.goes_on > 0.5), "{:?}", evidence[0]);
        // Without a past nothing is known, nor kept for the next.
        let mut evidence = evidence;
        assert_eq!(last.look(&now, &[], None, &mut evidence), Outcomes::default());
        assert!(evidence.is_empty() && last.bodies.is_empty());
    }

    #[test]
    fn what_is_not_found_again_or_is_near_the_robot_has_none() {
        let (now, before) = bodies();
        let outlook = outlook(&now);
        let far: Vec<Vec3> = before.iter().map(|p| [p[0] + 1.0, p[1], p[2]]).collect();
        let (_, evidence, outcomes) = look(&now, &[], &far, &outlook);
        assert!(evidence.iter().all(Option::is_none) && outcomes == Outcomes::default());
        // A robot that moves, or is about to; one that stands still beside it moves nothing.
        let robot =
            |since: f32, ahead: f32| [-since, 0.0, ahead].map(|x| vec![[0.05 + x, 0.0, 0.15]]);
        for (since, ahead) in [(0.01, 0.0), (0.0, 0.01)] {
            let (_, evidence, _) = look(&now, &robot(since, ahead), &before, &outlook);
            assert!(evidence[..10].iter().all(Option::is_none) && evidence[10].is_some());
        }
        let (_, evidence, _) = look(&now, &robot(0.0, 0.0), &before, &outlook);
        assert!(evidence.iter().all(Option::is_some));
        let mut unknown = now.clone();
        unknown.velocity_known.fill(0.0);
        assert!(look(&unknown, &[], &before, &outlook).1.iter().all(Option::is_none));
        // Nothing was predicted from that frame, or from other particles.
        for before in [&before[..5], &[]] {
            assert!(look(&now, &[], before, &outlook).1.is_empty());
        }
    }
}
