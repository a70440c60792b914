//! What rests in the images, inside the box and beyond it: where that is more than a robot's own parts, the
//! world frame rests, whatever goes by.
//!
//! Points at outlines, of things or of colours, are held against the other of two frames twice: staying where they
//! are, and going on the motion that the world frame is suspected of. Where that frame saw through the place to
//! something behind, or saw another colour there, the point was elsewhere. What fits both, as an edge along the
//! motion, and what something hid, tells nothing.

mod image;
#[cfg(test)]
mod tests;

use nalgebra::Isometry3;

use crate::base::geometry::{Vec3, plus};
use crate::predict::moving_world::CommonMotion;
use crate::predict::robot_forecast::RobotNow;
use crate::vision::frames::CameraFrame;
use image::{SeenImage, Told};

/// What is so near to the robot may be seen of it (m).
pub const ROBOT_M: f32 = 0.05;
/// Points of an image that are asked, at most, spread evenly.
const MOST_POINTS: usize = 4096;
/// How far what moves has gone between two frames that tell (m), and steps between these at most.
const WAY_M: f32 = 0.05;
const MOST_STEPS: usize = 5;
/// Points that rest, at least, and as a share of those that tell.
const LEAST_POINTS: usize = 20;
const LEAST_SHARE: f32 = 0.2;

/// What the cameras of a frame saw; its memory is kept.
#[derive(Debug, Default, Clone)]
pub struct Sights {
    images: Vec<SeenImage>,
}

/// Points that tell, of the images of one camera.
#[derive(Debug, Default)]
struct Votes {
    /// Depths of those that rest and don't go on the motion, and of those that moved (m).
    resting: Vec<f32>,
    moving: Vec<f32>,
}

impl Sights {
    /// Takes what `cameras` see, in the memory that there is: of those that send depth images.
    pub fn take(&mut self, cameras: &[CameraFrame]) {
        let mut spare = std::mem::take(&mut self.images).into_iter();
        let images = cameras.iter().filter_map(|frame| SeenImage::take(frame, spare.next()));
        self.images.extend(images);
    }

    /// How many steps back a frame tells of what goes on `motion`.
    pub(in crate::predict) fn steps_back(motion: &CommonMotion) -> usize {
        ((WAY_M / motion.typical_m).ceil() as usize).clamp(1, MOST_STEPS)
    }

    /// Whether something rests in the world frame beside what went on `motion` in the steps since `before`:
    /// something that is seen farther off than some of that, so that it is no part of what carries the camera,
    /// and is not near to `robot`.
    pub(in crate::predict) fn rest(
        &self,
        (before, n_steps): (&Self, usize),
        motion: &CommonMotion,
        robot: &RobotNow,
    ) -> bool {
        let (mut n_resting, mut n_moving) = (0, 0);
        for now in &self.images {
            let Some(then) = before.images.iter().find(|then| then.camera == now.camera) else {
                continue;
            };
            let mut votes = Votes::default();
            for (images, motion) in [([now, then], &motion.back), ([then, now], &motion.ahead)] {
                let moved =
                    |p: &Vec3| (0..n_steps).fold(*p, |p, _| plus(&p, &motion.motion_of(&p)));
                ask(images, moved, robot, &mut votes);
            }
            n_resting += votes.n_resting();
            n_moving += votes.moving.len();
        }
        n_resting >= LEAST_POINTS && n_resting as f32 >= LEAST_SHARE * (n_resting + n_moving) as f32
    }
}

impl Votes {
    /// Those at rest that are no nearer than a quarter of what moves.
    fn n_resting(&mut self) -> usize {
        let quarter = self.moving.len() / 4;
        let near_m = match self.moving.get(quarter) {
            Some(_) => *self.moving.select_nth_unstable_by(quarter, f32::total_cmp).1,
            None => 0.0,
        };
        self.resting.iter().filter(|far_m| **far_m >= near_m).count()
    }
}

/// Asks the second image of points of the first, each where it is and where `moved` has it.
fn ask(
    [image, other]: [&SeenImage; 2],
    moved: impl Fn(&Vec3) -> Vec3,
    robot: &RobotNow,
    votes: &mut Votes,
) {
    let from_world: Isometry3<f64> = other.world_from_camera.inverse();
    let outlines: Vec<[usize; 2]> = image.outlines().collect();
    let every = outlines.len().div_ceil(MOST_POINTS).max(1);
    for at in outlines.into_iter().step_by(every) {
        let Some((p, seen)) = image.point(at) else { continue };
        let told = [p, moved(&p)].map(|p| other.tells(&from_world, &p, &seen));
        let votes = match told {
            [Told::Seen, Told::Other] => &mut votes.resting,
            [Told::Other, _] => &mut votes.moving,
            _ => continue,
        };
        if !robot.is_near(&p) {
            votes.push(seen.depth_m);
        }
    }
}
