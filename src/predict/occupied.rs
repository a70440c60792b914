//! What the scene will occupy: the points that it sweeps between now and a time, for planners and costmaps.
//!
//! Particles go straight from step to step. The robot is left out: what lies on its links and goes with them,
//! and what is nearer to one than [`OccupiedSettings::padding_m`] now. What its gripper holds stays in.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::base::geometry::{Vec3, length};
use crate::engine::motion_class::MotionClass;
use crate::predict::prediction::Prediction;
use crate::predict::robot_forecast::RobotNow;
use crate::{Error, Result};

/// Moments of a step at most that are looked at.
const MAX_MOMENTS: usize = 64;

/// How densely, and how far from the robot.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OccupiedSettings {
    /// Side of a voxel (m), which has a point once, with its earliest time.
    pub voxel_m: f32,
    /// Particles nearer to the robot's surface than this (m) are left out: taken for it.
    pub padding_m: f32,
}

impl Default for OccupiedSettings {
    fn default() -> Self {
        Self { voxel_m: 0.02, padding_m: 0.02 }
    }
}

/// A place that the scene occupies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OccupiedPoint {
    /// Where it is (world frame, m).
    pub position: Vec3,
    /// When it is first there, from the frame's stamp (s).
    pub time_secs: f32,
    /// Half of all errors of the position are no larger (m); 0 now, NaN of models that don't tell.
    pub sigma_m: f32,
}

impl Prediction {
    /// Points that the scene sweeps from now until `until_secs`, by ascending time: those until an earlier time
    /// are the first ones.
    ///
    /// # Errors
    /// [`Error::Config`] for a time that is not within the prediction, or settings that make no sense.
    pub fn occupied(
        &self,
        until_secs: f64,
        settings: &OccupiedSettings,
    ) -> Result<Vec<OccupiedPoint>> {
        settings.validate()?;
        let horizon_secs = self.displacements.len() as f64 * self.step_secs;
        // A step's length has no exact number: what is meant is the last step.
        if !(0.0..=horizon_secs + 1e-6).contains(&until_secs) {
            let problem =
                format!("{until_secs} s is not in 0..={horizon_secs} s, the prediction's time");
            return Err(Error::Config { key: "occupied".into(), problem });
        }
        Ok(Sweep::new(self, settings).run(until_secs))
    }
}

impl OccupiedSettings {
    /// Checks all values.
    ///
    /// # Errors
    /// [`Error::Config`] names the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        crate::predict::config::check("voxel_m", self.voxel_m, 0.001..=1.0, " m")?;
        crate::predict::config::check("padding_m", self.padding_m, 0.0..=1.0, " m")
    }
}

type Voxel = [i32; 3];

/// Particles on their way, and the voxels that have a point.
struct Sweep<'a> {
    prediction: &'a Prediction,
    voxel_m: f32,
    /// Numbers of the particles that are not the robot's.
    scene: Vec<usize>,
    /// Where each of them is before the step at hand, and in which voxel it was seen last.
    places: Vec<Vec3>,
    voxels: Vec<Option<Voxel>>,
    filled: HashSet<Voxel>,
    points: Vec<OccupiedPoint>,
}

impl<'a> Sweep<'a> {
    fn new(prediction: &'a Prediction, settings: &OccupiedSettings) -> Self {
        let robot = RobotNow::new(&prediction.links, settings.padding_m);
        let positions = &prediction.particles.positions;
        let scene = |i: &usize| {
            prediction.situations.get(*i) != Some(&MotionClass::Robot)
                && !robot.is_near(&positions[*i])
        };
        let scene: Vec<usize> = (0..positions.len()).filter(scene).collect();
        Self {
            prediction,
            voxel_m: settings.voxel_m,
            places: scene.iter().map(|&i| positions[i]).collect(),
            voxels: vec![None; scene.len()],
            filled: HashSet::with_capacity(2 * scene.len()),
            points: Vec::with_capacity(scene.len()),
            scene,
        }
    }

    fn run(mut self, until_secs: f64) -> Vec<OccupiedPoint> {
        let told = !self.prediction.told_sigmas(0).is_empty();
        for j in 0..self.scene.len() {
            self.fill(j, self.places[j], 0.0, if told { 0.0 } else { f32::NAN });
        }
        let until = until_secs / self.prediction.step_secs.max(f64::MIN_POSITIVE);
        let n_steps = (until.ceil() as usize).min(self.prediction.displacements.len());
        for step in 0..n_steps {
            self.step(step, (until - step as f64).min(1.0) as f32);
        }
        self.points
    }

    /// Goes on by `share` of a step, all particles from moment to moment together: so the first to fill a voxel
    /// is the earliest.
    fn step(&mut self, step: usize, share: f32) {
        let ways = &self.prediction.displacements[step];
        let longest = self.scene.iter().map(|&i| length(&ways[i])).fold(0.0, f32::max);
        let n_moments = ((2.0 * longest / self.voxel_m).ceil() as usize).clamp(1, MAX_MOMENTS);
        let moving: Vec<usize> =
            (0..self.scene.len()).filter(|&j| ways[self.scene[j]] != [0.0; 3]).collect();
        for moment in 1..=n_moments {
            let part = share * moment as f32 / n_moments as f32;
            for &j in &moving {
                let (i, from) = (self.scene[j], self.places[j]);
                let at = std::array::from_fn(|axis| from[axis] + part * ways[i][axis]);
                let steps = step as f32 + part;
                self.fill(
                    j,
                    at,
                    (f64::from(steps) * self.prediction.step_secs) as f32,
                    self.sigma(i, step, part),
                );
            }
        }
        for j in moving {
            let way = &ways[self.scene[j]];
            self.places[j].iter_mut().zip(way).for_each(|(x, dx)| *x += dx);
        }
    }

