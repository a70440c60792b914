//! Recordings of cameras that move: what tf errs by is taken out as the predictor does, and told.

use std::borrow::Cow;

use super::config::Teacher;
use super::episode::{Episode, Sample};
use crate::flow_labels::Flow;
use forecloud::predict::moving_camera::{MovingCamera, Seen};
use forecloud::robot::kinematics::NO_LINK;
use forecloud::vision::particles::Particles;
use forecloud::{Error, Result};
use forecloud_bag::recording::{BodyKind, Recording};
use forecloud_eval::rig_check::moving_world;

/// How tf of moving cameras errs in a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PoseErrors {
    /// Steps in which a camera moved.
    pub n_moved: usize,
    /// Of those: steps in which tf erred by what can be told.
    pub n_off: usize,
    /// Means of these: how far that moves what the camera sees (m), and by how much it turns it (rad).
    pub shift_m: f64,
    /// See `shift_m`.
    pub turn_rad: f64,
}

impl Episode {
    /// Pairs of samples one step apart that the same cameras saw, both with points.
    fn alike(&self) -> impl Iterator<Item = [usize; 2]> {
        let with_points = |t: &usize| self.samples[*t].has_points();
        (0..self.samples.len()).filter(with_points).filter_map(|t| {
            let next = self.after(t, 1).filter(|&next| self.are_alike(t, next))?;
            self.samples[next].has_points().then_some([t, next])
        })
    }

    /// Whether a camera looks elsewhere in one step than in the next.
    pub(super) fn has_moving_camera(&self) -> bool {
        self.alike().any(|[t, next]| self.samples[t].looked != self.samples[next].looked)
    }

