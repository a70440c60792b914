//! What hindsight teaches of a recording without truth: where points go until the next frame, found
//! once, and the targets of windows, followed from frame to frame.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::MOVING_M;
use super::dataset::{Dataset, Window};
use super::episode::{Episode, Sample};
use crate::flow_labels::{
    Flow, LabelCache, LabelKey, Labeler, Labelled, SURE, Sight, Tracks, View,
};
use forecloud::Result;
use forecloud::base::geometry::{
    Neighbors, RigidMotion, Vec3, distance, follow_links, length, minus, plus,
};
use forecloud::engine::model::calibration::Calibration;
use forecloud::engine::motion_class::MotionClass;
use forecloud::message::Stamp;
use forecloud::predict::moving_camera::MovingCamera;
use forecloud::robot::kinematics::{NO_LINK, Robot};
use forecloud::vision::motion::NO_BODY;
use forecloud::vision::particles::Particles;
use forecloud_bag::recording::BodyKind;

/// How far the motion of a point on a link may differ from the link's (m), and by which share of it.
const DIFFERS_M: f32 = 0.004;
const DIFFERS_SHARE: f32 = 0.3;
/// What lies less high above the support plane, or below it, is the plane's (m).
pub(super) const CLEARANCE_M: f32 = 0.008;

impl Episode {
    /// Finds where the points of each frame go until the next one, and which of them are the robot's; or
    /// takes it from `cache`, and leaves it there.
    ///
    /// # Errors
    /// As [`Labeler::find`], [`Robot::place`] and [`LabelCache::write`].
    pub(super) fn label(&mut self, cache: Option<&LabelCache>, on_frame: &dyn Fn()) -> Result<()> {
        let Some(cache) = cache else { return self.find_labels(on_frame) };
        let mut key = LabelKey::default();
        let (mut robot, mut row) = (self.robot.clone(), Vec::new());
        for (t, sample) in self.samples.iter().enumerate() {
            self.place_measured(t, &mut robot, &mut row)?;
            key.add(sample.stamp.nanos(), &sample.cloud(), &row);
        }
        if self.has_moving_camera() {
            key.add_moving_cameras();
        }
        self.label_file = Some(key.file_name());
        let n_points: Vec<usize> =
            self.samples.iter().map(|sample| sample.positions.len()).collect();
        let Some(kept) = cache.read(&key, &n_points) else {
            self.find_labels(on_frame)?;
            let labelled = self.samples.iter().enumerate();
            return cache.write(
                &key,
                labelled.filter_map(|(t, sample)| {
                    Some((t, sample.flow.as_ref()?, &sample.on_links[..]))
                }),
            );
        };
        for Labelled { frame, flow, on_links } in kept {
            let sample = &mut self.samples[frame];
            sample.is_active = is_active(sample, &flow, &on_links);
            (sample.flow, sample.on_links) = (Some(flow), on_links);
        }
        Ok(())
    }

    fn find_labels(&mut self, on_frame: &dyn Fn()) -> Result<()> {
        let (mut labeler, mut robot) = (Labeler::default(), self.robot.clone());
        let mut moving_camera = MovingCamera::default();
        let links: Vec<u32> = robot.iter().flat_map(Robot::links).collect();
        let (mut rows, mut motions) = ([Vec::new(), Vec::new()], Vec::new());
        for t in 0..self.samples.len() {
            on_frame();
            let Some(next) = self.after(t, 1).filter(|&next| self.are_alike(t, next)) else {
                continue;
            };
            self.place_measured(next, &mut robot, &mut rows[1])?;
            self.place_measured(t, &mut robot, &mut rows[0])?;
            let clouds = [t, next].map(|t| self.samples[t].cloud());
            let mut on_links = vec![NO_LINK; clouds[0].len()];
            if let Some(robot) = robot.as_ref().filter(|_| !rows[0].is_empty()) {
                robot.links_at(&clouds[0].positions, &mut on_links);
                follow_links(&links, &rows[0], &rows[1], &mut motions);
            }
            // The next frame as the tf of this one would have it.
            let [now, then] = self.seen([t, next], &clouds, &on_links);
            let both = moving_camera.compare(then, now);
            let now = View { cloud: now.cloud, common: both.clouds[1], robot: &rows[0] };
            let then = View { cloud: both.cloud, common: both.clouds[0], robot: &rows[1] };
            let mut flow = Flow::default();
            labeler.find([now, then], &links, both.camera_moved, &mut flow)?;
            keep_on_links(&clouds[0], &motions, &mut flow, &mut on_links);
            let sample = &mut self.samples[t];
            sample.is_active = is_active(sample, &flow, &on_links);
            (sample.flow, sample.on_links) = (Some(flow), on_links);
        }
        Ok(())
    }

