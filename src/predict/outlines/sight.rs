//! Which ends of something are seen freely.

use crate::base::geometry::{Vec3, distance, dot, length, minus, plus};
use crate::predict::observation::Observation;

use super::course::Look;
use super::groups::{DIRECTIONS, Groups, N_DIRECTIONS};

/// An end is free if the place so far beyond it (m) is seen, and those so far beside that.
const BEYOND_M: f32 = 0.01;
/// What is nearer to the camera by more than this (m) is in front, if it is no farther aside than this (rad): as far
/// as points of a sample lie apart.
const IN_FRONT_M: f32 = 0.02;
const ASIDE_RAD: f32 = 0.03;
/// Points of an end: those no farther from it than this (m).
const OF_END_M: f32 = 0.006;
/// Share of the points that a camera must see of it to count.
const LEAST_SHARE: f32 = 0.05;

/// Looks from the cameras; its vectors are kept.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// Places of what may be in front (m), and the camera of each.
    in_front: Vec<(Vec3, u32)>,
    /// Points of each camera, of the group.
    n_seen: Vec<u32>,
}

impl Sight {
    /// Whether both ends along each direction of `group` are seen freely by all cameras that see it: nothing is in
    /// front of them, and they lie inside of the image and the box.
    pub fn look(
        &mut self,
        now: &Observation,
        groups: &Groups,
        group: u32,
        look: &Look,
    ) -> [bool; N_DIRECTIONS] {
        let center = look.center();
        let radius_m = 0.5 * length(&look.diagonal()) + BEYOND_M;
        self.in_front.clear();
        self.n_seen.clear();
        self.n_seen.resize(now.cloud.eyes.len(), 0);
        let mut n = 0;
        let mut arms = [[([0.0; 3], 0.0); 2]; N_DIRECTIONS];
        for (p, of, source) in groups.points(&now.cloud) {
            let camera = (source >> 24) as usize;
            if of == group {
                n += 1;
                if let Some(n_seen) = self.n_seen.get_mut(camera) {
                    *n_seen += 1;
                }
                gather(p, look, &mut arms);
            } else if let Some(eye) = now.cloud.eyes.get(camera) {
                let (to, way) = (minus(p, eye), minus(&center, eye));
                let (far, range) = (length(&way), length(&to));
                let aside = ASIDE_RAD + radius_m / far.max(radius_m);
                if range < far + radius_m && dot(&to, &way) > aside.min(1.5).cos() * far * range {
                    self.in_front.push((*p, camera as u32));
                }
            }
        }
        let is_free = |end: &Vec3| {
            self.n_seen.iter().enumerate().all(|(camera, &n_seen)| {
                (n_seen as f32) < LEAST_SHARE * n as f32 || self.is_free(now, camera, end)
            })
        };
        std::array::from_fn(|d| {
            [-1.0, 1.0].into_iter().zip(&arms[d]).all(|(sign, (sum, n))| {
                let end = sum.map(|x| x / n);
                is_free(&plus(&end, &DIRECTIONS[d].map(|x| sign * BEYOND_M * x)))
            })
        })
    }

    fn is_free(&self, now: &Observation, camera: usize, end: &Vec3) -> bool {
        // What is no number is not free.
        let eye = &now.cloud.eyes[camera];
        let way = minus(end, eye);
        let far = length(&way);
        let hides = |p: &Vec3| {
            let range = distance(p, eye);
            range + IN_FRONT_M < far && dot(&minus(p, eye), &way) > ASIDE_RAD.cos() * far * range
        };
        let mut in_front = self.in_front.iter().filter(|(_, of)| *of as usize == camera);
        // Where it is cut aslant, what is beyond is inside, but not what is beside.
        let beside = (0..6).map(|k| {
            let mut p = *end;
            p[k / 2] += [-BEYOND_M, BEYOND_M][k % 2];
            p
        });
        let mut around = beside.chain([*end]);
        far.is_finite()
            && around.all(|p| now.looked.sees_from(camera, &p))
            && !in_front.any(|(p, _)| hides(p))
    }
}

/// Adds a point to the sums of the ends that it is of.
fn gather(p: &Vec3, look: &Look, arms: &mut [[(Vec3, f32); 2]; N_DIRECTIONS]) {
    for ((direction, ends), arms) in DIRECTIONS.iter().zip(&look.ends).zip(arms) {
        let along = dot(p, direction);
        let is_of = [along < ends[0] + OF_END_M, along > ends[1] - OF_END_M];
        for ((sum, n), _) in arms.iter_mut().zip(is_of).filter(|(_, is_of)| *is_of) {
            *sum = plus(sum, p);
            *n += 1.0;
        }
    }
}
