//! What a camera's images need besides themselves: calibration and poses.

use super::frame::{CameraFrame, ColorView, View};
use super::images::Shot;
use super::{CameraTopics, Frames, Missing};
use crate::message::{CameraInfo, Image, PointCloud2, Stamp};
use nalgebra::Isometry3;
use std::sync::Arc;

type Found<T> = std::result::Result<T, Missing>;

/// Calibrations of one camera, as far as they have come.
#[derive(Debug, Clone, Default)]
pub(super) struct Calibration {
    pub(super) color: Option<Arc<CameraInfo>>,
    pub(super) depth: Option<Arc<CameraInfo>>,
}

/// What belongs to the images of one camera.
pub(super) struct ViewParts {
    world_from_camera: Isometry3<f64>,
    /// None: the camera sends clouds.
    optics: Option<ImageParts>,
}

struct ImageParts {
    depth_info: Arc<CameraInfo>,
    color_info: Arc<CameraInfo>,
    color_from_depth: Option<Isometry3<f64>>,
}

/// Puts `info` into `slot`, unless it says the same: the old one tells that nothing changed.
pub(super) fn keep(slot: &mut Option<Arc<CameraInfo>>, info: Arc<CameraInfo>) {
    let is_same = |old: &Arc<CameraInfo>| {
        let [old, new] = [old, &info].map(|info| {
            let CameraInfo { header, height, width, distortion_model, d, k, r, p } = &**info;
            (&header.frame_id, (height, width), distortion_model, d, (k, r, p))
        });
        old == new
    };
    if !slot.as_ref().is_some_and(is_same) {
        *slot = Some(info);
    }
}

impl ViewParts {
    pub(super) fn join(self, camera: usize, shot: Shot) -> Option<CameraFrame> {
        let view = match (shot, self.optics) {
            (Shot::Points(cloud), _) => View::Points(cloud),
            (Shot::Images { color, depth }, Some(parts)) => {
                let ImageParts { depth_info: info, color_info, color_from_depth } = parts;
                let color = ColorView { image: color, info: color_info, color_from_depth };
                View::Depth { depth, info, color: Some(color) }
            }
            (Shot::Images { .. }, None) => return None,
        };
        Some(CameraFrame { camera, view, world_from_camera: self.world_from_camera })
    }
}

impl Frames {
    /// What belongs to a shot, if all of it has come.
    pub(super) fn view_parts(&self, camera: usize, shot: &Shot) -> Found<ViewParts> {
        match shot {
            Shot::Points(cloud) => self.cloud_parts(camera, cloud),
            Shot::Images { color, depth }
                if self.config.topics.cameras[camera].depth_registered =>
            {
                self.registered_parts(camera, color, depth)
            }
            Shot::Images { color, depth } => self.unregistered_parts(camera, color, depth),
        }
    }

    fn cloud_parts(&self, camera: usize, cloud: &PointCloud2) -> Found<ViewParts> {
        let CameraTopics { points, .. } = &self.config.topics.cameras[camera];
        if cloud.header.frame_id.is_empty() {
            let problem = "names no frame: fill in header.frame_id";
            return Err(Missing::Tf(format!("the cloud on {points} {problem}")));
        }
        let world_from_camera = self.world_from(&cloud.header.frame_id, cloud.header.stamp)?;
        Ok(ViewParts { world_from_camera, optics: None })
    }

    fn registered_parts(&self, camera: usize, color: &Image, depth: &Image) -> Found<ViewParts> {
        let CameraTopics { name, color_info: topic, .. } = &self.config.topics.cameras[camera];
        let info = self.info(camera, &self.infos[camera].color, topic)?;
        let frames = [color, depth].map(|image| plain(&image.header.frame_id));
        if frames[0] != frames[1] && frames.iter().all(|frame| !frame.is_empty()) {
            let [color, depth] = frames;
            return Err(Missing::Match(format!(
                "'{name}' has colour of frame '{color}' and depth of frame '{depth}', which is \
                 not registered: set depth_registered to false, or publish depth that is \
                 registered to the colour image"
            )));
        }
        let [(cw, ch), (dw, dh)] = [color, depth].map(|image| (image.width, image.height));
        if (cw, ch) != (dw, dh) {
            return Err(Missing::Match(format!(
                "'{name}' has colour of {cw} x {ch} and depth of {dw} x {dh} pixels, which is \
                 not registered: set depth_registered to false, or publish depth that is \
                 registered to the colour image"
            )));
        }
        check_size(name, "images", (cw, ch), &info, topic)?;
        let frame = [frames[1], frames[0], &info.header.frame_id];
        let frame = frame.into_iter().find(|id| !id.is_empty()).unwrap_or("");
        let world_from_camera = self.world_from(frame, depth.header.stamp)?;
        let (depth_info, color_info, color_from_depth) = (info.clone(), info, None);
        let optics = Some(ImageParts { depth_info, color_info, color_from_depth });
        Ok(ViewParts { world_from_camera, optics })
    }

    fn unregistered_parts(&self, camera: usize, color: &Image, depth: &Image) -> Found<ViewParts> {
        let CameraTopics { name, color_info, depth_info, .. } = &self.config.topics.cameras[camera];
        let infos = &self.infos[camera];
        let [color_topic, depth_topic] = [color_info, depth_info];
        let color_info = self.info(camera, &infos.color, color_topic)?;
        let depth_info = self.info(camera, &infos.depth, depth_topic)?;
        check_size(name, "colour", (color.width, color.height), &color_info, color_topic)?;
        check_size(name, "depth", (depth.width, depth.height), &depth_info, depth_topic)?;
        let frame = |image: &Image, info: &CameraInfo| {
            let frames = [&image.header.frame_id, &info.header.frame_id];
            frames.into_iter().find(|id| !id.is_empty()).cloned().unwrap_or_default()
        };
        let (color_frame, depth_frame) = (frame(color, &color_info), frame(depth, &depth_info));
        let stamp = depth.header.stamp;
        let world_from_camera = self.world_from(&depth_frame, stamp)?;
        let color_from_depth = Some(self.transform(&color_frame, &depth_frame, stamp)?);
        let optics = Some(ImageParts { depth_info, color_info, color_from_depth });
        Ok(ViewParts { world_from_camera, optics })
    }

    fn info(
        &self,
        camera: usize,
        slot: &Option<Arc<CameraInfo>>,
        topic: &str,
    ) -> Found<Arc<CameraInfo>> {
        slot.clone().ok_or_else(|| {
            let name = &self.config.topics.cameras[camera].name;
            Missing::Info(format!("no calibration of '{name}' has come: publish {topic}"))
        })
    }

    fn world_from(&self, frame: &str, stamp: Stamp) -> Found<Isometry3<f64>> {
        self.transform(&self.config.world_frame, frame, stamp)
    }

    fn transform(&self, target: &str, source: &str, stamp: Stamp) -> Found<Isometry3<f64>> {
        let found = self.tf.lookup(target, source, stamp);
        found.map_err(|error| Missing::Tf(error.to_string()))
    }
}

fn check_size(
    name: &str,
    what: &str,
    (width, height): (u32, u32),
    info: &CameraInfo,
    topic: &str,
) -> Found<()> {
    let (iw, ih) = (info.width, info.height);
    if (width, height) == (iw, ih) {
        return Ok(());
    }
    Err(Missing::Match(format!(
        "'{name}' has {what} of {width} x {height} pixels and calibration of {iw} x {ih}: publish \
         on {topic} the calibration of these images"
    )))
}

/// tf1 wrote names with a leading slash.
fn plain(name: &str) -> &str {
    name.trim_start_matches('/')
}