    /// The frame after frame `t` that its points are followed to; none where that is not known.
    fn followed(&self, t: usize) -> Option<usize> {
        self.samples[t].flow.as_ref().and_then(|_| self.after(t, 1))
    }

    /// Whether truth tells where the points of frame `t` went since frame `before` and will go.
    pub(super) fn knows_truth(&self, [before, t]: [usize; 2], horizon: usize) -> bool {
        let ahead = (1..=horizon).map(|steps| self.after(t, steps));
        let mut all = ahead.chain([Some(before), Some(t)]);
        let has_ids = !self.samples[t].bodies.is_empty() && !self.kinds.is_empty();
        has_ids && all.all(|t| t.is_some_and(|t| !self.samples[t].poses.is_empty()))
    }

    /// Whether its points can be followed from frame `t` over `horizon` steps.
    pub(super) fn is_followed(&self, t: usize, horizon: usize) -> bool {
        (0..horizon).try_fold(t, |t, _| self.followed(t)).is_some()
    }
}

/// Of the points that lie on links, keeps those that move as the link does, are of no body, or of one that
/// lies on links for the most part, and gives them the link's motion: bare links look alike all along, so
/// that the estimate knows little of them.
fn keep_on_links(
    cloud: &Particles,
    motions: &[RigidMotion],
    flow: &mut Flow,
    on_links: &mut [u32],
) {
    let mut of_bodies = BTreeMap::<u32, [u32; 2]>::new();
    for (body, link) in flow.body_of.iter().zip(on_links.iter()) {
        let counts = of_bodies.entry(*body).or_default();
        counts[usize::from(*link != NO_LINK)] += 1;
    }
    // What is of no body is near to the robot, or part of it.
    let is_arm = |body| body == NO_BODY || of_bodies.get(&body).is_some_and(|[off, on]| on > off);
    for (i, link) in on_links.iter_mut().enumerate().filter(|(_, link)| **link != NO_LINK) {
        let p = &cloud.positions[i];
        let is_below = cloud.support_m.is_some_and(|z| p[2] - z < CLEARANCE_M);
        let with_link = motions.get(*link as usize).map(|motion| motion.motion_of(p));
        let fits = with_link.filter(|motion| {
            let differs = length(&minus(motion, &flow.motions[i]));
            let allowed = DIFFERS_M + DIFFERS_SHARE * length(motion);
            let is_like = flow.confidences[i] < SURE || differs <= allowed;
            !is_below && (is_like || is_arm(flow.body_of[i]))
        });
        match fits {
            Some(motion) => (flow.motions[i], flow.confidences[i]) = (motion, 1.0),
            None => *link = NO_LINK,
        }
    }
}

/// Whether at least 2 % of what is neither the robot's nor the support plane's surely moves.
fn is_active(sample: &Sample, flow: &Flow, on_links: &[u32]) -> bool {
    let (mut n_object, mut n_moving) = (0, 0);
    for (i, p) in sample.positions.iter().enumerate() {
        let is_plane = sample.support_m.is_some_and(|z| (p[2] - z).abs() < CLEARANCE_M);
        if on_links[i] == NO_LINK && !is_plane {
            n_object += 1;
            let moves = length(&flow.motions[i]) > MOVING_M && flow.confidences[i] > SURE;
            n_moving += usize::from(moves);
        }
    }
    n_moving > 0 && 50 * n_moving >= n_object
}

