//! Pairs of link and object, of all ways that meet.

use std::collections::BTreeMap;

use nalgebra::{Isometry3, Point3};

use super::way::{Link, Met};
use super::{AROUND_TOUCH_M, Contact, ContactSettings, Contacts, FARTHEST, OWN_M};
use crate::base::geometry::{Vec3, add, squared_distance};
use crate::engine::motion_class::MotionClass;
use crate::predict::prediction::Prediction;
use crate::predict::robot_forecast::RobotNow;

/// All pairs of `prediction`.
pub(super) fn find(prediction: &Prediction, settings: &ContactSettings) -> Contacts {
    let links = &prediction.links;
    let n_steps = prediction.displacements.len().min(links.rows().len().saturating_sub(1));
    let mut found = Contacts {
        horizon_secs: (prediction.step_secs * prediction.displacements.len() as f64) as f32,
        ..Contacts::default()
    };
    let Some(robot) = links.robot.as_deref().filter(|_| n_steps > 0) else { return found };
    found.has_robot = true;
    let ways = Ways::new(prediction, n_steps, settings);
    for (number, name) in robot.names_of_links().enumerate() {
        let poses = links.rows().take(n_steps + 1).filter_map(|row| row.get(number));
        let from_world: Vec<Isometry3<f32>> = poses.clone().map(Isometry3::inverse).collect();
        let bounds = robot.bounds_of_link(number);
        let Some(swept) = swept(bounds, poses) else { continue };
        let link = Link { robot, number, from_world, bounds, touch_m: settings.touch_m };
        let of_link = ways.of_link(&link, &swept);
        let pairs =
            of_link.into_iter().filter(|(_, pair)| pair.probability >= settings.min_probability);
        found.contacts.extend(pairs.map(|(object, pair)| Contact {
            link: name.to_owned(),
            object,
            time_secs: (f64::from(pair.steps) * prediction.step_secs) as f32,
            min_distance_m: pair.min_m,
            place: pair.place,
            probability: pair.probability,
        }));
    }
    // Stable: of the same probability, in the order of links and objects.
    found.contacts.sort_by(|a, b| b.probability.total_cmp(&a.probability));
    found
}

/// The box that a link sweeps; none without a surface.
fn swept<'a>(
    [min, max]: [Vec3; 2],
    poses: impl Iterator<Item = &'a Isometry3<f32>>,
) -> Option<[Vec3; 2]> {
    if (0..3).any(|axis| min[axis] > max[axis]) {
        return None;
    }
    let mut swept = [[f32::INFINITY; 3], [f32::NEG_INFINITY; 3]];
    for pose in poses {
        for corner in 0..8 {
            let at = |axis: usize| if corner >> axis & 1 == 0 { min[axis] } else { max[axis] };
            include(&mut swept, &Vec3::from((pose * Point3::new(at(0), at(1), at(2))).coords));
        }
    }
    Some(swept)
}

fn include([min, max]: &mut [Vec3; 2], p: &Vec3) {
    *min = std::array::from_fn(|axis| min[axis].min(p[axis]));
    *max = std::array::from_fn(|axis| max[axis].max(p[axis]));
}

/// The ways of all particles.
struct Ways<'a> {
    prediction: &'a Prediction,
    /// Where each particle is now and after each step, `[n_steps + 1][n]`.
    places: Vec<Vec<Vec3>>,
    /// Box about each way and what may be reached from it.
    boxes: Vec<[Vec3; 2]>,
    is_robot: Vec<bool>,
    robot: RobotNow<'a>,
    /// Objects that move and are near to the robot now, ascending: it may carry them.
    in_hand: Vec<u64>,
}

/// What came of the ways of one object past a link.
struct Pair {
    probability: f32,
    min_m: f32,
    /// When they first touch, or are nearest.
    steps: f32,
    /// Whether they are expected to touch.
    touches: bool,
    place: Vec3,
}

impl<'a> Ways<'a> {
    fn new(prediction: &'a Prediction, n_steps: usize, settings: &ContactSettings) -> Self {
        let mut places = vec![prediction.particles.positions.clone()];
        for step in &prediction.displacements[..n_steps] {
            let mut next = places[places.len() - 1].clone();
            next.iter_mut().zip(step).for_each(|(p, way)| add(p, way));
            places.push(next);
        }
        let n = prediction.particles.len();
        let farthest = prediction.told_sigmas(1).get(n_steps - 1);
        let around = |i: usize| {
            let mut around = [[f32::INFINITY; 3], [f32::NEG_INFINITY; 3]];
            places.iter().for_each(|row| include(&mut around, &row[i]));
            let radius = farthest.and_then(|radii| radii.get(i)).copied().unwrap_or(0.0);
            let reach = settings.touch_m + (FARTHEST * radius).min(super::way::MAX_REACH_M);
            [around[0].map(|x| x - reach), around[1].map(|x| x + reach)]
        };
        let boxes = (0..n).map(around).collect();
        let is_robot = |i| prediction.situations.get(i) == Some(&MotionClass::Robot);
        let is_robot = (0..n).map(is_robot).collect();
        let robot = RobotNow::new(&prediction.links, OWN_M);
        let mut ways = Self { prediction, places, boxes, is_robot, robot, in_hand: Vec::new() };
        ways.in_hand = ways.find_in_hand();
        ways
    }

