//! Where an only camera stands, for where nobody says: above the largest plane that it sees, which is
//! taken for level.

use nalgebra::{Isometry3, Matrix3, Point3, Rotation3, UnitQuaternion, Vector3};

use super::{Cloud, Workspace};
use crate::base::geometry::Plane;
use crate::message::TransformStamped;
use crate::vision::frames::{CameraFrame, Frames, Unplaced, View};

/// Points farther off are not asked (m).
const REACH_M: f32 = 4.0;
/// How near to a plane its points lie: metres, and share of their distance.
const NEAR_M: f64 = 0.006;
const NEAR_SHARE: f64 = 0.006;
/// Share of the points that makes a plane a support.
const SHARE: f64 = 0.15;
/// Least part of a support's normal along the camera's up: a camera may look straight down, but the
/// image is never upside down. A plane that leans more towards it is not asked for where there is one
/// that leans less: seen straight from the front, a wall and a floor are the same.
const UP: [f64; 2] = [0.3, -0.1];
/// Greatest part of it to the camera's side: cameras are seldom rolled.
const SIDE: f64 = 0.5;
/// Length from which on what lies ahead tells the x axis.
const AHEAD: f64 = 0.3;

/// A camera that was placed by what it sees.
#[derive(Debug, Clone)]
pub struct Leveled {
    /// For others: from the world frame to the root of the camera's frames.
    pub transform: TransformStamped,
    /// What was found, in words.
    pub news: String,
}

/// Places the only camera of `frames` where they ask for it ([`Frames::take_unplaced`]): z is up from
/// the largest plane in view that may be a table or a floor, the origin lies on that below the camera,
/// x is ahead (REP 103).
///
/// Without such a plane `frames` have a problem more, and the next frame is looked at.
pub fn level_camera(frames: &mut Frames) -> Option<Leveled> {
    let unplaced = frames.take_unplaced()?;
    match stand(&unplaced) {
        Ok((world_from_camera, share)) => {
            let transform = frames.place(&unplaced, &world_from_camera);
            let (height, tilt_deg) =
                (world_from_camera.translation.z, tilt_deg(&unplaced, &world_from_camera));
            let news = format!(
                "no transform tells where the camera stands: the largest plane in view ({:.0} % of \
                 the points) is taken for level, so '{}' is {height:.2} m above it and looks down by \
                 {tilt_deg:.0} degrees; '{}' has its origin on the plane below the camera, x ahead. \
                 If that is wrong, publish a static transform and set level_camera to false",
                100.0 * share,
                unplaced.frame,
                transform.header.frame_id,
            );
            Some(Leveled { transform, news })
        }
        Err(problem) => {
            let (world, frame) = (&frames.config().world_frame, &unplaced.frame);
            let problem = format!(
                "no transform tells where the camera stands, and it can't be told by what it sees: \
                 {problem}. Turn the camera to a table or floor, or publish its place, e.g. ros2 run \
                 tf2_ros static_transform_publisher --z 1 --frame-id {world} --child-frame-id {frame}"
            );
            frames.not_placed(problem);
            None
        }
    }
}

/// `world_from_camera`, and the share of the points that lie on the plane.
fn stand(unplaced: &Unplaced) -> Result<(Isometry3<f64>, f64), String> {
    let mut cloud = Cloud::default();
    let view = CameraFrame { world_from_camera: Isometry3::identity(), ..unplaced.view.clone() };
    let read = cloud.from_cameras(std::slice::from_ref(&view), &Workspace::EVERYWHERE);
    read.map_err(|error| error.to_string())?;
    let near = |x: &[f32; 3]| x.iter().map(|x| x * x).sum::<f32>() < REACH_M * REACH_M;
    let points: Vec<[f32; 3]> = cloud.positions.into_iter().filter(near).collect();
    let [ahead, side, up] = axes(unplaced);
    let within = |x: &Point3<f64>| NEAR_M + NEAR_SHARE * x.coords.norm();
    let support = |least_up: f64| {
        let counts = |plane: &Plane| {
            plane.normal.dot(&up) > least_up && plane.normal.dot(&side).abs() < SIDE
        };
        Plane::largest(&points, within, counts).filter(|plane| plane.share >= SHARE)
    };
    let plane = UP.into_iter().find_map(support);
    let plane = plane.ok_or_else(|| {
        format!(
            "no plane that may be level has {:.0} % of the points within {REACH_M} m",
            100.0 * SHARE
        )
    })?;
    let z = plane.normal;
    let ahead = if (ahead - z * ahead.dot(&z)).norm() > AHEAD { ahead } else { up };
    let y = z.cross(&ahead).normalize();
    let x = y.cross(&z);
    let rotation = Matrix3::from_rows(&[x.transpose(), y.transpose(), z.transpose()]);
    let rotation =
        UnitQuaternion::from_rotation_matrix(&Rotation3::from_matrix_unchecked(rotation));
    let height = Vector3::new(0.0, 0.0, -plane.offset);
    Ok((Isometry3::from_parts(height.into(), rotation), plane.share))
}

/// Where ahead, left and up are in the camera's frame (REP 103): a depth image's is optical, and a
/// cloud's where its name says so.
fn axes(unplaced: &Unplaced) -> [Vector3<f64>; 3] {
    let is_optical =
        matches!(unplaced.view.view, View::Depth { .. }) || unplaced.frame.contains("optical");
    match is_optical {
        true => [Vector3::z(), -Vector3::x(), -Vector3::y()],
        false => [Vector3::x(), Vector3::y(), Vector3::z()],
    }
}

