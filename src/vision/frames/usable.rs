//! Cameras that send, but whose calibration or transform does not come: left out like silent ones.

use super::views::ViewParts;
use super::{Frames, Missing, ProblemKind, ShotSet, Wanted};
use crate::message::Stamp;

/// What is known of the cameras that lack something.
#[derive(Debug, Default)]
pub(super) struct Usable(Vec<Lack>);

#[derive(Debug, Clone, Default)]
struct Lack {
    /// The first frame that had to do without what this camera lacks.
    since: Option<Stamp>,
    is_left_out: bool,
    /// The transform that the last frame lacked, which may still come.
    wanted: Option<Wanted>,
}

impl Usable {
    pub(super) fn new(n_cameras: usize) -> Self {
        Self(vec![Lack::default(); n_cameras])
    }

    pub(super) fn is_left_out(&self, camera: usize) -> bool {
        self.0.get(camera).is_some_and(|lack| lack.is_left_out)
    }

    pub(super) fn forget_times(&mut self) {
        self.0.iter_mut().for_each(|lack| (lack.since, lack.wanted) = (None, None));
    }
}

impl Frames {
    /// What belongs to the shots of `set`, one of each; none of cameras that are left out.
    pub(super) fn views(
        &mut self,
        set: &ShotSet,
        is_overdue: bool,
    ) -> Result<Vec<Option<ViewParts>>, Missing> {
        let world = Some(self.config.world_frame.as_str());
        let shots = set.shots.iter();
        let found = shots.map(|(camera, shot)| (*camera, self.view_parts(*camera, shot, world)));
        let found: Vec<_> = found.collect();
        let is_any = found.iter().any(|(_, view)| view.is_ok());
        let (mut views, mut lacks) = (Vec::new(), None);
        for (camera, view) in found {
            views.push(match view {
                Ok(view) => {
                    self.take_back(camera);
                    Some(view)
                }
                Err(missing) => {
                    if !is_any || !self.leave_out(camera, set.stamp, &missing, is_overdue) {
                        lacks.get_or_insert(missing);
                    }
                    None
                }
            });
        }
        lacks.map_or(Ok(views), Err)
    }

    /// Whether the frame of `stamp` is to go without `camera`, which lacks something.
    fn leave_out(
        &mut self,
        camera: usize,
        stamp: Stamp,
        missing: &Missing,
        is_overdue: bool,
    ) -> bool {
        let (problem, wanted) = match missing {
            Missing::Info(problem) => (problem, None),
            Missing::Tf(problem, wanted) => (problem, wanted.clone()),
            Missing::Joints(_) | Missing::Match(_) | Missing::Workspace(..) => return false,
        };
        let lack = &mut self.usable.0[camera];
        lack.wanted = wanted;
        if lack.is_left_out || !is_overdue {
            return lack.is_left_out;
        }
        let since = *lack.since.get_or_insert(stamp);
        if stamp.secs_since(since) <= self.config.camera_timeout_secs {
            return false;
        }
        lack.is_left_out = true;
        self.counts.cameras_left_out += 1;
        let name = &self.config.topics.cameras[camera].name;
        let problem = format!("camera '{name}' is left out, frames go on without it: {problem}");
        self.problems.note(ProblemKind::LeftOut, problem);
        true
    }

    fn take_back(&mut self, camera: usize) {
        let lack = std::mem::take(&mut self.usable.0[camera]);
        if lack.is_left_out {
            let name = self.config.topics.cameras[camera].name.clone();
            self.tell(format!("camera '{name}' has what it lacked: back in the frames"));
        }
    }

    /// Takes back cameras whose transform came, be it a little after their images.
    pub(super) fn take_usable_back(&mut self) {
        for camera in 0..self.usable.0.len() {
            let lack = &self.usable.0[camera];
            let Some(Wanted { target, source, stamp }) = &lack.wanted else { continue };
            if lack.is_left_out && self.tf.lookup(target, source, *stamp).is_ok() {
                self.take_back(camera);
            }
        }
    }
}
