//! Whether cameras see the same world: the plane that each sees most of, and surfaces that two see.

use std::collections::BTreeMap;

use nalgebra::{Point3, Vector3};

use super::explain::{Cause, Explanation, Links, Look, Sighting, explain};
use super::item::{Item, Verdict};
use super::sight::Eye;
use crate::Result;
use crate::base::geometry::{Plane, Vec3};
use crate::vision::frames::Frame;

/// How the items of two cameras' planes begin.
pub const PLANE: &str = "plane of";

/// Pixels of an image that are asked.
const N_PIXELS: f64 = 3000.0;
/// Points farther off are not asked (m): depth is bad there.
const REACH_M: f32 = 3.0;
/// How near to a plane its points lie: metres, and per square metre of their distance; its least share, and the least
/// part of its normal along z of a plane that things may stand on.
const ON_PLANE_M: f64 = 0.008;
const PLANE_SHARE: f64 = 0.12;
const LEVEL: f64 = 0.8;
/// Planes farther apart are two (m).
const SAME_PLANE_M: f64 = 0.08;
/// From which on planes of two cameras are told as apart (m), and as tilted (degrees), a metre off: depth gets
/// worse with the distance.
const APART_M: f64 = 0.012;
const APART_DEG: f64 = 3.0;
/// Pixels about one by which its normal is told, and how far their depths may differ (m).
const AROUND: u32 = 3;
const EDGE_M: f32 = 0.02;
/// Least part of a surface's normal along a camera's ray.
const FACES: f32 = 0.35;
/// Surfaces farther apart are two (m).
const SAME_SURFACE_M: f32 = 0.06;
/// From which on two cameras' surfaces are told as apart (m), and the share of the misfit that this must take away.
const OFF_M: f64 = 0.007;
const OFF_GAIN: f64 = 0.12;
/// Share of one camera's points that the other looks through, from which on that is told.
const THROUGH: f64 = 0.2;
/// Points in both pictures that tell something.
const LEAST: usize = 300;

/// The plane that things stand on, as one camera sees it in one frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CameraPlane {
    /// The camera's number.
    pub camera: usize,
    /// The plane (world frame, m), its normal up.
    normal: Vector3<f64>,
    offset: f64,
    /// Middle of what is seen of it (world x, y, m).
    middle: [f64; 2],
    /// How far that is from the camera (m).
    range_m: f64,
}

/// How the surfaces that camera `a` sees lie where camera `b` sees them, in one frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Overlap {
    /// Numbers of the cameras.
    pub cameras: [usize; 2],
    /// Points of `a` in the picture of `b`.
    pub n: usize,
    /// Share of them that `b` looks through.
    pub through: f64,
    /// By how much `a` is off along x, y, z (world, m), and the share of the misfit that it takes away.
    pub off: Option<([f64; 3], f64)>,
}

/// A point of a depth image with its normal (world frame).
struct Spot {
    point: Vec3,
    normal: Option<Vec3>,
}

fn spots(eye: &Eye) -> Vec<Spot> {
    let [width, height] = eye.depth.size();
    let every = (f64::from(width) * f64::from(height) / N_PIXELS).sqrt().ceil().max(1.0) as usize;
    let world_from_camera = eye.world_from_camera.cast::<f32>();
    let local = |u: u32, v: u32| -> Option<Point3<f32>> {
        let depth_m = eye.depth.at([u, v]);
        let ray = Vector3::from(eye.camera.ray([f64::from(u), f64::from(v)])).cast::<f32>();
        let point = Point3::from(ray * depth_m);
        (depth_m <= REACH_M && point.x.is_finite()).then_some(point)
    };
    let mut found = Vec::new();
    let pixels = (AROUND..height.saturating_sub(AROUND)).step_by(every);
    let pixels = pixels
        .flat_map(|v| (AROUND..width.saturating_sub(AROUND)).step_by(every).map(move |u| (u, v)));
    for (u, v) in pixels {
        let Some(point) = local(u, v) else { continue };
        let normal = || {
            let around = [
                local(u - AROUND, v)?,
                local(u + AROUND, v)?,
                local(u, v - AROUND)?,
                local(u, v + AROUND)?,
            ];
            let is_near = |p: &Point3<f32>| (p.z - point.z).abs() < EDGE_M;
            let [left, right, up, down] = around;
            let normal = (right - left).cross(&(down - up)).try_normalize(1e-9)?;
            let faces = normal.dot(&point.coords).abs() > FACES * point.coords.norm();
            // Towards the camera.
            let normal = if normal.dot(&point.coords) > 0.0 { -normal } else { normal };
            (around.iter().all(is_near) && faces)
                .then(|| (world_from_camera.rotation * normal).into())
        };
        let normal = normal();
        found.push(Spot { point: (world_from_camera * point).coords.into(), normal });
    }
    found
}

