//! From images to sets of shots that wait for the rest of their frame.

use super::images::Shot;
use super::stream::Stamped;
use super::{CameraTopics, Frames, ProblemKind};
use crate::base::error::{Error, Result};
use crate::message::{Image, Stamp};

impl Frames {
    pub(super) fn push_image(&mut self, camera: usize, is_depth: bool, image: Image) -> Result<()> {
        self.note_image(camera, usize::from(is_depth), image.header.stamp)?;
        if is_depth && !self.config.topics.cameras[camera].input.has_color() {
            self.push_shot(camera, Shot::Images { color: None, depth: image });
            self.collect(camera, false);
            return Ok(());
        }
        let stamp = image.header.stamp;
        if !self.pairers[camera].push(is_depth, image) {
            let CameraTopics { color, depth, .. } = &self.config.topics.cameras[camera];
            let topic = if is_depth { depth } else { color };
            self.came_twice(&format!("an image on {topic}"), stamp);
        }
        self.pair_images(camera, false);
        self.collect(camera, false);
        Ok(())
    }

    pub(super) fn pair_images(&mut self, camera: usize, finished: bool) {
        while let Some(shot) = self.pairers[camera].next(finished) {
            self.push_shot(camera, shot);
        }
    }

    pub(super) fn push_shot(&mut self, camera: usize, shot: Shot) {
        let stamp = shot.stamp();
        self.watch.note_shot(camera, stamp, self.newest_image());
        if !self.sets.push(camera, shot) {
            let name = &self.config.topics.cameras[camera].name;
            self.came_twice(&format!("what camera '{name}' saw"), stamp);
        }
    }

    fn came_twice(&mut self, what: &str, stamp: Stamp) {
        self.bad_message(format!(
            "{what} of {stamp} s came twice: does a second node publish it, or the driver give \
             images the same stamp?"
        ));
    }

    /// Takes the sets that are complete, and counts what was lost.
    pub(super) fn collect(&mut self, camera: usize, finished: bool) {
        while let Some(set) = self.sets.next(finished) {
            match self.last_frame.max(self.waiting.back().map(|(set, _)| set.stamp)) {
                Some(last) if set.stamp <= last => {
                    self.counts.dropped_late += 1;
                    let stamp = set.stamp;
                    let problem = format!("images of {stamp} s came after those of {last} s");
                    self.problems.note(ProblemKind::Late, problem);
                }
                _ => self.waiting.push_back((set, self.now)),
            }
        }
        self.count_losses(camera);
        self.watch_cameras();
    }

    /// Notes the stamp of an image (or cloud) before it is added.
    pub(super) fn note_image(&mut self, camera: usize, stream: usize, stamp: Stamp) -> Result<()> {
        self.check_camera(camera)?;
        let newest = self.newest_image();
        self.watch_time(2 * camera + stream, "images", stamp);
        self.watch.note_image(stamp, newest, self.timeout);
        Ok(())
    }

    pub(super) fn check_camera(&self, camera: usize) -> Result<()> {
        let expected = self.config.topics.cameras.len();
        if camera < expected {
            return Ok(());
        }
        Err(Error::Shape {
            what: "camera index (below the number of cameras)",
            expected,
            got: camera,
        })
    }

    /// Newest stamp of an image of any camera.
    pub(super) fn newest_image(&self) -> Option<Stamp> {
        self.newest[..self.newest.len() - 1].iter().flatten().max().copied()
    }
}