fn tilt_deg(unplaced: &Unplaced, world_from_camera: &Isometry3<f64>) -> f64 {
    let [ahead, ..] = axes(unplaced);
    (-(world_from_camera.rotation * ahead).z).clamp(-1.0, 1.0).asin().to_degrees()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::random::{draw, normal_pair};
    use crate::message::{CameraInfo, Header, Image, Stamp};

    const WIDTH: u32 = 160;
    const HEIGHT: u32 = 120;
    const FOCAL: f64 = 150.0;

    /// A plane of the world: n · x = d.
    type Face = ([f64; 3], f64);
    const FLOOR: Face = ([0.0, 0.0, 1.0], 0.0);

    /// A camera at a height, looking down by `pitch_deg` and rolled by `roll_deg`.
    fn camera(height: f64, pitch_deg: f64, roll_deg: f64) -> Isometry3<f64> {
        let (roll, pitch) = (roll_deg.to_radians(), pitch_deg.to_radians());
        let body = UnitQuaternion::from_euler_angles(roll, pitch, 0.0);
        let [x, y, z] = [-Vector3::y(), -Vector3::z(), Vector3::x()];
        let optical = Rotation3::from_matrix_unchecked(Matrix3::from_columns(&[x, y, z]));
        let rotation = body * UnitQuaternion::from_rotation_matrix(&optical);
        Isometry3::from_parts(Vector3::new(0.0, 0.0, height).into(), rotation)
    }

    /// What the camera sees of `faces`, with a depth camera's noise (1 % at 2 m).
    fn view(world_from_camera: &Isometry3<f64>, faces: &[Face]) -> Unplaced {
        let header = Header { stamp: Stamp::default(), frame_id: "depth_optical_frame".into() };
        let depth = (0..WIDTH * HEIGHT).flat_map(|pixel| {
            let (u, v) = (f64::from(pixel % WIDTH) - 80.0, f64::from(pixel / WIDTH) - 60.0);
            let ray = world_from_camera.rotation * Vector3::new(u / FOCAL, v / FOCAL, 1.0);
            let depth = |(normal, offset): &Face| {
                let normal = Vector3::from(*normal);
                let height = offset - normal.dot(&world_from_camera.translation.vector);
                Some(height / normal.dot(&ray)).filter(|depth| (0.2..8.0).contains(depth))
            };
            let first = faces.iter().filter_map(depth).min_by(f64::total_cmp).unwrap_or(0.0);
            let [noise, _] = normal_pair(draw(1, 0, u64::from(pixel), 0));
            let noisy = first + 0.0025 * first * first * f64::from(noise);
            ((1000.0 * noisy).round() as u16).to_le_bytes()
        });
        let depth = Image {
            header: header.clone(),
            height: HEIGHT,
            width: WIDTH,
            encoding: "16UC1".into(),
            is_bigendian: false,
            step: 2 * WIDTH,
            data: depth.collect(),
        };
        let info = CameraInfo {
            header,
            height: HEIGHT,
            width: WIDTH,
            distortion_model: String::new(),
            d: vec![],
            k: [FOCAL, 0.0, 80.0, 0.0, FOCAL, 60.0, 0.0, 0.0, 1.0],
            r: [0.0; 9],
            p: [0.0; 12],
        };
        let view = View::Depth { depth, info: Arc::new(info), color: None };
        let world_from_camera = Isometry3::identity();
        let frame = "depth_optical_frame".into();
        Unplaced { view: CameraFrame { camera: 0, view, world_from_camera }, frame }
    }

    #[test]
    fn a_camera_above_a_plane_is_placed() {
        for (height, pitch_deg, roll_deg) in
            [(0.6, 40.0, 0.0), (1.2, 25.0, -8.0), (0.5, 90.0, 0.0), (1.0, 70.0, 12.0)]
        {
            let wanted = camera(height, pitch_deg, roll_deg);
            let (found, share) = stand(&view(&wanted, &[FLOOR])).unwrap();
            let off = found.rotation.angle_to(&wanted.rotation).to_degrees();
            assert!((found.translation.z - height).abs() < 0.01, "{found} instead of {wanted}");
            // Yaw is free: x is where the camera looks, or for one that looks down, where up is.
            assert!(off < 1.0 || roll_deg != 0.0, "{found} instead of {wanted}: {off}");
            let up = |pose: &Isometry3<f64>| pose.rotation.inverse() * Vector3::z();
            assert!(up(&found).angle(&up(&wanted)).to_degrees() < 0.5, "{found}, {wanted}");
            assert!(found.translation.x == 0.0 && found.translation.y == 0.0 && share > 0.5);
        }
    }

    #[test]
    fn a_wall_is_no_floor() {
        // Three quarters of what it sees is the wall.
        let wall = ([1.0, 0.0, 0.0], 1.5);
        for (height, pitch_deg) in [(0.4, 5.0), (0.5, 12.0)] {
            let wanted = camera(height, pitch_deg, 0.0);
            let (found, share) = stand(&view(&wanted, &[FLOOR, wall])).unwrap();
            assert!((found.translation.z - height).abs() < 0.02 && share < 0.5, "{found} {share}");
        }
        // Rolled on its side, or upside down, there is nothing that may be level.
        for roll_deg in [90.0, 180.0] {
            let sideways = view(&camera(0.6, 30.0, roll_deg), &[FLOOR]);
            let problem = stand(&sideways).unwrap_err();
            assert!(problem.contains("no plane that may be level"), "{problem}");
        }
        assert!(stand(&view(&camera(0.6, 30.0, 0.0), &[])).is_err(), "nothing is seen");
    }
}
