//! Whether tf says that the world frame moves.

use super::Frames;
use super::views::ViewParts;
use crate::message::Stamp;
use crate::robot::tf::Carried;

impl Frames {
    /// How the world frame moves by tf, with a camera that hangs on it; none while tf says no such thing, and
    /// where time starts anew. What is corrected of a localization above it is no such motion.
    pub fn moving_world(&self) -> Option<&Carried> {
        self.moving_world.as_ref()
    }

    /// Notes, of a frame of `stamp`, whether the world frame goes along with one of its cameras. Once is enough.
    pub(super) fn watch_world(&mut self, views: &[Option<ViewParts>], stamp: Stamp) {
        if self.moving_world.is_none() {
            let world = &self.config.world_frame;
            let mut cameras = views.iter().flatten().map(|view| view.frame.as_str());
            self.moving_world = cameras.find_map(|camera| self.tf.carried(world, camera, stamp));
        }
    }
}
