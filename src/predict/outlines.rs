//! Outlines: how what hangs together moved over some frames, by where it ends.
//!
//! From one frame to the next, a plain box that slides along its own faces looks at rest: registration finds the
//! same surface again, but at its ends. Over some frames the ends tell what it does, better than any two frames:
//! where it goes straight on at one speed, both of its ends go alike in each direction (`course`). Where one end
//! alone goes, something is hidden or grows, and nothing follows. So it is with ends that nobody saw freely, behind
//! something else (`sight`). But what is long and cut by the border of the image or the box, as a forearm, comes or
//! goes along itself as its free end does. What hangs together is
//! found anew in each frame (`groups`), and the robot is no part of it.

mod course;
mod groups;
mod sight;

use crate::base::geometry::{RigidMotion, Vec3, add, distance, minus, plus};
use crate::engine::rollout_input::StepState;
use crate::predict::observation::Observation;
use crate::vision::motion::{MOTION_SCALE_M, NO_BODY};

use course::{Course, LOOKS, Look};
use groups::{Groups, N_DIRECTIONS, NONE};
use sight::Sight;

/// How far something may go in a step (m) to be found again.
const FARTHEST_M: f32 = 0.05;
/// How its widths may differ from one frame to the next (m, and as a share), its colour in each channel, and by
/// which factor its number of points.
const SAME_SIZE: (f32, f32) = (0.008, 0.15);
const SAME_COLOR: f32 = 0.15;
const SAME_COUNT: f32 = 1.6;
/// Share of a body's particles that must be of a group for the body to go as the group does.
const OF_GROUP: f32 = 0.8;

/// What is remembered of something that hangs together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outline {
    n: u32,
    color: Vec3,
    /// Where it ended, the newest first.
    looks: [Look; LOOKS],
    n_looks: usize,
}

impl Outline {
    fn new(n: u32, color: Vec3, ends: [[f32; 2]; N_DIRECTIONS]) -> Self {
        let mut looks = [Look::default(); LOOKS];
        looks[0].ends = ends;
        Self { n, color, looks, n_looks: 1 }
    }

    fn looks(&self) -> &[Look] {
        &self.looks[..self.n_looks]
    }

    /// How far it came since `past` (m), `steps` ago, if that may be the same.
    fn came(&self, past: &Self, steps: f32) -> Option<f32> {
        let [now, then] = [&self.looks[0], &past.looks[0]];
        let [a, b] = [self.n as f32, past.n as f32];
        let is_alike = a < SAME_COUNT * b
            && b < SAME_COUNT * a
            && minus(&self.color, &past.color).iter().all(|c| c.abs() < SAME_COLOR);
        if !is_alike {
            return None;
        }
        let off_m = distance(&now.center(), &then.center());
        let is_as_wide = now
            .widths()
            .zip(then.widths())
            .all(|(now, then)| (now - then).abs() < SAME_SIZE.0 + SAME_SIZE.1 * now.max(then));
        (off_m < FARTHEST_M * steps && is_as_wide).then_some(off_m)
    }

    /// Takes the looks at what it was `steps` ago.
    fn follow(&mut self, past: &Self, steps: f32) {
        for look in past.looks().iter().take(LOOKS - 1) {
            self.looks[self.n_looks] = Look { age: look.age + steps, ..*look };
            self.n_looks += 1;
        }
    }
}

/// What is measured of a group, and how it goes by its ends.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    /// Sum of its particles' motions (m), and their number.
    sum: Vec3,
    n: u32,
    /// Its motion in a step (m) by its ends, and how much that is more than the mean of its particles'.
    way: Option<[Vec3; 2]>,
    /// Whether that is no more than the noise of a step: then what is measured knows how it turns.
    agrees: bool,
}

/// Follows outlines from frame to frame; its vectors are kept.
#[derive(Debug, Default)]
pub struct Outlines {
    groups: Groups,
    sight: Sight,
    /// Those of the frame at hand, and the group of each.
    seen: Vec<Outline>,
    of: Vec<u32>,
    /// Of each group.
    measured: Vec<Measured>,
    /// The group of each particle that is of a body.
    group_of: Vec<u32>,
    /// Of each body: its particles, those of its last group that has a way, and that group.
    bodies: Vec<(u32, u32, u32)>,
}

impl Outlines {
    /// Finds what hangs together in `now`, and what it was in a frame before, so many steps ago.
    pub fn look(&mut self, now: &Observation, past: Option<(&Observation, f64)>) -> &[Outline] {
        self.groups.find(now);
        self.seen.clear();
        self.of.clear();
        for (at, group) in self.groups.usable() {
            self.seen.push(Outline::new(group.n, group.color(), group.ends()));
            self.of.push(at as u32);
        }
        if let Some((past, steps)) = past {
            self.follow(&past.outlines, steps as f32);
        }
        &self.seen
    }