/// Where points of a frame are now and later, as hindsight tells.
#[derive(Debug, Default, Clone)]
pub struct Told {
    /// Positions (world frame, m) now and after each step, `[1 + n_steps][n]`.
    pub positions: Vec<Vec<Vec3>>,
    /// How sure those after each step are, 0 to 1, `[n_steps][n]`; 0 where nothing is known.
    pub confidences: Vec<Vec<f32>>,
}

/// What hindsight is sure of is what is seen well, and errs less than the rest: by how much larger half and
/// 90 % of all errors are than those that it is sure of, after one step and after ten, by
/// [`MotionClass::ALL`]. Measured with `small` on 16 simulated validation recordings (docs/src/notebook/teach.md).
/// Where a robot without a plan goes hindsight tells as it does of one with a plan.
const LEFT_OUT: [[[f32; 2]; 2]; MotionClass::ALL.len()] = [
    [[1.0, 1.0], [1.0, 1.3]],
    [[1.0, 1.0], [1.4, 1.4]],
    [[1.0, 1.6], [1.4, 2.0]],
    [[1.3, 1.4], [1.2, 1.8]],
    [[1.0, 1.0], [1.0, 1.3]],
];

/// Widens what was found on recordings of which hindsight tells a `share`, by what hindsight leaves out.
pub fn widen(calibration: &mut Calibration, share: f32) {
    for (factors, left_out) in calibration.factors.iter_mut().zip(LEFT_OUT) {
        for (factors, [first, last]) in factors.iter_mut().zip(left_out) {
            for (step, factor) in factors.iter_mut().enumerate() {
                let at = (step as f32 / 9.0).min(1.0);
                *factor *= (first + at * (last - first)).powf(share);
            }
        }
    }
}

/// How far a point may lie from the nearest one whose motion was found, to go with it (m).
const WITH_M: f32 = 0.008;

impl Dataset {
    /// Where points (world frame, m) of the frame of `stamp` go in up to `n_steps` steps, each with the
    /// nearest point whose way was found; none if no recording that hindsight teaches has such a frame, or
    /// it is the last one.
    ///
    /// # Errors
    /// As [`Sight::new`] and [`Robot::place`].
    pub fn judge(&self, stamp: Stamp, points: &[Vec3], n_steps: usize) -> Result<Option<Told>> {
        let of_stamp = |episode: &&Arc<Episode>| {
            let at = episode.samples.iter().position(|sample| sample.stamp == stamp);
            at.filter(|&t| episode.samples[t].flow.is_some()).map(|t| (Arc::clone(episode), t))
        };
        let mut in_hindsight = self.episodes().filter(|episode| episode.in_hindsight);
        let Some((episode, t)) = in_hindsight.find_map(|episode| of_stamp(&episode)) else {
            return Ok(None);
        };
        let Some(n_steps) = (1..=n_steps).rev().find(|&n| episode.is_followed(t, n)) else {
            return Ok(None);
        };
        let sample = &episode.samples[t];
        let mut nearest = Vec::new();
        Neighbors::default().nearest(&sample.positions, points, &mut nearest)?;
        let mut window = Window::default();
        window.set_labels(&episode, t, n_steps, &nearest)?;
        let from: Vec<Vec3> = nearest.iter().map(|&i| sample.positions[i as usize]).collect();
        let mut told = Told { positions: vec![points.to_vec()], confidences: window.weights };
        for (there, confidences) in window.targets.iter().zip(&mut told.confidences) {
            let moved = points.iter().zip(&from).zip(there);
            told.positions.push(moved.map(|((p, from), to)| plus(p, &minus(to, from))).collect());
            for (i, confidence) in confidences.iter_mut().enumerate() {
                if distance(&points[i], &from[i]) > WITH_M {
                    *confidence = 0.0;
                }
            }
        }
        Ok(Some(told))
    }
}