/// The level plane that each camera of a frame sees most of; of those that see one.
///
/// # Errors
/// What makes images unusable.
pub fn camera_planes(frame: &Frame) -> Result<Vec<CameraPlane>> {
    let mut planes = Vec::new();
    for camera in &frame.cameras {
        let Some(eye) = Eye::of(camera)? else { continue };
        let points: Vec<Vec3> = spots(&eye).into_iter().map(|spot| spot.point).collect();
        let is_level = |plane: &Plane| plane.normal.z.abs() > LEVEL;
        let found = Plane::largest(&points, |_| ON_PLANE_M, is_level);
        let Some(plane) = found.filter(|plane| plane.share >= PLANE_SHARE) else { continue };
        let sign = plane.normal.z.signum();
        let on =
            points.iter().filter(|p| plane.distance(&Point3::from(p.map(f64::from))) < ON_PLANE_M);
        let n = on.clone().count().max(1) as f64;
        let middle = [0, 1].map(|axis| on.clone().map(|p| f64::from(p[axis])).sum::<f64>() / n);
        let (normal, offset) = (sign * plane.normal, sign * plane.offset);
        let eye = camera.world_from_camera.translation.vector;
        let height_m = (offset - normal.x * middle[0] - normal.y * middle[1]) / normal.z;
        let range_m = (eye - Vector3::new(middle[0], middle[1], height_m)).norm();
        planes.push(CameraPlane { camera: camera.camera, normal, offset, middle, range_m });
    }
    Ok(planes)
}

impl CameraPlane {
    /// Its height (world z, m) at x, y.
    fn height_m(&self, [x, y]: [f64; 2]) -> f64 {
        (self.offset - self.normal.x * x - self.normal.y * y) / self.normal.z
    }

    /// Its height in its middle (world z, m).
    pub fn middle_m(&self) -> f64 {
        self.height_m(self.middle)
    }

    /// Its angle to the level (degrees).
    pub fn tilt_deg(&self) -> f64 {
        self.normal.z.clamp(-1.0, 1.0).acos().to_degrees()
    }
}

/// How the cameras' surfaces lie to each other, for each two of them.
///
/// # Errors
/// What makes images unusable.
pub fn overlaps(frame: &Frame) -> Result<Vec<Overlap>> {
    let mut eyes = Vec::new();
    for camera in &frame.cameras {
        eyes.extend(Eye::of(camera)?);
    }
    let spots: Vec<Vec<Spot>> = eyes.iter().map(spots).collect();
    let mut found = Vec::new();
    for (i, a) in eyes.iter().enumerate() {
        for (_, b) in eyes.iter().enumerate().filter(|(j, _)| *j != i) {
            found.extend(overlap([a, b], &spots[i]));
        }
    }
    Ok(found)
}

fn overlap([a, b]: [&Eye; 2], spots: &[Spot]) -> Option<Overlap> {
    let camera_from_world = b.world_from_camera.inverse().cast::<f32>();
    let (mut n, mut n_through) = (0, 0);
    let mut look = Look::default();
    for Spot { point, normal } in spots {
        let local = camera_from_world * Point3::from(*point);
        let Some(pixel) = b.pixel(local.coords.into()) else { continue };
        let depth_m = b.depth.at(pixel.map(|x| x.round() as u32));
        let Some(normal) = normal.filter(|_| !depth_m.is_nan()) else { continue };
        n += 1;
        let beyond_m = depth_m - local.z;
        n_through += usize::from(beyond_m > SAME_SURFACE_M);
        let turned = camera_from_world.rotation * Vector3::from(normal);
        // The other side of something thin is another surface.
        let faces = -turned.dot(&local.coords) > FACES * local.coords.norm();
        if beyond_m.abs() <= SAME_SURFACE_M && faces {
            let off_m = turned.dot(&local.coords) * beyond_m / local.z;
            let (camera, link) = (a.number as u16, 0);
            look.sightings.push(Sighting { camera, link, point: *point, normal, off_m });
        }
    }
    let links = Links { parents: vec![0], n_joints: 0 };
    let best = explain(&[&look], &links, &[Cause::Robot]).into_iter().next();
    let off = best.map(|Explanation { by, gain, .. }| ([by[0], by[1], by[2]], gain));
    let through = n_through as f64 / n.max(1) as f64;
    (n >= LEAST).then_some(Overlap { cameras: [a.number, b.number], n, through, off })
}

