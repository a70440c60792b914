//! What a predictor sees: in the frame at hand, and in the one before.

use super::Predictor;
use crate::predict::observation::Observation;
use crate::vision::cloud::Place;
use crate::vision::frames::Frame;
use crate::{Error, Result};

impl Predictor {
    /// Images → cloud in the world frame → particles at t-1; the robot's at its joints.
    pub(super) fn observe(&mut self, frame: &Frame) -> Result<Observation> {
        let mut observation = self.history.take_spare();
        let n_particles = self.pace.n_particles();
        let seen = (&self.place_of(frame), n_particles);
        self.observer.observe(frame, seen, &mut self.backend, &mut observation)?;
        Ok(observation)
    }

    /// Where the box is in `frame`.
    pub(super) fn place_of(&self, frame: &Frame) -> Place {
        let model = &self.model.config;
        let pose = frame.world_from_workspace.as_ref();
        self.config.place_of(model).in_world(pose, &model.workspace)
    }

    /// Observes the kept frame that lies one step before `now`, where no observation does.
    pub(super) fn look_back(&mut self, now: &Observation) -> Result<()> {
        if self.history.before(now).is_some() {
            return Ok(());
        }
        let Some(kept) = self.history.take_kept(now.stamp, &now.cameras) else { return Ok(()) };
        let unusable =
            |cause| Error::History { stamp: kept.stamp.to_string(), cause: Box::new(cause) };
        let observation = self.observe(&kept).map_err(unusable)?;
        self.history.remember(observation);
        Ok(())
    }

    /// Notes the sizes of the images, for snapshots.
    pub(super) fn note_image_sizes(&mut self, frame: &Frame) {
        self.image_sizes.clear();
        for camera in &frame.cameras {
            let n_known = self.image_sizes.len().max(camera.camera + 1);
            self.image_sizes.resize(n_known, None);
            self.image_sizes[camera.camera] = camera.image_size();
        }
    }
}
