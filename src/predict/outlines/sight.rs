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

/// Something goes along itself if its ends are so far apart (m), and that is so much along a direction (cosine).
const LONG_M: f32 = 0.05;
const ALONG: f32 = 0.9;
/// What is less along it (cosine) is across.
const ACROSS: f32 = 0.35;

/// Which ends along a direction tell how something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Neither.
    None,
    /// The low one (0) or the high one (1): the border cuts the other, which lies behind it. What comes into view
    /// along itself does not grow.
    One(usize),
    /// Both.
    Both,
}

/// How one end is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Free,
    /// The border of the image or the box cuts it.
    Cut,
    Hidden,
}

/// Looks from the cameras; its vectors are kept.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// Places of what may be in front (m), and the camera of each.
    in_front: Vec<(Vec3, u32)>,
    /// Points of each camera, of the group.
    n_seen: Vec<u32>,
}

impl Sight {
    /// Which ends along each direction of `group` tell. An end is free if all cameras that see the group see it so:
    /// nothing is in front of it, and it lies inside of the image and the box.
    pub fn look(
        &mut self,
        now: &Observation,
        groups: &Groups,
        group: u32,
        look: &Look,
    ) -> [Seen; N_DIRECTIONS] {
        let mut arms = [[([0.0; 3], 0.0); 2]; N_DIRECTIONS];
        self.gather(now, groups, group, look, &mut arms);
        // From the end that is cut to the free one.
        let mut length = None;
        let mut seen = std::array::from_fn(|d| {
            let [low, high] = arms[d].map(|(sum, n)| sum.map(|x: f32| x / n));
            let end = |at: &Vec3, sign: f32| {
                self.end(now, &plus(at, &DIRECTIONS[d].map(|x| sign * BEYOND_M * x)))
            };
            let length_m = distance(&low, &high);
            let along_m = dot(&minus(&high, &low), &DIRECTIONS[d]).abs();
            let is_along = length_m >= LONG_M && along_m >= ALONG * length_m;
            let seen = match (end(&low, -1.0), end(&high, 1.0)) {
                (End::Free, End::Free) => Seen::Both,
                (End::Free, End::Cut) if is_along => Seen::One(0),
                (End::Cut, End::Free) if is_along => Seen::One(1),
                _ => Seen::None,
            };
            if matches!(seen, Seen::One(_)) {
                length = Some(minus(&high, &low).map(|x| x / length_m));
            }
            seen
        });
        // What is cut ends nowhere else along itself.
        if let Some(length) = length {
            for (seen, direction) in seen.iter_mut().zip(&DIRECTIONS) {
                if *seen == Seen::Both && dot(&length, direction).abs() > ACROSS {
                    *seen = Seen::None;
                }
            }
        }
        seen
    }

    /// Finds the points of the ends of `group`, how many of it each camera sees, and what may be in front.
    fn gather(
        &mut self,
        now: &Observation,
        groups: &Groups,
        group: u32,
        look: &Look,
        arms: &mut [[(Vec3, f32); 2]; N_DIRECTIONS],
    ) {
        let center = look.center();
        let radius_m = 0.5 * length(&look.diagonal()) + BEYOND_M;
        self.in_front.clear();
        self.n_seen.clear();
        self.n_seen.resize(now.cloud.eyes.len(), 0);
        for (p, of, source) in groups.points(&now.cloud) {
            let camera = (source >> 24) as usize;
            if of == group {
                if let Some(n_seen) = self.n_seen.get_mut(camera) {
                    *n_seen += 1;
                }
                gather(p, look, arms);
            } else if let Some(eye) = now.cloud.eyes.get(camera) {
                let (to, way) = (minus(p, eye), minus(&center, eye));
                let (far, range) = (length(&way), length(&to));
                let aside = ASIDE_RAD + radius_m / far.max(radius_m);
                if range < far + radius_m && dot(&to, &way) > aside.min(1.5).cos() * far * range {
                    self.in_front.push((*p, camera as u32));
                }
            }
        }
    }

    /// How the place `beyond` an end is seen by all cameras that see the group.
    fn end(&self, now: &Observation, beyond: &Vec3) -> End {
        let least = LEAST_SHARE * self.n_seen.iter().sum::<u32>() as f32;
        let cameras = self.n_seen.iter().enumerate().filter(|(_, n)| **n as f32 >= least);
        let mut ends = cameras.map(|(camera, _)| self.end_from(now, camera, beyond));
        let first = ends.next().unwrap_or(End::Hidden);
        if ends.all(|end| end == first) { first } else { End::Hidden }
    }

    fn end_from(&self, now: &Observation, camera: usize, beyond: &Vec3) -> End {
        let eye = &now.cloud.eyes[camera];
        let way = minus(beyond, eye);
        let far = length(&way);
        let hides = |p: &Vec3| {
            let range = distance(p, eye);
            range + IN_FRONT_M < far && dot(&minus(p, eye), &way) > ASIDE_RAD.cos() * far * range
        };
        let mut in_front = self.in_front.iter().filter(|(_, of)| *of as usize == camera);
        // What is no number is not free.
        if !far.is_finite() || in_front.any(|(p, _)| hides(p)) {
            return End::Hidden;
        }
        // Where it is cut aslant, what is beyond is inside, but not what is beside.
        let beside = (0..6).map(|k| {
            let mut p = *beyond;
            p[k / 2] += [-BEYOND_M, BEYOND_M][k % 2];
            p
        });
        let is_inside = beside.chain([*beyond]).all(|p| now.looked.sees_from(camera, &p));
        if is_inside { End::Free } else { End::Cut }
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
