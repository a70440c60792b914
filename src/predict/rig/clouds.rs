//! Cameras that give only point clouds: no K and no rays are known, so that it can't be told what they look
//! through. What can: whether points lie on the robot where any lie about it, and in what unit they are.

use std::collections::BTreeMap;
use std::f32::consts::PI;

use nalgebra::{Point3, Rotation3, Vector3};

use super::item::{Item, Verdict};
use crate::base::geometry::{PointTree, Vec3, bounds};
use crate::message::PointCloud2;
use crate::robot::kinematics::SurfacePoint;
use crate::vision::frames::{CameraFrame, View};

/// Points of a cloud that are looked at.
const MOST_POINTS: usize = 16_384;
/// The nearest point of the robot in each cell of directions is to be seen: cells are so many times as wide as
/// points lie apart.
const CELL: f32 = 2.0;
/// How much farther off a surface's next point may be, in cells.
const FALL: f32 = 1.5;
/// Directions farther from the middle one than this are left out (tangent).
const WIDEST: f32 = 4.0;
/// A surface point is on the cloud with a point so near (m), and about it with one so near.
const ON_M: f32 = 0.03;
const ABOUT_M: f32 = 0.25;
/// Points of the robot about the cloud that tell, and the share of them that is on it at least. Of the demo's
/// robot 70 % are, and 40 % with its joints in degrees: its arms reach through each other's place.
const LEAST_POINTS: u64 = 100;
const LEAST_ON: f64 = 0.5;
/// Median distances from the sensor that clouds have (m): also those of a lidar outside.
const USUAL_M: std::ops::RangeInclusive<f32> = 0.12..=100.0;
/// Share of the points without a place from which on something is wrong.
const MANY_EMPTY: f64 = 0.9;

/// Points of the robot's surface that face the sensor, beside its cloud.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OnCloud {
    /// With points of the cloud within 25 cm.
    pub about: u64,
    /// Of them: within 3 cm.
    pub on: u64,
}

impl std::ops::AddAssign for OnCloud {
    fn add_assign(&mut self, other: Self) {
        self.about += other.about;
        self.on += other.on;
    }
}

/// Where the robot's surface, of points that lie about `spacing_m` apart, is on the cloud of a camera; none of a
/// camera that gives images.
pub(super) fn look(
    camera: &CameraFrame,
    surface: &[SurfacePoint],
    spacing_m: f64,
) -> Option<OnCloud> {
    let View::Points(cloud) = &camera.view else { return None };
    let eye = camera.world_from_camera.translation.vector.cast::<f32>();
    let surface = facing(eye, surface, spacing_m as f32);
    let mut found = OnCloud::default();
    if surface.is_empty() {
        return Some(found);
    }
    let [low, high] = bounds(&surface);
    let world_from_camera = camera.world_from_camera.cast::<f32>();
    let mut points: Vec<Vec3> = Vec::new();
    each(cloud, |p| {
        let p: Vec3 = (world_from_camera * Point3::from(p)).coords.into();
        if (0..3).all(|axis| p[axis] > low[axis] - ABOUT_M && p[axis] < high[axis] + ABOUT_M) {
            points.push(p);
        }
    });
    // Points that are not finite show nothing.
    let tree = PointTree::new(&points).unwrap_or_default();
    for distance_m in surface.iter().filter_map(|p| tree.distance_m(p)) {
        found.about += u64::from(distance_m <= ABOUT_M);
        found.on += u64::from(distance_m <= ON_M);
    }
    Some(found)
}

/// The points of a surface that are nearest to `eye` (world frame, m), one in each direction.
fn facing(eye: Vector3<f32>, surface: &[SurfacePoint], spacing_m: f32) -> Vec<Vec3> {
    let way = |p: &SurfacePoint| Vector3::from(p.position) - eye;
    let middle = surface.iter().map(way).sum::<Vector3<f32>>() / surface.len().max(1) as f32;
    let Some(ahead) = middle.try_normalize(1e-3) else { return Vec::new() };
    let turn = Rotation3::rotation_between(&ahead, &Vector3::z());
    // None where it looks back: any half turn will do.
    let turn = turn.unwrap_or_else(|| Rotation3::from_axis_angle(&Vector3::x_axis(), PI));
    let cell = CELL * spacing_m / middle.norm();
    let mut nearest = BTreeMap::<[i32; 2], (f32, Vec3)>::new();
    for point in surface {
        let [x, y, z]: Vec3 = (turn * way(point)).into();
        if z <= 0.0 || x.abs().max(y.abs()) > WIDEST * z {
            continue;
        }
        let found = nearest.entry([x, y].map(|x| (x / z / cell).floor() as i32));
        let found = found.or_insert((f32::INFINITY, point.position));
        if z < found.0 {
            *found = (z, point.position);
        }
    }
    // Beside what is nearer by more than a surface falls back, another part is seen, or its back.
    let is_behind = |[u, v]: [i32; 2], z: f32| {
        let beside = (0..9).map(|i| [u.saturating_add(i % 3 - 1), v.saturating_add(i / 3 - 1)]);
        let mut depths = beside.filter_map(|at| nearest.get(&at));
        depths.any(|(other, _)| *other < z * (1.0 - FALL * cell))
    };
    let seen = nearest.iter().filter(|(at, (z, _))| !is_behind(**at, *z));
    seen.map(|(_, (_, p))| *p).collect()
}

