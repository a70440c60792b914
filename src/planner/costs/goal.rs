//! What plans are judged by, as `msg/Goal.msg` has it.

use serde::{Deserialize, Serialize};

use super::Sight;
use crate::robot::kinematics::NO_LINK;
use crate::vision::motion::NO_BODY;
use crate::{Error, Result};

/// Points of a target cloud at most.
pub const MAX_CLOUD: usize = 1024;
/// Boxes that nothing may enter at most.
pub const MAX_KEEP_OUT: usize = 64;
/// A body is selected by a place no farther from it (m): what lies farther off was hardly meant.
const MAX_OFF_M: f64 = 0.5;
/// Weights and sigmas at most: beyond, sums of terms lose their digits.
const MAX_WEIGHT: f64 = 1e6;

/// A box whose faces lie along the axes of the world frame.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Lower corner (m).
    pub min: [f64; 3],
    /// Upper corner (m).
    pub max: [f64; 3],
}

impl Zone {
    /// The least box about points; of none it contains nothing.
    pub fn around(points: &[[f64; 3]]) -> Self {
        let mut zone = Self { min: [f64::INFINITY; 3], max: [f64::NEG_INFINITY; 3] };
        for p in points {
            for (axis, &x) in p.iter().enumerate() {
                zone.min[axis] = zone.min[axis].min(x);
                zone.max[axis] = zone.max[axis].max(x);
            }
        }
        zone
    }

    /// The least box about points in single precision.
    pub fn around_points(points: &[crate::base::geometry::Vec3]) -> Self {
        let mut zone = Self::around(&[]);
        for p in points {
            for (axis, &x) in p.iter().enumerate() {
                zone.min[axis] = zone.min[axis].min(x.into());
                zone.max[axis] = zone.max[axis].max(x.into());
            }
        }
        zone
    }

    /// With `by` (m) more on every side.
    pub fn grown(&self, by: f64) -> Self {
        Self { min: self.min.map(|x| x - by), max: self.max.map(|x| x + by) }
    }

    /// Whether `p` lies in it, its faces included.
    pub fn contains(&self, p: &[f64; 3]) -> bool {
        (0..3).all(|axis| (self.min[axis]..=self.max[axis]).contains(&p[axis]))
    }

    /// The point of it that lies nearest to `p`.
    pub fn nearest(&self, p: &[f64; 3]) -> [f64; 3] {
        std::array::from_fn(|axis| p[axis].max(self.min[axis]).min(self.max[axis]))
    }

    /// Way from `p` in it to its nearest face (m); 0 outside.
    pub fn depth(&self, p: &[f64; 3]) -> f64 {
        let depth = |axis: usize| (p[axis] - self.min[axis]).min(self.max[axis] - p[axis]);
        (0..3).map(depth).fold(f64::INFINITY, f64::min).max(0.0)
    }

    /// Its middle.
    pub fn center(&self) -> [f64; 3] {
        std::array::from_fn(|axis| 0.5 * (self.min[axis] + self.max[axis]))
    }

    fn check(&self, field: &str) -> Result<()> {
        let numbers = || self.min.iter().chain(&self.max);
        if !numbers().all(|x| x.is_finite()) {
            return refused(field, format!("{:?} to {:?} is not finite", self.min, self.max));
        }
        match (0..3).find(|&axis| self.min[axis] > self.max[axis]) {
            Some(axis) => {
                let (min, max) = (self.min[axis], self.max[axis]);
                let axis = ["x", "y", "z"][axis];
                refused(field, format!("min {axis} {min} is above max {axis} {max}: swap them"))
            }
            None => Ok(()),
        }
    }
}

/// Pixels of a camera's depth image.
#[derive(Debug, Clone, PartialEq)]
pub struct Mask {
    /// Number of the camera.
    pub camera: usize,
    /// Width and height, those of the depth image.
    pub size: [u32; 2],
    /// Whether each pixel is the target's, row by row.
    pub pixels: Vec<bool>,
}

/// Which particles are to be moved: the target.
#[derive(Debug, Clone, PartialEq)]
pub enum Select {
    /// All that lie in a box now.
    Region(Zone),
    /// Those that come from pixels of a mask.
    Pixels(Mask),
    /// The body, as the motion estimate groups particles, that lies nearest to a point (m).
    Body([f64; 3]),
}

