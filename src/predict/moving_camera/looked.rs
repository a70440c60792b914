//! Where the cameras of a frame looked.

use nalgebra::{Isometry3, Point3};

use crate::base::geometry::{Rigid, Vec3};
use crate::vision::camera::Camera;
use crate::vision::cloud::Workspace;
use crate::vision::frames::{CameraFrame, View};

/// Share of an image's width along each of its borders that does not count as seen: depth is missing there, and
/// pixels see half of what they show.
const BORDER_SHARE: f64 = 0.02;

/// The views of a frame's cameras, and the box of its points. Equal if nothing has moved.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Looked {
    workspace: Option<Workspace>,
    sights: Vec<Sight>,
}

/// What one camera can see.
#[derive(Debug, Clone, PartialEq)]
struct Sight {
    /// Its number.
    camera: usize,
    world_from_camera: Isometry3<f64>,
    /// Its lens and the size of its image (pixels); none where it sends clouds: how far those reach is not
    /// known.
    lens: Option<(Camera, [u32; 2])>,
}

impl Looked {
    /// Takes what `cameras` see in `workspace`, in the memory that there is.
    pub fn take(&mut self, cameras: &[CameraFrame], workspace: &Workspace) {
        self.workspace = Some(*workspace);
        self.sights.clear();
        self.sights.extend(cameras.iter().map(|frame| {
            let lens = match &frame.view {
                // A calibration that can't be used was refused where points were made.
                View::Depth { depth, info, .. } => {
                    Camera::new(info).ok().map(|lens| (lens, [depth.width, depth.height]))
                }
                View::Points(_) => None,
            };
            Sight { camera: frame.camera, world_from_camera: frame.world_from_camera, lens }
        }));
    }

    /// Numbers of the cameras that stood elsewhere in `before`.
    pub fn moved_since(&self, before: &Self) -> impl Iterator<Item = usize> {
        let was_there = |now: &&Sight| {
            let then = before.sights.iter().find(|then| then.camera == now.camera);
            then.is_none_or(|then| then.world_from_camera != now.world_from_camera)
        };
        self.sights.iter().filter(was_there).map(|sight| sight.camera)
    }

    /// Whether a point (world frame, m) would have been seen, had nothing been in front of it; `corrections` of
    /// the cameras' poses, by their numbers.
    pub fn sees(&self, point: &Vec3, corrections: &[Option<Rigid>]) -> bool {
        let corrected = |camera: usize| match corrections.get(camera) {
            Some(Some(correction)) => correction.undo(point),
            _ => *point,
        };
        let is_inside = |p: Vec3| self.workspace.is_none_or(|workspace| workspace.contains(p));
        self.sights.iter().any(|sight| {
            let point = corrected(sight.camera);
            is_inside(point) && sight.sees(&point)
        })
    }

    /// Whether one camera would have seen a point (world frame, m), had nothing been in front of it.
    pub fn sees_from(&self, camera: usize, point: &Vec3) -> bool {
        let is_inside = self.workspace.is_none_or(|workspace| workspace.contains(*point));
        let mut sights = self.sights.iter().filter(|sight| sight.camera == camera);
        is_inside && sights.any(|sight| sight.sees(point))
    }
}

impl Sight {
    fn sees(&self, point: &Vec3) -> bool {
        let Some((lens, size)) = &self.lens else { return true };
        let point = Point3::from(*point).cast::<f64>();
        let seen = self.world_from_camera.inverse_transform_point(&point);
        let border = BORDER_SHARE * f64::from(size[0]);
        lens.project(seen.coords.into()).is_some_and(|pixel| {
            (0..2)
                .all(|axis| (border..=f64::from(size[axis]) - 1.0 - border).contains(&pixel[axis]))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::message::{CameraInfo, Header};

    /// A camera at the height of 1 m that looks down and sees 1 m along x, 0.8 m along y.
    pub(crate) fn looked(x: f64, workspace: Workspace) -> Looked {
        let info = CameraInfo {
            header: Header::default(),
            height: 80,
            width: 100,
            distortion_model: "plumb_bob".into(),
            d: vec![],
            k: [100.0, 0.0, 49.5, 0.0, 100.0, 39.5, 0.0, 0.0, 1.0],
            r: [0.0; 9],
            p: [0.0; 12],
        };
        let (eye, down) = (Point3::new(x, 0.0, 1.0), Point3::new(x, 0.0, 0.0));
        let world_from_camera =
            Isometry3::face_towards(&eye, &down, &nalgebra::Vector3::new(0.0, -1.0, 0.0));
        let lens = Some((Camera::new(&info).unwrap(), [100, 80]));
        let sights = vec![Sight { camera: 0, world_from_camera, lens }];
        Looked { workspace: Some(workspace), sights }
    }

    #[test]
    fn what_lies_beside_the_image_or_the_box_is_not_seen() {
        let all = Workspace { min: [-9.0; 3], max: [9.0; 3] };
        let here = looked(0.0, all);
        for (point, is_seen) in [
            ([0.0, 0.0, 0.0], true),
            ([0.45, 0.35, 0.0], true),
            ([0.49, 0.0, 0.0], false),
            ([0.0, 0.39, 0.0], false),
            ([0.0, 0.0, 2.0], false),
        ] {
            assert_eq!(here.sees(&point, &[]), is_seen, "{point:?}");
        }
        assert!(looked(0.4, all).sees(&[0.8, 0.0, 0.0], &[]));
        let boxed = looked(0.0, Workspace { min: [-0.2; 3], max: [0.2; 3] });
        assert!(boxed.sees(&[0.1, 0.0, 0.0], &[]) && !boxed.sees(&[0.3, 0.0, 0.0], &[]));
        // A pose that is off by 0.2 m along x.
        let off = [Some(Rigid::shift([0.2, 0.0, 0.0]))];
        assert!(here.sees(&[0.6, 0.0, 0.0], &off) && !here.sees(&[-0.4, 0.0, 0.0], &off));
    }

    #[test]
    fn what_moved_is_told() {
        let all = Workspace { min: [-9.0; 3], max: [9.0; 3] };
        let (here, there) = (looked(0.0, all), looked(0.1, all));
        assert_eq!(here, looked(0.0, all));
        assert_eq!(here.moved_since(&looked(0.0, all)).count(), 0);
        assert_eq!(there.moved_since(&here).collect::<Vec<_>>(), [0]);
        assert_eq!(here.moved_since(&Looked::default()).collect::<Vec<_>>(), [0]);
    }
}