    /// Radius of half of the errors of particle `i` after a part of a step (0-based).
    fn sigma(&self, i: usize, step: usize, part: f32) -> f32 {
        let of = |step: usize| self.prediction.told_sigmas(0).get(step)?.get(i).copied();
        let Some(after) = of(step) else { return f32::NAN };
        let before = step.checked_sub(1).map_or(Some(0.0), of).unwrap_or(after);
        before + part * (after - before)
    }

    /// Puts a point into its voxel, unless that has one.
    fn fill(&mut self, j: usize, position: Vec3, time_secs: f32, sigma_m: f32) {
        if !position.iter().all(|x| x.is_finite()) {
            return;
        }
        let voxel = position.map(|x| (x / self.voxel_m).floor() as i32);
        if self.voxels[j] == Some(voxel) {
            return;
        }
        self.voxels[j] = Some(voxel);
        if self.filled.insert(voxel) {
            self.points.push(OccupiedPoint { position, time_secs, sigma_m });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One particle goes along x by 5 cm in each of four steps of 0.1 s, one stands; both are of a class.
    fn prediction(class: MotionClass) -> Prediction {
        let mut prediction = Prediction {
            displacements: vec![vec![[0.05, 0.0, 0.0], [0.0; 3]]; 4],
            sigmas: [1.0, 3.0]
                .map(|k| (1..=4).map(|step| vec![0.001 * k * step as f32; 2]).collect()),
            situations: vec![class; 2],
            step_secs: 0.1,
            ..Prediction::default()
        };
        prediction.particles.positions = vec![[0.01, 0.01, 0.01], [0.5, 0.01, 0.01]];
        prediction
    }

    #[test]
    fn each_voxel_on_the_way_has_a_point_once_with_its_earliest_time() {
        let prediction = prediction(MotionClass::Moving);
        let points = prediction.occupied(0.4, &OccupiedSettings::default()).unwrap();
        let voxel = |p: &OccupiedPoint| (p.position[0] / 0.02).floor() as i32;
        let mut voxels: Vec<i32> = points.iter().map(voxel).collect();
        voxels.sort_unstable();
        assert_eq!(voxels, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 25], "none is stepped over");
        assert!(points.is_sorted_by(|a, b| a.time_secs <= b.time_secs));
        for p in points.iter().filter(|p| p.position[0] < 0.4) {
            let at = (p.position[0] - 0.01) / 0.5;
            assert!((p.time_secs - at).abs() < 1e-5, "{p:?}");
            assert!((p.sigma_m - 0.01 * at).abs() < 1e-6, "{p:?}");
        }
        // What is asked until an earlier time is the beginning of it.
        let half = prediction.occupied(0.2, &OccupiedSettings::default()).unwrap();
        assert_eq!(half, points[..half.len()]);
        assert!(half.len() < points.len() && half.iter().all(|p| p.time_secs <= 0.2 + 1e-6));
        assert_eq!(prediction.occupied(0.0, &OccupiedSettings::default()).unwrap().len(), 2);
    }

    #[test]
    fn the_robot_is_left_out_and_times_outside_are_refused() {
        let robot = prediction(MotionClass::Robot);
        assert_eq!(robot.occupied(0.4, &OccupiedSettings::default()).unwrap(), []);
        let moving = prediction(MotionClass::Moving);
        for until in [-0.1, 0.41, f64::NAN, f64::INFINITY] {
            let error = moving.occupied(until, &OccupiedSettings::default()).unwrap_err();
            assert!(error.to_string().contains("is not in 0..=0.4"), "{error}");
        }
        let none = OccupiedSettings { voxel_m: 0.0, ..OccupiedSettings::default() };
        assert!(moving.occupied(0.1, &none).unwrap_err().to_string().starts_with("voxel_m: "));
        assert_eq!(Prediction::default().occupied(0.0, &OccupiedSettings::default()).unwrap(), []);
    }

    #[test]
    fn what_is_near_to_the_robot_is_taken_for_it_and_what_it_will_pass_is_not() {
        // The block's side is at 5 cm; it goes by 50 cm in a second.
        let places = [[0.06, 0.0, 0.0], [0.08, 0.0, 0.0], [0.3, 0.0, 0.0]];
        let prediction = crate::predict::contacts::tests::prediction(
            &places,
            &[[0.0; 3]; 3],
            [0.01, 0.02],
            0.05,
        );
        let points = |padding_m| {
            let settings = OccupiedSettings { padding_m, ..OccupiedSettings::default() };
            let points = prediction.occupied(1.0, &settings).unwrap();
            points.into_iter().map(|p| p.position[0]).collect::<Vec<f32>>()
        };
        assert_eq!(points(0.02), [0.08, 0.3]);
        assert_eq!(points(0.0), [0.06, 0.08, 0.3]);
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        let mut prediction = prediction(MotionClass::Moving);
        prediction.displacements[1] = vec![[f32::NAN; 3]; 2];
        prediction.particles.positions[1] = [f32::INFINITY; 3];
        let points = prediction.occupied(0.4, &OccupiedSettings::default()).unwrap();
        assert!(
            !points.is_empty() && points.iter().all(|p| p.position.iter().all(|x| x.is_finite()))
        );
    }
}
