//! What a predictor sees: in the frame at hand, and in the one before.

use super::Predictor;
use crate::predict::observation::Observation;
use crate::vision::frames::Frame;
use crate::{Error, Result};

impl Predictor {
    /// Images → cloud in the world frame → particles at t-1; the robot's at its joints.
    pub(super) fn observe(&mut self, frame: &Frame) -> Result<Observation> {
        let mut observation = self.history.take_spare();
        let n_particles = self.pace.n_particles();
        self.observer.observe(frame, n_particles, &mut self.backend, &mut observation)?;
        Ok(observation)
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
