//! Depth images as they lie in memory, with their rays: what a device needs to make their points.

use nalgebra::Isometry3;

use super::depth::checked_depth;
use super::optics::{LinearRays, Optics};
use crate::Result;
use crate::base::geometry::Rigid;
use crate::vision::camera::{Camera, ColorImage, Layout, check_size};
use crate::vision::frames::{CameraFrame, View};

/// A depth image of checked sizes, and the colour image that it is registered to.
pub(crate) struct RawCamera<'a> {
    /// Source of its first pixel.
    pub first_source: u32,
    /// Width and height, pixels.
    pub size: [u32; 2],
    /// Two bytes a pixel are millimetres, four are metres.
    pub depth: Layout<'a>,
    /// Which bytes of a pixel are red, green and blue; none: its points are grey.
    pub color: Option<(Layout<'a>, [usize; 3])>,
    /// Its calibration; the rays follow from it, the size and the pose.
    pub camera: Camera,
    pub rays: RawRays<'a>,
}

/// Points (world frame, m) of pixels from their depths.
pub(crate) enum RawRays<'a> {
    /// Of a camera without distortion.
    Rows(LinearRays),
    /// `rigid` maps depth · [x, y, 1]; x and y of each pixel are in `table`.
    Table { rigid: Rigid, table: &'a [[f32; 2]] },
}

/// Whether all of `cameras` have what a [`RawCamera`] tells: depth images without a colour image of
/// another camera, by ascending numbers, as the order of sources wants it.
pub(crate) fn are_raw(cameras: &[CameraFrame]) -> bool {
    let is_raw = |camera: &CameraFrame| match &camera.view {
        View::Depth { color, .. } => {
            color.as_ref().is_none_or(|color| color.color_from_depth.is_none())
        }
        View::Points(_) => false,
    };
    cameras.iter().all(is_raw) && cameras.is_sorted_by(|a, b| a.camera < b.camera)
}

impl Optics {
    /// The images of `cameras`, which [`are_raw`], in their order.
    ///
    /// # Errors
    /// As [`super::Cloud::from_cameras`].
    pub(crate) fn raw<'a>(&'a mut self, cameras: &'a [CameraFrame]) -> Result<Vec<RawCamera<'a>>> {
        for camera in cameras {
            if let View::Depth { depth, info, .. } = &camera.view {
                checked_depth(depth, info, camera.camera)?;
                self.depth.of(camera.camera, info)?.table()?;
            }
        }
        let raw = |camera| self.raw_camera(camera).transpose();
        cameras.iter().filter_map(raw).collect()
    }

    fn raw_camera<'a>(&'a self, frame: &'a CameraFrame) -> Result<Option<RawCamera<'a>>> {
        let View::Depth { depth, info, color } = &frame.view else { return Ok(None) };
        let (depth, first_source) = checked_depth(depth, info, frame.camera)?;
        let size = depth.size();
        let color = match color {
            Some(color) => {
                let image = ColorImage::new(&color.image)?;
                check_size("colour image", &color.image.header.frame_id, size, image.size())?;
                Some(image.layout())
            }
            None => None,
        };
        let Some(lens) = self.depth.get(frame.camera) else { return Ok(None) };
        let pose: &Isometry3<f64> = &frame.world_from_camera;
        let rays = match lens.made_table() {
            None => RawRays::Rows(LinearRays::new(&lens.camera, pose)),
            Some(table) => {
                RawRays::Table { rigid: Rigid::from_isometry(pose), table: table.rays() }
            }
        };
        let (depth, camera) = (depth.layout(), lens.camera);
        Ok(Some(RawCamera { first_source, size, depth, color, camera, rays }))
    }
}

/// Where the `cameras` stand, as [`super::Cloud::eyes`].
pub(crate) fn eyes(cameras: &[CameraFrame], eyes: &mut Vec<[f32; 3]>) {
    eyes.clear();
    cameras.iter().for_each(|camera| add_eye(eyes, camera.camera, &camera.world_from_camera));
}

/// Notes where camera number `camera` stands, which sends depth images.
pub(super) fn add_eye(eyes: &mut Vec<[f32; 3]>, camera: usize, world_from_camera: &Isometry3<f64>) {
    eyes.resize(eyes.len().max(camera + 1), [f32::NAN; 3]);
    eyes[camera] = world_from_camera.translation.vector.map(|x| x as f32).into();
}
