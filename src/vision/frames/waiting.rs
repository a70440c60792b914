//! From complete images to frames: what waits for joints, calibrations and transforms, and for how long.

use super::robot::RobotState;
use super::stream::Stamped;
use super::views::ViewParts;
use super::{Frame, Frames, FramesConfig, Missing, ShotSet, Wanted, nanos};
use crate::message::Stamp;
use nalgebra::Isometry3;

/// Complete images that may wait for joints and transforms: beyond that, the oldest wait no longer.
const MAX_WAITING: usize = 64;

/// What a frame needs besides its images.
struct Parts {
    /// That of the first camera that is not left out.
    stamp: Stamp,
    /// One per shot of the set; none of a camera that is left out.
    views: Vec<Option<ViewParts>>,
    robot: Option<RobotState>,
    world_from_workspace: Option<Isometry3<f64>>,
}

impl Frames {
    /// Makes frames of the images that wait, the oldest first, as far as what they need has come or their
    /// patience is over; `is_over`: nothing more will come.
    pub(super) fn advance(&mut self, is_over: bool) {
        let patience = nanos(self.config.patience_secs.unwrap_or(0.0));
        while let Some((set, since)) = self.waiting.pop_front() {
            let is_overdue = is_over
                || self.waiting.len() >= MAX_WAITING
                || self.now >= since && self.now.abs_diff(since) >= patience;
            match self.parts(&set, is_overdue) {
                Ok(parts) => {
                    if let Some(frame) = self.frame(set, parts) {
                        self.ready.push_back(frame);
                    }
                }
                Err(missing) if is_overdue || matches!(missing, Missing::Match(_)) => {
                    self.drop_frame(set.stamp, &missing);
                    if matches!(missing, Missing::Tf(..)) {
                        self.note_unplaced(set);
                    }
                }
                Err(missing) => {
                    self.lateness.note_waiting(set.stamp, since, &missing);
                    self.waiting.push_front((set, since));
                    return;
                }
            }
        }
    }

    /// What belongs to the images, if all of it has come.
    fn parts(&mut self, set: &ShotSet, is_overdue: bool) -> std::result::Result<Parts, Missing> {
        let slack_secs = if is_overdue { self.config.tolerance_secs } else { 0.0 };
        let views = self.views(set, is_overdue)?;
        let shots = set.shots.iter().zip(&views);
        let first = shots.clone().find(|(_, view)| view.is_some()).map(|((_, shot), _)| shot);
        let stamp = first.map_or(set.stamp, Stamped::stamp);
        let robot = self.robot_at(stamp, slack_secs, is_overdue)?;
        let world_from_workspace = self.world_from_workspace(stamp)?;
        Ok(Parts { stamp, views, robot, world_from_workspace })
    }

    /// Where the frame of the box to predict in is; none where that is the world frame.
    fn world_from_workspace(
        &self,
        stamp: Stamp,
    ) -> std::result::Result<Option<Isometry3<f64>>, Missing> {
        let FramesConfig { world_frame, workspace_frame, .. } = &self.config;
        let Some(frame) = workspace_frame else { return Ok(None) };
        let found = self.tf.lookup(world_frame, frame, stamp);
        found.map(Some).map_err(|error| {
            let late = self.lateness.transforms_remedy(self.config.patience_secs.unwrap_or(0.0));
            let remedy = late.map_or_else(String::new, |late| format!("; {late}"));
            let problem = format!(
                "the workspace can't be placed by its frame '{frame}' (workspace_frame): {error}{remedy}. \
                 Whatever moves the base publishes that on /tf (odometry, localization); without it, leave \
                 workspace_frame empty"
            );
            let (target, source) = (world_frame.clone(), frame.clone());
            Missing::Workspace(problem, Wanted { target, source, stamp })
        })
    }

    fn frame(&mut self, set: ShotSet, parts: Parts) -> Option<Frame> {
        let Parts { stamp, views, robot, world_from_workspace } = parts;
        self.watch_world(&views, stamp);
        // The first camera may have been left out, and the next one's images be a little older.
        if self.last_frame.is_some_and(|last| stamp <= last) {
            self.counts.dropped_late += 1;
            return None;
        }
        let views = set.shots.into_iter().zip(views);
        let join = |((camera, shot), view): (_, Option<ViewParts>)| view?.join(camera, shot);
        let cameras: Vec<_> = views.filter_map(join).collect();
        self.counts.frames += 1;
        let is_whole = cameras.len() == self.config.topics.cameras.len();
        self.counts.frames_without_camera += u64::from(!is_whole);
        self.last_frame = Some(stamp);
        let plan = self.plans.at(stamp);
        self.note_robot(stamp, robot.as_ref());
        let robot_description = self.robot.description().cloned();
        Some(Frame { stamp, cameras, robot, plan, robot_description, world_from_workspace })
    }

    fn drop_frame(&mut self, stamp: Stamp, missing: &Missing) {
        let count = match missing {
            Missing::Info(_) => &mut self.counts.dropped_no_info,
            Missing::Tf(..) | Missing::Workspace(..) => &mut self.counts.dropped_no_tf,
            Missing::Joints(_) => &mut self.counts.dropped_no_joints,
            Missing::Match(_) => &mut self.counts.dropped_mismatched,
        };
        *count += 1;
        let hint = match missing {
            Missing::Tf(..) => self.placing_hint(),
            _ => "",
        };
        let (kind, problem) = missing.problem();
        self.problems.note(kind, format!("dropped the frame of {stamp} s: {problem}{hint}"));
    }
}
