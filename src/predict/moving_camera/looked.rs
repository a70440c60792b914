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
