//! What a camera's images need besides themselves: calibration and poses.

use super::frame::{CameraFrame, ColorView, View};
use super::images::Shot;
use super::{CameraTopics, Frames, Missing, Wanted};
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
    /// Frame of its points.
    pub(super) frame: String,
    world_from_camera: Isometry3<f64>,
    /// None: the camera sends clouds.
    optics: Option<ImageParts>,
}

struct ImageParts {
    depth_info: Arc<CameraInfo>,
    /// None: there is no colour.
    color_info: Option<Arc<CameraInfo>>,
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
                let color = color.map(|image| {
                    let info = color_info.unwrap_or_else(|| info.clone());
                    ColorView { image, info, color_from_depth }
                });
                View::Depth { depth, info, color }
            }
            (Shot::Images { .. }, None) => return None,
        };
        Some(CameraFrame { camera, view, world_from_camera: self.world_from_camera })
    }
}

impl Frames {
    /// What belongs to a shot, if all of it has come.
    ///
    /// The camera's pose is that in `world`; none: in its own frame.
    pub(super) fn view_parts(
        &self,
        camera: usize,
        shot: &Shot,
        world: Option<&str>,
    ) -> Found<ViewParts> {
        let topics = &self.config.topics.cameras[camera];
        let (frame, stamp, optics) = match shot {
            Shot::Points(cloud) => (cloud_frame(cloud, topics)?, cloud.header.stamp, None),
            Shot::Images { color, depth } => {
                let (frame, optics) = match color {
                    None => self.colorless_parts(camera, depth)?,
                    Some(color) if topics.depth_registered => {
                        self.registered_parts(camera, color, depth)?
                    }
                    Some(color) => self.unregistered_parts(camera, color, depth)?,
                };
                (frame, depth.header.stamp, Some(optics))
            }
        };
        let world_from_camera = self.transform(world.unwrap_or(&frame), &frame, stamp)?;
        Ok(ViewParts { frame, world_from_camera, optics })
    }

    fn colorless_parts(&self, camera: usize, depth: &Image) -> Found<(String, ImageParts)> {
        let CameraTopics { name, depth_info: topic, .. } = &self.config.topics.cameras[camera];
        let depth_info = self.info(camera, &self.infos[camera].depth, topic)?;
        check_size(name, "depth", (depth.width, depth.height), &depth_info, topic)?;
        let frames = [&depth.header.frame_id, &depth_info.header.frame_id];
        let frame = frames.into_iter().find(|id| !id.is_empty()).cloned().unwrap_or_default();
        Ok((frame, ImageParts { depth_info, color_info: None, color_from_depth: None }))
    }

    fn registered_parts(
        &self,
        camera: usize,
        color: &Image,
        depth: &Image,
    ) -> Found<(String, ImageParts)> {
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
        let frame = frame.into_iter().find(|id| !id.is_empty()).unwrap_or("").to_owned();
        let (depth_info, color_info, color_from_depth) = (info.clone(), Some(info), None);
        Ok((frame, ImageParts { depth_info, color_info, color_from_depth }))
    }

    fn unregistered_parts(
        &self,
        camera: usize,
        color: &Image,
        depth: &Image,
    ) -> Found<(String, ImageParts)> {
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
        let color_from_depth = self.transform(&color_frame, &depth_frame, depth.header.stamp)?;
        let color_from_depth = Some(color_from_depth);
        let color_info = Some(color_info);
        Ok((depth_frame, ImageParts { depth_info, color_info, color_from_depth }))
    }

    fn info(
        &self,
        camera: usize,
        slot: &Option<Arc<CameraInfo>>,
        topic: &str,
    ) -> Found<Arc<CameraInfo>> {
        slot.clone().ok_or_else(|| {
            let name = &self.config.topics.cameras[camera].name;
            Missing::Info(match self.problems.refused(topic) {
                Some((why, n)) => format!(
                    "no calibration of '{name}' can be used: {n} came on {topic} and were refused: {why}"
                ),
                None => format!("no calibration of '{name}' has come: publish {topic}"),
            })
        })
    }

    fn transform(&self, target: &str, source: &str, stamp: Stamp) -> Found<Isometry3<f64>> {
        let found = self.tf.lookup(target, source, stamp);
        found.map_err(|error| {
            let late = self.lateness.transforms_remedy(self.config.patience_secs.unwrap_or(0.0));
            let remedy = late.map_or_else(String::new, |late| format!("; {late}"));
            let (target, source) = (target.to_owned(), source.to_owned());
            Missing::Tf(format!("{error}{remedy}"), Some(Wanted { target, source, stamp }))
        })
    }
}

/// Frame of a cloud.
fn cloud_frame(cloud: &PointCloud2, topics: &CameraTopics) -> Found<String> {
    let frame = &cloud.header.frame_id;
    if frame.is_empty() {
        let (topic, problem) = (&topics.points, "names no frame: fill in header.frame_id");
        return Err(Missing::Tf(format!("the cloud on {topic} {problem}"), None));
    }
    Ok(frame.clone())
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