/// Where the target is to be after the last step.
#[derive(Debug, Clone, PartialEq)]
pub enum Reach {
    /// In a box: mean distance of its particles to it.
    Box(Zone),
    /// On a cloud (m): mean of both ways' nearest distances.
    Cloud(Vec<[f64; 3]>),
    /// Moved as a rigid body, p ↦ rotation · p + translation: mean distance of each particle to there.
    Pose {
        /// Unit quaternion x, y, z, w.
        rotation: [f64; 4],
        /// Metres.
        translation: [f64; 3],
    },
}

/// A goal; `Default` of the weights is that of `msg/Goal.msg`.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// The target.
    pub select: Select,
    /// Where it is to be.
    pub reach: Reach,
    /// Weight of the distance.
    pub reach_weight: f64,
    /// A plan is a success if that distance is at most so much (m).
    pub tolerance: f64,
    /// Boxes that nothing but the robot's particles may enter.
    pub keep_out: Vec<Zone>,
    /// Weight of intrusion.
    pub keep_out_weight: f64,
    /// Weight of what everything else is displaced by.
    pub leave_weight: f64,
    /// Wanted clearance of the robot to what is not the target (m).
    pub clearance: f64,
    /// Weight of what falls short of it.
    pub clearance_weight: f64,
    /// Sigmas that are added to means.
    pub kappa: f64,
    /// Weight of the joints' path length.
    pub length_weight: f64,
    /// Weight of the joints' accelerations.
    pub smoothness_weight: f64,
}

impl Goal {
    /// A goal of usual weights.
    pub fn new(select: Select, reach: Reach) -> Self {
        Self {
            select,
            reach,
            reach_weight: 1.0,
            tolerance: 0.03,
            keep_out: Vec::new(),
            keep_out_weight: 1.0,
            leave_weight: 0.0,
            clearance: 0.02,
            clearance_weight: 0.0,
            kappa: 0.0,
            length_weight: 0.0,
            smoothness_weight: 0.0,
        }
    }

    /// Checks all numbers.
    ///
    /// # Errors
    /// [`Error::Goal`] names the field and the remedy.
    pub fn validate(&self) -> Result<()> {
        self.check_numbers()?;
        if self.clearance > 1.0 {
            return refused("clearance", format!("{} m is more than 1 m", self.clearance));
        }
        let n_boxes = self.keep_out.len();
        if n_boxes > MAX_KEEP_OUT {
            return refused("keep_out", format!("{n_boxes} boxes, at most {MAX_KEEP_OUT}"));
        }
        self.keep_out.iter().try_for_each(|zone| zone.check("keep_out"))?;
        match &self.select {
            Select::Region(zone) => zone.check("region")?,
            Select::Body(point) if !point.iter().all(|x| x.is_finite()) => {
                return refused("point", format!("{point:?} is not finite"));
            }
            Select::Body(_) | Select::Pixels(_) => {}
        }
        match &self.reach {
            Reach::Box(zone) => zone.check("box"),
            Reach::Cloud(points) if points.is_empty() => refused("cloud", "it has no points"),
            Reach::Cloud(points) if points.len() > MAX_CLOUD => refused(
                "cloud",
                format!("{} points, at most {MAX_CLOUD}: thin it out", points.len()),
            ),
            Reach::Cloud(points) if !points.as_flattened().iter().all(|x| x.is_finite()) => {
                refused("cloud", "a point is not finite")
            }
            Reach::Pose { rotation, translation } => {
                let norm = rotation.iter().map(|x| x * x).sum::<f64>().sqrt();
                if !translation.iter().all(|x| x.is_finite()) {
                    refused("motion", format!("translation {translation:?} is not finite"))
                } else if !norm.is_finite() || (norm - 1.0).abs() >= 1e-3 {
                    refused(
                        "motion",
                        format!(
                            "the quaternion's norm is {norm}, not 1; no rotation is 0, 0, 0, 1"
                        ),
                    )
                } else {
                    Ok(())
                }
            }
            Reach::Cloud(_) => Ok(()),
        }
    }
}