/// Some of the points of a cloud that were measured, spread over it.
fn each(cloud: &PointCloud2, mut f: impl FnMut(Vec3)) {
    let n = cloud.width as usize * cloud.height as usize;
    for i in (0..n).step_by(n.div_ceil(MOST_POINTS).max(1)) {
        cloud.for_each_of(i..i + 1, |_, p, _| f(p));
    }
}

/// Whether the robot is where a camera's clouds show something; none if they show nothing about it.
pub(super) fn item(name: &str, counts: OnCloud) -> Option<Item> {
    let OnCloud { about, on } = counts;
    if about < LEAST_POINTS {
        return None;
    }
    let what = format!("robot in clouds of {name}");
    let share = on as f64 / about as f64;
    let text = format!(
        "of {about} surface points that face the sensor and about which there is something, {:.0} % have a \
         point of the cloud within {:.0} cm",
        100.0 * share,
        100.0 * ON_M
    );
    let item = match share < LEAST_ON {
        true => Item::wrong(
            Verdict::Warn,
            what,
            text,
            "the robot is not where the clouds show it: its description, its joints, where it stands, or the \
             sensor's transform is wrong",
            "compare description, joints (radians, REP 103) and transforms in RViz; depth images tell more",
        ),
        false => Item::ok(what, text),
    };
    Some(item.value("on_share", share).value("n_points", about as f64))
}

/// Distances of some clouds of a camera from its sensor.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CloudValues {
    n: u64,
    /// From the origin of the cloud's frame (m).
    ranges: Vec<f32>,
}

impl CloudValues {
    /// Takes those of a cloud.
    pub fn add(&mut self, cloud: &PointCloud2) {
        let n = u64::from(cloud.width) * u64::from(cloud.height);
        self.n += n.div_ceil(n.div_ceil(MOST_POINTS as u64).max(1));
        each(cloud, |p| self.ranges.push(p.iter().map(|x| x * x).sum::<f32>().sqrt()));
    }
}

/// What can be said of a camera that gives only clouds: that its calibration can't be checked, and its unit;
/// nothing of one that gave none.
pub fn cloud_items(name: &str, values: &CloudValues) -> Vec<Item> {
    let CloudValues { n, ranges } = values;
    if *n == 0 {
        return Vec::new();
    }
    let calibration = Item::ok(
        format!("calibration of {name}"),
        "can't be checked: it gives clouds only, which have no K and no distortion; checked are the robot \
         against the cloud, its unit, and z up",
    );
    let empty = 1.0 - ranges.len() as f64 / *n as f64;
    let mut sorted = ranges.clone();
    sorted.sort_unstable_by(f32::total_cmp);
    let median_m = sorted.get(sorted.len() / 2).copied();
    let what = format!("clouds of {name}");
    let text = format!(
        "median distance {:.3} m, {:.1} % of the points without a place",
        median_m.unwrap_or(f32::NAN),
        100.0 * empty
    );
    let item = match median_m {
        None => Item::wrong(
            Verdict::Fail,
            what,
            format!("no point was measured: {text}"),
            "the sensor is covered, off, or too near",
            "look at the cloud in RViz, and at the driver's log",
        ),
        Some(median_m) if !USUAL_M.contains(&median_m) => Item::wrong(
            Verdict::Fail,
            what,
            format!("unusual distances: {text}"),
            "another unit than metres, as millimetres",
            "publish clouds in metres (REP 103)",
        ),
        Some(_) if empty > MANY_EMPTY => Item::wrong(
            Verdict::Warn,
            what,
            format!("few points were measured: {text}"),
            "the scene is too near, too far, too dark or too shiny for the sensor",
            "change the sensor's preset or place",
        ),
        Some(_) => Item::ok(what, text),
    };
    let median_m = f64::from(median_m.unwrap_or(f32::NAN));
    vec![calibration, item.value("median_m", median_m).value("empty_share", empty)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Header;

    fn values(scale: f32, n_empty: usize) -> CloudValues {
        let at = |i: usize| match i < n_empty {
            true => [f32::NAN; 3],
            false => [0.3 * scale, 0.0, (0.8 + 0.001 * (i % 100) as f32) * scale],
        };
        let points: Vec<Vec3> = (0..2000).map(at).collect();
        let mut values = CloudValues::default();
        values.add(&PointCloud2::of_points(Header::default(), &points, None).unwrap());
        values
    }

    #[test]
    fn what_can_be_said_of_a_cloud_is_said() {
        assert_eq!(cloud_items("front", &CloudValues::default()), []);
        let items = cloud_items("front", &values(1.0, 100));
        assert!(items.iter().all(|item| item.verdict == Verdict::Ok), "{items:?}");
        assert!(items[0].what == "calibration of front" && items[0].evidence.contains("no K"));
        assert!((items[1].values["median_m"] - 0.9).abs() < 0.02, "{items:?}");
        for (values, cause, verdict) in [
            (values(1000.0, 0), "millimetres", Verdict::Fail),
            (values(0.001, 0), "another unit", Verdict::Fail),
            (values(1.0, 1900), "too near", Verdict::Warn),
            (values(1.0, 2000), "off", Verdict::Fail),
        ] {
            let item = cloud_items("front", &values).remove(1);
            let told = item.cause.as_deref().unwrap_or_default();
            assert!(item.verdict == verdict && told.contains(cause), "{item}");
        }
    }
}
