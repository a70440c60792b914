//! An only camera that no transform places: offered to whoever can tell by what it sees.

use nalgebra::Isometry3;

use super::{CameraFrame, Frames, ProblemKind, ShotSet};
use crate::message::{Header, Stamp, TfMessage, TransformStamped};

/// Seconds (of the images' stamps) that transforms may take to come.
const PATIENCE_SECS: f64 = 2.0;

/// What a camera sees whose place is not known.
#[derive(Debug, Clone)]
pub struct Unplaced {
    /// Points come out in the camera's own frame.
    pub view: CameraFrame,
    /// That frame's name.
    pub frame: String,
}

/// What is known of an only camera that is not placed.
#[derive(Debug, Default)]
pub(super) struct Placing {
    /// The first frame that had no pose.
    since: Option<Stamp>,
    offered: Option<Unplaced>,
    /// The transform that was made up for it.
    made: Option<TransformStamped>,
    /// Whether another node has told where it is: then nothing is made up any more.
    is_withdrawn: bool,
    /// Whether that was not asked for yet.
    is_news: bool,
}

impl Placing {
    pub(super) fn forget_times(&mut self) {
        (self.since, self.offered) = (None, None);
    }
}

impl Frames {
    /// The only camera, where [`super::FramesConfig::level_camera`] asks for it and for two seconds
    /// nothing has told of the world frame: no transform, and no link of the robot. Once a frame;
    /// [`Frames::place`] places it.
    pub fn take_unplaced(&mut self) -> Option<Unplaced> {
        self.placing.offered.take()
    }

    /// Places a camera: as if a static transform from the world frame to the root of its frames had
    /// come, which is returned for others.
    pub fn place(
        &mut self,
        unplaced: &Unplaced,
        world_from_camera: &Isometry3<f64>,
    ) -> TransformStamped {
        let stamp = unplaced.view.stamp();
        let root = self.tf.root(&unplaced.frame).unwrap_or(&unplaced.frame).to_owned();
        // Without a path, the root is the camera's frame itself.
        let camera_from_root = self.tf.lookup(&unplaced.frame, &root, stamp).unwrap_or_default();
        let made = TransformStamped {
            header: Header { stamp, frame_id: self.config.world_frame.clone() },
            child_frame_id: root,
            parent_from_child: world_from_camera * camera_from_root,
        };
        self.placing.made = Some(made.clone());
        self.push_tf(&TfMessage { transforms: vec![made.clone()] }, true);
        made
    }

    /// Whether the camera's place was withdrawn, as a transform says otherwise: once.
    pub fn take_withdrawn(&mut self) -> bool {
        std::mem::take(&mut self.placing.is_news)
    }

    /// Tells why the camera was not placed.
    pub fn not_placed(&mut self, why: String) {
        self.problems.note(ProblemKind::Placing, why);
    }

    /// Whether there is one camera, and nobody else tells of the world frame.
    fn is_placing_ours(&self) -> bool {
        let world = &self.config.world_frame;
        let is_known = self.tf.knows(world) || self.robot.is_rooted_in_world();
        self.config.topics.cameras.len() == 1 && !is_known
    }

    /// What else can be done where a transform is missing.
    pub(super) fn placing_hint(&self) -> &'static str {
        match self.is_placing_ours() && !self.config.level_camera {
            true => {
                "; or have this only camera placed by the table or floor that it sees: \
                 level_camera (tool: -p level_camera:=true)"
            }
            false => "",
        }
    }

    /// A set for which no transform was found.
    pub(super) fn note_unplaced(&mut self, set: ShotSet) {
        let since = *self.placing.since.get_or_insert(set.stamp);
        let is_late = set.stamp.secs_since(since) >= PATIENCE_SECS;
        let is_only = self.config.topics.cameras.len() == 1;
        let is_known = self.tf.knows(&self.config.world_frame) || self.robot.is_rooted_in_world();
        if !self.config.level_camera
            || !is_late
            || !is_only
            || is_known
            || self.placing.is_withdrawn
        {
            return;
        }
        self.placing.offered = set.shots.into_iter().next().and_then(|(camera, shot)| {
            let parts = self.view_parts(camera, &shot, None).ok()?;
            let frame = parts.frame.clone();
            Some(Unplaced { view: parts.join(camera, shot)?, frame })
        });
    }

    /// Withdraws the place that was made up where another node places the camera, or the world frame:
    /// before that transform is taken.
    pub(super) fn note_placed_elsewhere(&mut self, transform: &TransformStamped) {
        let Some(made) = self.placing.made.clone() else { return };
        let TransformStamped { header, child_frame_id: child, parent_from_child: pose } = transform;
        let [parent, child] = [&header.frame_id, child].map(|name| name.trim_start_matches('/'));
        let world = made.header.frame_id.as_str();
        // It comes back from DDS.
        let difference = pose.to_homogeneous() - made.parent_from_child.to_homogeneous();
        let is_made = parent == world && difference.amax() < 1e-9;
        if child == world || child == made.child_frame_id && !is_made {
            self.tf.remove(&made.child_frame_id);
            (self.placing.made, self.placing.is_withdrawn, self.placing.is_news) =
                (None, true, true);
            let problem = format!(
                "a transform from '{parent}' to '{child}' has come: it counts from now on, and the place \
                 that the camera was given by what it sees does not. Set level_camera to false"
            );
            self.problems.note(ProblemKind::Placing, problem);
        }
    }
}