    /// Two frames, as they are compared; `on_links`: of the first one's points.
    pub(super) fn seen<'a>(
        &'a self,
        frames: [usize; 2],
        clouds: &'a [Particles; 2],
        on_links: &'a [u32],
    ) -> [Seen<'a>; 2] {
        let on_links = [on_links, &[]];
        std::array::from_fn(|k| Seen {
            looked: &self.samples[frames[k]].looked,
            particles: &clouds[k],
            cloud: &clouds[k],
            on_links: on_links[k],
        })
    }

    /// Finds by how much tf of cameras that move errs from each frame to the next.
    pub(super) fn find_pose_errors(&mut self) {
        let moving = |[t, next]: &[usize; 2]| self.samples[*t].looked != self.samples[*next].looked;
        let pairs: Vec<[usize; 2]> = self.alike().filter(moving).collect();
        let mut moving_camera = MovingCamera::default();
        for [t, next] in pairs {
            let clouds = [t, next].map(|t| self.samples[t].cloud());
            let on_links = self.on_links(t);
            let [now, then] = self.seen([t, next], &clouds, &on_links);
            let taken = moving_camera.compare(then, now).taken;
            let sample = &mut self.samples[t];
            (sample.pose_error, sample.corrections) = (taken, moving_camera.corrections().to_vec());
        }
    }

    /// Whether each point of a frame is the robot's, as links are told of: by hindsight, or by truth.
    fn on_links(&self, t: usize) -> Cow<'_, [u32]> {
        let Sample { on_links, bodies, .. } = &self.samples[t];
        if !on_links.is_empty() {
            return Cow::Borrowed(on_links);
        }
        let is_robot = |id: &u16| self.kinds.get(usize::from(*id)) == Some(&BodyKind::Robot);
        bodies.iter().map(|id| if is_robot(id) { 0 } else { NO_LINK }).collect()
    }

    /// How tf errs in it; none where no camera moves.
    pub(super) fn pose_errors(&self) -> Option<PoseErrors> {
        let mut found = PoseErrors::default();
        for [t, next] in self.alike() {
            found.n_moved += usize::from(self.samples[t].looked != self.samples[next].looked);
            let Some(error) = self.samples[t].pose_error else { continue };
            found.n_off += 1;
            found.shift_m += f64::from(error.shift_m);
            found.turn_rad += f64::from(error.turn_rad);
        }
        let n = found.n_off.max(1) as f64;
        (found.shift_m, found.turn_rad) = (found.shift_m / n, found.turn_rad / n);
        (found.n_moved > 0).then_some(found)
    }

    /// What is seen in the last of `frames`, one step apart each, and where that goes: as the tf of the first
    /// would have it. None where hindsight does not tell where.
    pub(super) fn sight(&self, frames: &[usize]) -> Option<(Particles, Cow<'_, Flow>)> {
        let (last, before) = frames.split_last()?;
        let sample = &self.samples[*last];
        let flow = sample.flow.as_ref()?;
        let mut cloud = sample.cloud();
        let chain = |source: u32| {
            let camera = (source >> 24) as usize;
            let of = move |&t: &usize| self.samples[t].corrections.get(camera)?.as_ref();
            before.iter().rev().filter_map(of)
        };
        if !before.iter().any(|&t| self.samples[t].corrections.iter().any(Option::is_some)) {
            return Some((cloud, Cow::Borrowed(flow)));
        }
        let mut flow = flow.clone();
        let points = cloud.positions.iter_mut().zip(&mut flow.motions).zip(&cloud.sources);
        for ((position, motion), source) in points {
            for correction in chain(*source) {
                (*position, *motion) = (correction.apply(position), correction.turn(motion));
            }
        }
        Some((cloud, Cow::Owned(flow)))
    }

    /// Refuses a recording whose world frame moves: nothing rests in it, and hindsight tells of that motion.
    ///
    /// # Errors
    /// [`Error::Bag`] with the remedy.
    pub(super) fn must_rest(&self, recording: &Recording) -> Result<()> {
        let problem = moving_world(recording).map(|item| item.line());
        problem.map_or(Ok(()), |problem| Err(Error::Bag { path: self.path.clone(), problem }))
    }

    /// Refuses cameras that move where pixels teach.
    ///
    /// # Errors
    /// [`Error::Bag`] with the remedy.
    pub(super) fn must_suit(&self, teacher: Teacher) -> Result<()> {
        if teacher != Teacher::Video || !self.has_moving_camera() {
            return Ok(());
        }
        let problem = "by tf, a camera moves: pixels teach of cameras that stand still (the other teachers take it)";
        Err(Error::Bag { path: self.path.clone(), problem: problem.to_owned() })
    }
}

/// Of a window of the frames before and `t`: takes out of the clouds of both, and of the `particles` of both (with
/// their sources), what a camera that moved only seems to see move. Returns whether each particle of now is of where
/// nobody looked before; empty where no camera moved. `kinds`: of the particles of now.
pub(super) fn make_comparable(
    [before, now]: [&Sample; 2],
    clouds: [&mut Particles; 2],
    particles: [&mut Particles; 2],
    kinds: &[BodyKind],
) -> Vec<bool> {
    if before.looked == now.looked {
        return Vec::new();
    }
    let is_robot = |kind: &BodyKind| if *kind == BodyKind::Robot { 0 } else { NO_LINK };
    let on_links: Vec<u32> = kinds.iter().map(is_robot).collect();
    let ([cloud_before, cloud_now], [history, particles]) = (clouds, particles);
    let then =
        Seen { looked: &before.looked, particles: history, cloud: cloud_before, on_links: &[] };
    let now = Seen { looked: &now.looked, particles, cloud: cloud_now, on_links: &on_links };
    let mut moving_camera = MovingCamera::default();
    let both = moving_camera.compare(then, now);
    let (of_before, of_now) = (both.clouds[0].clone(), both.clouds[1].clone());
    let (corrected, unseen) = (both.particles.clone(), both.unseen.to_vec());
    (*cloud_before, *cloud_now, *history) = (of_before, of_now, corrected);
    unseen
}