    /// Finds each again among those of `past`, `steps` ago: the nearest, if it is the nearest to that, too.
    fn follow(&mut self, past: &[Outline], steps: f32) {
        for i in 0..self.seen.len() {
            let this = self.seen[i];
            let Some(j) = nearest(past.iter().map(|past| this.came(past, steps))) else { continue };
            let then = &past[j];
            if nearest(self.seen.iter().map(|now| now.came(then, steps))) == Some(i) {
                self.seen[i].follow(then, steps);
            }
        }
    }

    /// Gives what went straight on by its ends that motion, in the place of what was measured between two frames.
    /// To be called after [`Self::look`] at `now`.
    pub fn correct(&mut self, now: &Observation, start: &mut StepState) {
        self.measure(start);
        let mut is_any = false;
        for (outline, &of) in self.seen.iter().zip(&self.of) {
            let Measured { sum, n, way, agrees } = &mut self.measured[of as usize];
            let mean = sum.map(|x| x / (*n).max(1) as f32);
            // Which ends are seen freely is asked of what seems to move alone.
            if *n == 0 || !Course::is_any(outline.looks()) {
                continue;
            }
            let seen = self.sight.look(now, &self.groups, of, &outline.looks[0]);
            let course = Course::of(outline.looks(), &seen, &mean);
            let Some(course) = course.filter(Course::is_steady) else { continue };
            *agrees = course.agrees(&mean);
            // What is measured is newer: where the speed changes, it knows better.
            if *agrees && !course.is_even() {
                continue;
            }
            *way = Some([course.way, minus(&course.way, &mean)]);
            is_any = true;
        }
        if is_any {
            self.move_particles(start);
            self.move_bodies(start);
        }
    }

    /// Sums up what is measured of the particles of each group.
    fn measure(&mut self, start: &StepState) {
        self.measured.clear();
        self.measured.resize(self.groups.len(), Measured::default());
        self.group_of.clear();
        for (i, p) in start.positions.iter().enumerate() {
            let is_body = start.body_of.get(i).is_some_and(|body| *body != NO_BODY);
            let at = if is_body { self.groups.at(p) } else { NONE };
            self.group_of.push(at);
            if let Some(measured) = self.measured.get_mut(at as usize) {
                add(&mut measured.sum, &start.velocities[i]);
                measured.n += 1;
            }
        }
    }

    fn move_particles(&self, start: &mut StepState) {
        for (i, &of) in self.group_of.iter().enumerate() {
            let Some(Measured { way: Some([way, more]), agrees, .. }) =
                self.measured.get(of as usize)
            else {
                continue;
            };
            let moved = |v: &Vec3| if *agrees { plus(v, more) } else { *way };
            start.velocities[i] = moved(&start.velocities[i]);
            start.velocity_known[i] = 1.0;
            if let Some(motion) = start.extrapolated_motion.get_mut(i) {
                *motion = moved(motion);
            }
            // Its own motion, and that of its body's centre.
            if let Some(body) = start.bodies.get_mut(i) {
                for at in [0, 3] {
                    let told = [0, 1, 2].map(|k| MOTION_SCALE_M * body[at + k]);
                    let moved = moved(&told);
                    (0..3).for_each(|k| body[at + k] = moved[k] / MOTION_SCALE_M);
                }
            }
        }
    }

    fn move_bodies(&mut self, start: &mut StepState) {
        self.bodies.clear();
        self.bodies.resize(start.body_motions.len(), (0, 0, NONE));
        for (&of, &body) in self.group_of.iter().zip(&start.body_of) {
            let Some((n, n_of, group)) = self.bodies.get_mut(body as usize) else { continue };
            *n += 1;
            if self.measured.get(of as usize).is_some_and(|measured| measured.way.is_some()) {
                (*n_of, *group) = if *group == of { (*n_of + 1, of) } else { (1, of) };
            }
        }
        for ((n, n_of, group), motion) in self.bodies.iter().zip(&mut start.body_motions) {
            let Some(Measured { way: Some([way, more]), agrees, .. }) =
                self.measured.get(*group as usize)
            else {
                continue;
            };
            if (*n_of as f32) < OF_GROUP * *n as f32 {
                continue;
            }
            let moved = |motion: RigidMotion| {
                if *agrees { motion.shifted(more) } else { RigidMotion::shift(*way) }
            };
            *motion = motion.map(moved);
        }
    }
}

/// Which of them came from nearest, the first of several.
fn nearest(came: impl Iterator<Item = Option<f32>>) -> Option<usize> {
    let found = came.enumerate().filter_map(|(i, came)| Some((came?, i)));
    found.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, i)| i)
}

#[cfg(test)]
mod tests;
