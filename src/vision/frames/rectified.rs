//! Which of a calibration's two cameras an image was taken with: drivers publish the raw camera's
//! calibration beside rectified images, too.

use std::sync::Arc;

use super::Frames;
use crate::message::CameraInfo;

/// Focal lengths (share) and centres (pixels) of the raw and the rectified image that are the same.
const SAME_FOCAL: f64 = 0.005;
const SAME_CENTER_PX: f64 = 1.0;

/// What the name of an image topic tells of its images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Rectified,
    Raw,
    Nothing,
}

fn told_by(name: &str) -> Told {
    let parts = || name.split('/');
    if parts().any(|part| part.starts_with("image_rect") || part == "rect" || part == "rectified") {
        Told::Rectified
    } else if parts().any(|part| part.contains("raw")) {
        Told::Raw
    } else {
        Told::Nothing
    }
}

impl Frames {
    /// The name that the topic `key` of the settings has after remaps: of images it may tell whether they
    /// are rectified.
    pub fn set_topic_name(&mut self, key: &str, name: &str) {
        self.names.insert(key.to_owned(), name.to_owned());
    }

    /// `info` as it is of the images of `camera`, of colour (and depth that is registered to it) or of depth.
    pub(super) fn of_images(
        &mut self,
        camera: usize,
        is_depth: bool,
        info: Arc<CameraInfo>,
    ) -> Arc<CameraInfo> {
        let topics = &self.config.topics.cameras[camera];
        let images = match (is_depth, topics.depth_registered) {
            (true, _) => vec![&topics.depth],
            (false, true) => vec![&topics.color, &topics.depth],
            (false, false) => vec![&topics.color],
        };
        let name = |key: &&String| self.names.get(*key).unwrap_or(*key).clone();
        let names: Vec<String> = images.iter().map(name).collect();
        let told: Vec<Told> = names.iter().map(|name| told_by(name)).collect();
        let topic = if is_depth { &topics.depth_info } else { &topics.color_info };
        let (topic, camera_name) = (topic.clone(), topics.name.clone());
        if told.contains(&Told::Rectified) {
            if info.p[0] > 0.0 && info.p[5] > 0.0 {
                return Arc::new(rectified(&info));
            }
            if info.d.iter().any(|d| *d != 0.0) {
                self.warn_once(format!(
                    "images of '{camera_name}' on {} are rectified, and the calibration on {topic} has no \
                     matrix P for them: K is taken, without distortion. Publish P",
                    names.join(" and ")
                ));
                let (d, distortion_model) = (Vec::new(), String::new());
                return Arc::new(CameraInfo { d, distortion_model, ..(*info).clone() });
            }
        } else if !told.contains(&Told::Raw) && differs(&info) {
            self.warn_once(format!(
                "the calibration on {topic} has one matrix for raw images (K, with distortion) and another \
                 for rectified ones (P), and the name {} does not tell which they are: they are taken for \
                 raw. If they are rectified, publish them on a topic image_rect, or a calibration without \
                 distortion",
                names.join(" and ")
            ));
        }
        info
    }

    /// Warns of what was not warned of before.
    pub(super) fn warn_once(&mut self, text: String) {
        if !self.told.contains(&text) {
            self.told.insert(text.clone());
            self.warn(text);
        }
    }
}

/// The calibration of the rectified image.
fn rectified(info: &CameraInfo) -> CameraInfo {
    let p = info.p;
    CameraInfo {
        k: [p[0], 0.0, p[2], 0.0, p[5], p[6], 0.0, 0.0, 1.0],
        r: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        d: Vec::new(),
        distortion_model: String::new(),
        ..info.clone()
    }
}

/// Whether it matters which of the two cameras is taken.
fn differs(info: &CameraInfo) -> bool {
    let CameraInfo { k, p, d, .. } = info;
    let is_known = p[0] > 0.0 && p[5] > 0.0;
    let focal = [(k[0], p[0]), (k[4], p[5])].map(|(k, p)| (k - p).abs() > SAME_FOCAL * k);
    let center = [(k[2], p[2]), (k[5], p[6])].map(|(k, p)| (k - p).abs() > SAME_CENTER_PX);
    is_known && (d.iter().any(|d| *d != 0.0) || focal.contains(&true) || center.contains(&true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Header;
    use crate::vision::frames::{CameraTopics, FramesConfig, Input, Topics};

    fn info(d: Vec<f64>, p: f64) -> CameraInfo {
        CameraInfo {
            header: Header::default(),
            height: 480,
            width: 640,
            distortion_model: "plumb_bob".into(),
            d,
            k: [600.0, 0.0, 320.0, 0.0, 600.0, 240.0, 0.0, 0.0, 1.0],
            r: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
            p: [p, 0.0, 315.0, 0.0, 0.0, p, 242.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        }
    }

    /// The calibration that images on `topic` get, and the warnings.
    fn taken(topic: &str, info: CameraInfo) -> (CameraInfo, Vec<String>) {
        let color = topic.to_owned();
        let depth = topic.replace("color", "depth");
        let camera = CameraTopics { color, depth, ..CameraTopics::of("c") };
        let topics = Topics { cameras: vec![camera], ..Topics::default() };
        let mut frames = Frames::new(FramesConfig { topics, ..FramesConfig::default() });
        for _ in 0..2 {
            let input = Input::ColorInfo { camera: 0, info: Arc::new(info.clone()) };
            frames.push(input).unwrap();
        }
        let kept = frames.infos[0].color.clone().unwrap();
        ((*kept).clone(), frames.take_warnings().collect())
    }

    #[test]
    fn rectified_images_have_the_rectified_camera() {
        let raw = info(vec![0.1, -0.2, 0.0, 0.0, 0.0], 550.0);
        for topic in ["/c/color/image_rect", "/c/color/image_rect_color", "/c/color/rect/image"] {
            let (got, warnings) = taken(topic, raw.clone());
            assert_eq!((got.k[0], got.k[2], got.d.len()), (550.0, 315.0, 0), "{topic}");
            assert!(warnings.is_empty(), "{warnings:?}");
        }
        let (got, warnings) = taken("/c/color/image_raw", raw.clone());
        assert!(got == raw && warnings.is_empty());
        // Where nothing tells, it is said what they are taken for.
        let (got, warnings) = taken("/c/color/image", raw.clone());
        assert!(got == raw && warnings.len() == 1, "{warnings:?}");
        assert!(warnings[0].contains("taken for raw"), "{warnings:?}");
        let mut plain = info(vec![0.0; 5], 600.0);
        (plain.p[2], plain.p[6]) = (320.0, 240.0);
        assert!(taken("/c/color/image", plain).1.is_empty(), "it makes no difference");
        let (got, warnings) = taken("/c/color/image_rect", info(vec![0.1], 0.0));
        assert!(got.d.is_empty() && warnings[0].contains("no matrix P"), "{warnings:?}");
    }

    #[test]
    fn the_name_after_remaps_tells() {
        let mut frames = Frames::new(FramesConfig::default());
        frames.set_topic_name("/camera_left/color/image_raw", "/left/image_rect_color");
        let info = Arc::new(info(vec![0.1], 550.0));
        frames.push(Input::ColorInfo { camera: 0, info }).unwrap();
        assert_eq!(frames.infos[0].color.as_ref().map(|info| info.k[0]), Some(550.0));
    }
}
