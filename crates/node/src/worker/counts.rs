//! What became of the frames that the predicting thread took.

use r2r::forecloud::msg::Timing;

use super::super::mailbox::FrameJob;
use forecloud::predict::predictor::Prediction;
use forecloud::vision::frames::Frame;

/// Counted since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Frames that were predicted from.
    pub used: u64,
    /// Frames that none lies one step before.
    pub without_history: u64,
    /// Frames that could not be used.
    pub rejected: u64,
    /// Frames that were let pass while predicting was paused.
    pub paused: u64,
    /// Frames that were let pass while nobody subscribed.
    pub idle: u64,
    /// Predictions with fewer steps or particles, to end in time.
    pub cut: u64,
}

impl Counts {
    /// As `~/timing` has them, with what `prediction` took that was made of `job`.
    pub(super) fn timing(&self, job: &FrameJob<Frame>, prediction: &Prediction) -> Timing {
        let intake = &job.counts;
        Timing {
            decode_ms: job.decode_ms,
            particles_ms: prediction.timings.particles_ms as f32,
            predict_ms: prediction.timings.predict_ms as f32,
            frames_in: intake.frames,
            frames_used: self.used,
            frames_dropped_busy: job.n_replaced,
            frames_without_history: self.without_history,
            frames_rejected: self.rejected,
            frames_paused: self.paused,
            frames_idle: self.idle,
            frames_dropped_incomplete: intake.dropped_no_info
                + intake.dropped_no_tf
                + intake.dropped_no_joints
                + intake.dropped_mismatched
                + intake.dropped_late,
            images_dropped_unpaired: intake.dropped_unpaired,
            time_jumps: intake.time_jumps,
            predictions_cut: self.cut,
            frames_without_robot: intake.frames_without_robot,
            bad_messages: intake.bad_messages,
            ..Timing::default()
        }
    }
}
