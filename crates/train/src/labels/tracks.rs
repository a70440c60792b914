//! Points followed over several frames.

use forecloud::Result;
use forecloud::base::geometry::{
    PointTree, RigidMotion, Vec3, add, distance, plus, squared_distance,
};
use forecloud::vision::motion::NO_BODY;
use forecloud::vision::particles::Particles;

use super::flow::{ALIKE, Flow};

/// How far a point looks for others that tell where it goes on (m), and what is near (m).
const REACH_M: f32 = 0.015;
const NEAR_M: f32 = 0.008;
/// What others count that are not sure at all.
const LEAST: f32 = 0.05;
/// Points that a body is held rigid by: how many at least, how sure, how near to where the body would
/// have them (m), and what share of them.
const MIN_POINTS: usize = 8;
const SURE_ENOUGH: f32 = 0.3;
const FITS_M: f32 = 0.008;
const FITS_SHARE: f32 = 0.7;
/// Softness of the fit (m), and how often it is weighted anew.
const SOFT_M: f32 = 0.005;
const ROUNDS: usize = 5;
/// A point that is sure of a place farther than this from where the body would have it goes alone (m).
const ALONE_M: f32 = 0.02;

/// A frame that points are followed through, and where its own points go.
#[derive(Debug)]
pub struct Sight<'a> {
    cloud: &'a Particles,
    flow: &'a Flow,
    tree: PointTree,
}

impl<'a> Sight<'a> {
    /// Of a cloud and the flow of its points.
    ///
    /// # Errors
    /// [`forecloud::Error::NonFinite`] if a point is not finite.
    pub fn new(cloud: &'a Particles, flow: &'a Flow) -> Result<Self> {
        Ok(Self { cloud, flow, tree: PointTree::new(&cloud.positions)? })
    }

    /// How far a thing of `color` at `p` goes from here, and how sure that is; none where nothing is.
    fn motion_at(&self, p: &Vec3, color: &Vec3) -> Option<(Vec3, f32)> {
        let (mut sum, mut total, mut sure) = ([0.0; 3], 0.0, 0.0);
        for j in self.tree.within(p, REACH_M) {
            let apart = squared_distance(p, &self.cloud.positions[j]) / NEAR_M.powi(2);
            let unlike = squared_distance(color, &self.cloud.colors[j]) / ALIKE.powi(2);
            let (motion, confidence) = (self.flow.motions[j], self.flow.confidences[j]);
            let weight = (-apart - unlike).exp() * (LEAST + confidence);
            total += weight;
            sure += weight * confidence;
            sum = std::array::from_fn(|axis| sum[axis] + weight * motion[axis]);
        }
        (total > 1e-4).then(|| (sum.map(|x| x / total), sure / total))
    }
}

/// Where points are after each step.
#[derive(Debug, Default, Clone)]
pub struct Tracks {
    /// Positions (m), `[n_steps][n]`.
    pub positions: Vec<Vec<Vec3>>,
    /// How sure they are, 0 to 1, `[n_steps][n]`.
    pub confidences: Vec<Vec<f32>>,
    members: Vec<Vec<u32>>,
    from: Vec<Vec3>,
    to: Vec<Vec3>,
    weights: Vec<f32>,
    sure: Vec<u32>,
}

impl Tracks {
    /// Follows the points `chosen` of the first of `sights`, which are frames one step apart each, for
    /// as many steps as there are frames.
    pub fn follow(&mut self, chosen: &[u32], sights: &[Sight]) {
        self.positions.resize_with(sights.len(), Vec::new);
        self.confidences.resize_with(sights.len(), Vec::new);
        let Some(first) = sights.first() else { return };
        let (cloud, flow) = (first.cloud, first.flow);
        let start: Vec<Vec3> = chosen.iter().map(|&i| cloud.positions[i as usize]).collect();
        self.sort(chosen.iter().map(|&i| flow.body_of[i as usize]));
        let (mut at, mut confidences) = (start.clone(), vec![1.0f32; chosen.len()]);
        for (step, sight) in sights.iter().enumerate() {
            for (k, (at, confidence)) in at.iter_mut().zip(&mut confidences).enumerate() {
                let i = chosen[k] as usize;
                let found = match step {
                    0 => Some((flow.motions[i], flow.confidences[i])),
                    _ => sight.motion_at(at, &cloud.colors[i]),
                };
                // What nothing is seen of stays, until its body is found to have moved.
                let (motion, sure) = found.unwrap_or_default();
                add(at, &motion);
                *confidence = confidence.min(sure);
            }
            self.hold_rigid(&start, &mut at, &mut confidences);
            self.positions[step].clone_from(&at);
            self.confidences[step].clone_from(&confidences);
        }
    }

    fn sort(&mut self, bodies: impl Iterator<Item = u32>) {
        self.members.iter_mut().for_each(Vec::clear);
        for (k, body) in bodies.enumerate().filter(|(_, body)| *body != NO_BODY) {
            let n = self.members.len().max(body as usize + 1);
            self.members.resize_with(n, Vec::new);
            self.members[body as usize].push(k as u32);
        }
    }

    /// Moves the points of each body that is rigid, as far as its sure points tell, to where the body is.
    fn hold_rigid(&mut self, start: &[Vec3], at: &mut [Vec3], confidences: &mut [f32]) {
        let Self { members, from, to, weights, sure, .. } = self;
        for members in members.iter() {
            sure.clear();
            sure.extend(members.iter().filter(|&&k| confidences[k as usize] > SURE_ENOUGH));
            if sure.len() < MIN_POINTS {
                continue;
            }
            let places = |places: &[Vec3], out: &mut Vec<Vec3>| {
                out.clear();
                out.extend(sure.iter().map(|&k| places[k as usize]));
            };
            places(start, from);
            places(at, to);
            let misses = |motion: &RigidMotion, k: usize| {
                distance(&plus(&from[k], &motion.motion_of(&from[k])), &to[k])
            };
            let mut motion = RigidMotion::fit(from, to);
            for _ in 0..ROUNDS {
                weights.clear();
                weights.extend((0..sure.len()).map(|k| {
                    let soft = 1.0 + (misses(&motion, k) / SOFT_M).powi(2);
                    confidences[sure[k] as usize] / soft
                }));
                motion = RigidMotion::fit_weighted(from, to, |k| weights[k]);
            }
            let n_fits = (0..sure.len()).filter(|&k| misses(&motion, k) < FITS_M).count();
            if (n_fits as f32) < FITS_SHARE * sure.len() as f32 {
                continue;
            }
            for k in members.iter().map(|&k| k as usize) {
                let there = plus(&start[k], &motion.motion_of(&start[k]));
                if confidences[k] <= SURE_ENOUGH {
                    confidences[k] = SURE_ENOUGH;
                    at[k] = there;
                } else if distance(&there, &at[k]) < ALONE_M {
                    at[k] = there;
                }
            }
        }
    }
}