impl Window {
    /// Targets of the particles that are the points `chosen` of frame `t`, as hindsight tells them; what
    /// moves is an object, what is on the robot's links the robot, what is off the support plane an object
    /// at rest, the plane static.
    ///
    /// # Errors
    /// As [`Sight::new`] and [`Robot::place`].
    pub(super) fn set_labels(
        &mut self,
        episode: &Episode,
        t: usize,
        horizon: usize,
        chosen: &[u32],
    ) -> Result<()> {
        let start = &episode.samples[t];
        let at: Vec<Vec3> = chosen.iter().map(|&i| start.positions[i as usize]).collect();
        let ahead: Vec<usize> =
            std::iter::successors(Some(t), |&t| episode.followed(t)).take(horizon + 1).collect();
        let sights = (0..horizon).filter_map(|h| episode.sight(&ahead[..=h]));
        let sights: Vec<(Particles, Cow<Flow>)> = sights.collect();
        let sights: Result<Vec<Sight>> =
            sights.iter().map(|(cloud, flow)| Sight::new(cloud, flow)).collect();
        let mut tracks = Tracks::default();
        tracks.follow(chosen, &sights?);
        let Tracks { positions, confidences, .. } = tracks;
        (self.targets, self.weights) = (positions, confidences);
        self.back.clear();
        self.carry_robot(episode, &ahead, chosen, &at)?;
        let plane = |p: &Vec3| start.support_m.is_some_and(|z| (p[2] - z).abs() < CLEARANCE_M);
        self.kinds.clear();
        self.kinds.extend(chosen.iter().zip(&at).map(|(&i, p)| {
            match (start.on_links[i as usize], plane(p)) {
                (NO_LINK, true) => BodyKind::Static,
                (NO_LINK, false) => BodyKind::Object,
                _ => BodyKind::Robot,
            }
        }));
        self.moving.resize_with(horizon, Vec::new);
        for h in 0..horizon {
            let last = if h == 0 { &at } else { &self.targets[h - 1] };
            let moved = self.targets[h].iter().zip(last).map(|(to, from)| distance(to, from));
            let kinds = self.kinds.iter();
            let moving =
                moved.zip(kinds).map(|(m, kind)| m > MOVING_M && *kind == BodyKind::Object);
            self.moving[h] = moving.collect();
        }
        Ok(())
    }

    /// Carries the points `chosen`, which are `at` their places, that are the robot's, as it went in the
    /// frames `ahead`: that is known.
    fn carry_robot(
        &mut self,
        episode: &Episode,
        ahead: &[usize],
        chosen: &[u32],
        at: &[Vec3],
    ) -> Result<()> {
        let on_links = &episode.samples[ahead[0]].on_links;
        if chosen.iter().all(|&i| on_links[i as usize] == NO_LINK) {
            return Ok(());
        }
        let mut robot = episode.robot.clone();
        let links: Vec<u32> = robot.iter().flat_map(Robot::links).collect();
        let (mut now, mut then, mut motions) = (Vec::new(), Vec::new(), Vec::new());
        episode.place_measured(ahead[0], &mut robot, &mut now)?;
        for (h, &t) in ahead[1..].iter().enumerate() {
            episode.place_measured(t, &mut robot, &mut then)?;
            follow_links(&links, &now, &then, &mut motions);
            for (k, &i) in chosen.iter().enumerate() {
                if let Some(motion) = motions.get(on_links[i as usize] as usize) {
                    self.targets[h][k] = plus(&at[k], &motion.motion_of(&at[k]));
                    self.weights[h][k] = 1.0;
                }
            }
        }
        Ok(())
    }
}