    fn find_in_hand(&self) -> Vec<u64> {
        let moving = (0..self.boxes.len()).filter(|&i| self.is(i, MotionClass::Moving));
        let near = moving.filter(|&i| self.robot.is_near(&self.places[0][i]));
        let mut objects: Vec<u64> = near.filter_map(|i| self.object(i)).collect();
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    fn is(&self, i: usize, class: MotionClass) -> bool {
        self.prediction.situations.get(i) == Some(&class)
    }

    /// Number of the object of a particle; none of what is of none.
    fn object(&self, i: usize) -> Option<u64> {
        self.prediction.objects.number_of.get(i).copied().filter(|&number| number != 0)
    }

    /// Pairs of a link that sweeps the box `swept`.
    fn of_link(&self, link: &Link, swept: &[Vec3; 2]) -> BTreeMap<Option<u64>, Pair> {
        let meets = |around: &[Vec3; 2]| {
            (0..3)
                .all(|axis| around[0][axis] <= swept[1][axis] && swept[0][axis] <= around[1][axis])
        };
        let near: Vec<usize> = (0..self.boxes.len()).filter(|&i| meets(&self.boxes[i])).collect();
        let touching = near.iter().copied().filter(|&i| link.touches_now(&self.places[0][i]));
        let touching: Vec<usize> = touching.collect();
        let touched: Vec<Option<u64>> = touching.iter().map(|&i| self.object(i)).collect();
        let mut pairs = BTreeMap::new();
        for i in near.into_iter().filter(|&i| !self.is_robot[i]) {
            let object = self.object(i);
            if object.is_some() && touched.contains(&object) {
                continue;
            }
            let Some((met, stays)) = self.meet(link, i) else { continue };
            let touches_beside = |j: &usize| {
                let square = squared_distance(&self.places[0][i], &self.places[0][*j]);
                square < AROUND_TOUCH_M * AROUND_TOUCH_M
            };
            if object.is_none() && touching.iter().any(touches_beside) {
                continue;
            }
            self.add(i, &met, stays, pairs.entry(object).or_insert_with(Pair::none));
        }
        pairs
    }

    /// How particle `i` meets a link, and whether it does so where it is now.
    fn meet(&self, link: &Link, i: usize) -> Option<(Met, bool)> {
        let goes = link.meet(self.places.iter().map(|row| row[i]), |step| self.radii(step, i));
        // What flies does not stop by itself, nor what the robot carries.
        let is_in_hand =
            || self.object(i).is_some_and(|of| self.in_hand.binary_search(&of).is_ok());
        let may_stop = || self.is(i, MotionClass::Moving) && !is_in_hand();
        if !self.is(i, MotionClass::Resting) && !may_stop() {
            return goes.map(|met| (met, false));
        }
        let here = self.places.iter().map(|_| self.places[0][i]);
        // As sure as it is in the first step.
        let stays = link.meet(here, |_| self.radii(0, i));
        let of = |met: &Option<Met>| met.map_or(-1.0, |met| met.probability);
        let (before, after) = (of(&goes), of(&stays));
        if after <= before || self.robot.is_near(&self.places[0][i]) {
            return goes.map(|met| (met, false));
        }
        // What comes is met sooner than where it is now.
        let first = |met: &Option<Met>| met.and_then(|met| met.touch).unwrap_or(f32::INFINITY);
        if first(&goes) < first(&stays) {
            return goes.map(|met| (Met { probability: after, ..met }, false));
        }
        stays.map(|met| (met, true))
    }

    /// Radii after a step (0-based) within which half, and nine of ten, of the errors of particle `i` are.
    fn radii(&self, step: usize, i: usize) -> Option<[f32; 2]> {
        let of = |level| self.prediction.told_sigmas(level).get(step)?.get(i).copied();
        Some([of(0)?, of(1)?])
    }

    fn add(&self, i: usize, met: &Met, stays: bool, pair: &mut Pair) {
        pair.probability = pair.probability.max(met.probability);
        let is_first = match met.touch {
            Some(steps) => !pair.touches || steps < pair.steps,
            None => !pair.touches && met.nearest.0 < pair.min_m,
        };
        pair.min_m = pair.min_m.min(met.nearest.0);
        if is_first {
            pair.touches = met.touch.is_some();
            pair.steps = met.touch.unwrap_or(met.nearest.1);
            pair.place = if stays { self.places[0][i] } else { self.place(i, pair.steps) };
        }
    }

    /// Where particle `i` is after so many steps.
    fn place(&self, i: usize, steps: f32) -> Vec3 {
        let last = self.places.len() - 1;
        let before = (steps as usize).min(last);
        let [from, to] = [before, (before + 1).min(last)].map(|row| self.places[row][i]);
        let share = steps - before as f32;
        std::array::from_fn(|axis| from[axis] + share * (to[axis] - from[axis]))
    }
}

impl Pair {
    fn none() -> Self {
        let (min_m, place) = (f32::INFINITY, [0.0; 3]);
        Self { probability: 0.0, min_m, steps: 0.0, touches: false, place }
    }
}