impl Goal {
    fn weights(&self) -> [(&'static str, f64); 6] {
        [
            ("reach_weight", self.reach_weight),
            ("keep_out_weight", self.keep_out_weight),
            ("leave_weight", self.leave_weight),
            ("clearance_weight", self.clearance_weight),
            ("length_weight", self.length_weight),
            ("smoothness_weight", self.smoothness_weight),
        ]
    }

    fn check_numbers(&self) -> Result<()> {
        let weights = self.weights();
        let lengths = [("tolerance", self.tolerance), ("clearance", self.clearance)];
        let weighs = weights.into_iter().chain([("kappa", self.kappa)]);
        for (field, value) in lengths.into_iter().chain(weighs.clone()) {
            if !(value.is_finite() && value >= 0.0) {
                return refused(field, format!("{value} is not a number from 0 up"));
            }
        }
        for (field, value) in weighs {
            if value > MAX_WEIGHT {
                return refused(
                    field,
                    format!("{value} is more than {MAX_WEIGHT}: scale all down"),
                );
            }
        }
        // Without boxes there is nothing to keep out of.
        let weighs = |(field, weight)| {
            weight > 0.0 && (field != "keep_out_weight" || !self.keep_out.is_empty())
        };
        match weights.into_iter().any(weighs) {
            true => Ok(()),
            false => refused("reach_weight", "all weights are 0: nothing to choose by"),
        }
    }
}

impl Select {
    /// Whether each particle is the target's.
    ///
    /// # Errors
    /// [`Error::Goal`] if none is, with the remedy.
    pub(super) fn of(&self, sight: &Sight) -> Result<Vec<bool>> {
        let places = sight.positions.iter().map(|p| p.map(f64::from));
        let is_robot = |i: usize| sight.on_links.get(i).is_some_and(|&link| link != NO_LINK);
        let mut found: Vec<bool> = match self {
            Self::Region(zone) => places.map(|p| zone.contains(&p)).collect(),
            Self::Pixels(mask) => mask.of(sight)?,
            Self::Body(point) => {
                let off = |i: usize| distance(&sight.positions[i].map(f64::from), point);
                let bodies = sight.body_of.iter().enumerate();
                let bodies = bodies.filter(|(i, body)| **body != NO_BODY && !is_robot(*i));
                let nearest = bodies.min_by(|a, b| off(a.0).total_cmp(&off(b.0)));
                let Some((i, body)) = nearest else {
                    return refused(
                        "point",
                        "no body was found in this frame (all lies on the support plane, or the \
                         model estimates no motion): select a region instead",
                    );
                };
                if off(i) > MAX_OFF_M {
                    return refused(
                        "point",
                        format!(
                            "the nearest body is {:.2} m from {point:?}: give a place on it or no more \
                             than {MAX_OFF_M} m off, in metres, in the world frame",
                            off(i)
                        ),
                    );
                }
                sight.body_of.iter().map(|other| other == body).collect()
            }
        };
        // The robot is not to be moved by itself.
        found.iter_mut().enumerate().for_each(|(i, found)| *found &= !is_robot(i));
        if found.iter().any(|&is| is) {
            return Ok(found);
        }
        match self {
            Self::Region(Zone { min, max }) => refused(
                "region",
                format!(
                    "no particle lies in {min:?} to {max:?} (m, world frame), the robot's left \
                     out: look at where the target is, or at the workspace"
                ),
            ),
            _ => refused(
                "mask",
                "none of the particles comes from its pixels: they lie outside of the workspace, \
                 on the robot, or without depth; mark more of the target",
            ),
        }
    }
}

impl Mask {
    fn of(&self, sight: &Sight) -> Result<Vec<bool>> {
        let [width, height] = self.size;
        if self.pixels.len() as u64 != u64::from(width) * u64::from(height) {
            return refused(
                "mask",
                format!("{} pixels, not {width} x {height}", self.pixels.len()),
            );
        }
        match sight.image_sizes.get(self.camera) {
            Some(Some(size)) if *size == self.size => {}
            Some(Some([w, h])) => {
                return refused(
                    "mask",
                    format!("{width} x {height} pixels, where the depth image has {w} x {h}"),
                );
            }
            _ => {
                let camera = self.camera;
                return refused(
                    "mask_camera",
                    format!("no depth image of camera {camera} is part of this frame"),
                );
            }
        }
        if !self.pixels.iter().any(|&is| is) {
            return refused("mask", "it is empty: pixels that are not 0 are the target's");
        }
        let is_marked = |&source: &u32| {
            let is_here = (source >> 24) as usize == self.camera;
            is_here && self.pixels.get((source & 0x00ff_ffff) as usize) == Some(&true)
        };
        Ok(sight.sources.iter().map(is_marked).collect())
    }
}

/// Distance of two points.
pub(super) fn distance(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    (0..3).map(|axis| (a[axis] - b[axis]) * (a[axis] - b[axis])).sum::<f64>().sqrt()
}

pub(super) fn refused<T>(field: &str, problem: impl Into<String>) -> Result<T> {
    Err(Error::Goal { field: field.into(), problem: problem.into() })
}