/// Median height of each camera's plane (world z, m), by its number.
pub fn plane_heights(planes: &[Vec<CameraPlane>]) -> BTreeMap<usize, f64> {
    let mut heights = BTreeMap::<usize, Vec<f64>>::new();
    for plane in planes.iter().flatten() {
        heights.entry(plane.camera).or_default().push(plane.middle_m());
    }
    heights.into_iter().filter_map(|(camera, heights)| Some((camera, median(heights)?))).collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// What the planes and overlaps of some frames tell; `names` are the cameras'.
pub fn plane_items(
    planes: &[Vec<CameraPlane>],
    overlaps: &[Overlap],
    names: &[String],
) -> Vec<Item> {
    let name = |camera: usize| names.get(camera).map_or("?", String::as_str);
    let mut items = Vec::new();
    let heights = plane_heights(planes);
    let mut pairs = BTreeMap::<[usize; 2], Vec<[f64; 3]>>::new();
    for frame in planes {
        for (i, a) in frame.iter().enumerate() {
            for b in &frame[i + 1..] {
                let middle = [0, 1].map(|axis| 0.5 * (a.middle[axis] + b.middle[axis]));
                let apart_m = a.height_m(middle) - b.height_m(middle);
                let tilt_deg = a.normal.angle(&b.normal).to_degrees();
                pairs.entry([a.camera, b.camera]).or_default().push([
                    apart_m,
                    tilt_deg,
                    a.range_m.max(b.range_m),
                ]);
            }
        }
    }
    for ([a, b], found) in pairs {
        let middle = |i: usize| median(found.iter().map(|of| of[i]).collect()).unwrap_or(0.0);
        let [apart_m, tilt_deg, range_m] = [0, 1, 2].map(middle);
        let far = range_m.max(1.0);
        let of = |camera: usize| {
            let height_m = heights.get(&camera).copied().unwrap_or(0.0);
            format!("{} {:.0} mm", name(camera), 1e3 * height_m)
        };
        let what = format!("{PLANE} {} and {}", name(a), name(b));
        if apart_m.abs() > SAME_PLANE_M {
            continue;
        }
        let text = format!(
            "{:.0} mm and {tilt_deg:.1} degrees apart (height: {}, {})",
            1e3 * apart_m.abs(),
            of(a),
            of(b)
        );
        let item = match apart_m.abs() >= APART_M * far || tilt_deg >= APART_DEG * far {
            true => Item::wrong(
                Verdict::Warn,
                what,
                text,
                "the place of one of the cameras (its transform) is wrong",
                "calibrate the cameras again (docs/src/guide/cameras.md)",
            ),
            false => Item::ok(what, text),
        };
        items.push(item.value("apart_mm", 1e3 * apart_m.abs()).value("tilt_deg", tilt_deg));
    }
    items.extend(overlap_items(overlaps, &name));
    items
}

fn overlap_items<'n>(overlaps: &[Overlap], name: &impl Fn(usize) -> &'n str) -> Vec<Item> {
    let mut pairs = BTreeMap::<[usize; 2], Vec<&Overlap>>::new();
    for overlap in overlaps {
        let [a, b] = overlap.cameras;
        pairs.entry([a.min(b), a.max(b)]).or_default().push(overlap);
    }
    let item = |([a, b], found): ([usize; 2], Vec<&Overlap>)| {
        // Where `b` is off, `a` is by as much the other way.
        let off = |axis: usize| {
            let signed = |o: &&&Overlap| {
                let (off, _) = o.off?;
                Some(if o.cameras[0] == a { off[axis] } else { -off[axis] })
            };
            median(found.iter().filter_map(|o| signed(&o)).collect()).unwrap_or(0.0)
        };
        let off = [0, 1, 2].map(off);
        let gain = median(found.iter().filter_map(|o| Some(o.off?.1)).collect()).unwrap_or(0.0);
        let through = median(found.iter().map(|o| o.through).collect()).unwrap_or(0.0);
        let length_m = off.iter().map(|x| x * x).sum::<f64>().sqrt();
        let what = format!("overlap of {} and {}", name(a), name(b));
        let [x, y, z] = off.map(|x| 1e3 * x);
        let text = format!(
            "what both see lies {:.0} mm apart ({x:.0}, {y:.0}, {z:.0} along x, y, z); one looks through {:.0} % of what the other sees",
            1e3 * length_m,
            100.0 * through
        );
        let is_off = length_m >= OFF_M && gain >= OFF_GAIN;
        let item = match is_off || through >= THROUGH {
            true => Item::wrong(
                if through >= THROUGH { Verdict::Fail } else { Verdict::Warn },
                what,
                text,
                "the place of one of the cameras (its transform) is wrong, or their clocks differ",
                "calibrate the cameras again (docs/src/guide/cameras.md)",
            ),
            false => Item::ok(what, text),
        };
        item.value("off_mm", 1e3 * length_m).value("gain", gain).value("through_share", through)
    };
    pairs.into_iter().map(item).collect()
}
