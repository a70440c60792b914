//! Tracks: what each cluster is of, by where its points came from.

mod claims;

use crate::base::geometry::{Nearest, RigidMotion, Vec3, distance, length, minus, plus};
use crate::message::Stamp;

use super::clusters::Clusters;
use super::looks::{Look, Seen, Sums};
use super::{Followed, KEPT_SECS};

/// No track.
const NONE: u32 = u32::MAX;
/// A cluster of this many points is an object at once; a smaller one once it was there in so many frames.
const SURE: (u32, u32) = (10, 3);
/// What has more than this share of its points this near to the robot (m) when it first appears is of the robot.
const NEAR_ROBOT: (f32, f32) = (0.5, 0.03);
/// What is larger than this share of the scene and never moved is a wall, or furniture.
const LARGE: f32 = 0.4;
/// How much of a way is still remembered one step later.
const REMEMBERED: f32 = 0.9;
/// A part that still touches the rest is on its own once it slid this many times as far as points lie apart: what is
/// only measured to move otherwise comes back.
const SLIDES: f32 = 4.0;
/// Steps that motions reach at most.
const MAX_STEPS: f32 = 3.0;
/// How far off something may be found again after it was out of sight: this share of how far it may have gone.
const STRAYS: f32 = 0.5;
/// Difference in each channel up to which it looks like itself.
const SAME_COLOR: f32 = 0.25;
/// Factor by which its number of points may have changed.
const SAME_SIZE: f32 = 6.0;

/// What else is known of a frame.
pub(super) struct FrameFacts<'a> {
    pub stamp: Stamp,
    /// Steps since the last frame that was followed, and the seconds of one.
    pub steps: f32,
    pub step_secs: f32,
    /// The scene's largest extent (m).
    pub extent_m: f32,
    /// Points on the robot (m).
    pub robot: &'a [Vec3],
}

/// Something that is followed.
#[derive(Debug, Clone, Copy, Default)]
struct Track {
    is_used: bool,
    /// 0 of what is no object, or not yet.
    number: u64,
    /// The track that it was part of, and shares its number with, until it moves away.
    part_of: Option<u32>,
    /// How far it went lately (m): from what it is part of, if it is part of something.
    way: Vec3,
    /// Whether it ever went anywhere on its own.
    has_moved: bool,
    /// Whether it is a wall, or furniture.
    is_fixed: bool,
    since: Stamp,
    n_frames: u32,
    look: Look,
}

/// Points of a track within a cluster.
#[derive(Debug, Clone, Copy)]
struct Share {
    cluster: u32,
    track: u32,
    n: u32,
}

/// All that are followed.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    tracks: Vec<Track>,
    n_numbers: u64,
    /// The track of each point that is seen; [`NONE`] of those in no cluster.
    of: Vec<u32>,
    /// The same of the last frame, where its points were (m), and where they should be now (m).
    past_of: Vec<u32>,
    past: Vec<Vec3>,
    past_ahead: Vec<Vec3>,
    expected: Vec<Vec3>,
    queries: Vec<Vec3>,
    nearest: [Vec<u32>; 2],
    search: Nearest,
    sums: Vec<Sums>,
    shares: Vec<Share>,
    /// Points of each cluster that came from any track.
    claimed: Vec<u32>,
    pairs: Vec<u64>,
    /// The cluster that holds most of each track, and the track that most of each cluster came from.
    main: Vec<(u32, u32)>,
    most: Vec<(u32, u32)>,
    chosen: Vec<u32>,
    /// For each point the first of all that hang together with it, however they move.
    touching: Vec<u32>,
    from: Vec<Vec3>,
    to: Vec<Vec3>,
}

impl Tracks {
    /// Forgets all; numbers begin again.
    pub fn forget(&mut self) {
        self.tracks.clear();
        self.n_numbers = 0;
        self.past_of.clear();
        self.past.clear();
        self.past_ahead.clear();
    }

    /// Follows all to the frame at hand.
    pub fn follow(&mut self, frame: &FrameFacts, clusters: &mut Clusters, seen: &Seen) {
        clusters.touching(&mut self.touching);
        self.claim(frame, clusters, seen);
        self.share(clusters);
        self.settle(clusters, seen);
        self.begin(frame, clusters);
        self.look(frame, seen);
        self.drift(frame, clusters.reach_m, seen);
        self.find_lost(frame, clusters.reach_m);
        self.succeed(frame.stamp);
        self.number(frame, seen);
        self.remember(seen);
    }

    /// The number of each point's object, in their order; 0 for none.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.of.iter().map(|&track| self.number_of(track))
    }

    /// The objects that are seen at `stamp`, by number, into `list`.
    pub fn list(&self, stamp: Stamp, list: &mut Vec<Followed>) {
        list.clear();
        let is_seen = |track: &&Track| {
            track.is_used
                && track.number > 0
                && track.part_of.is_none()
                && track.look.stamp == stamp
        };
        let followed = |track: &Track| Followed { number: track.number, since: track.since };
        list.extend(self.tracks.iter().filter(is_seen).map(followed));
        list.sort_unstable_by_key(|followed| followed.number);
    }

    fn number_of(&self, track: u32) -> u64 {
        let Some(track) = self.tracks.get(track as usize) else { return 0 };
        let whole = track.part_of.and_then(|whole| self.tracks.get(whole as usize));
        whole.unwrap_or(track).number
    }

    /// Begins tracks: of clusters that came from nothing, and of parts that hang together no longer.
    fn begin(&mut self, frame: &FrameFacts, clusters: &Clusters) {
        for cluster in 0..clusters.len() {
            let members = clusters.members(cluster);
            if members.iter().all(|&i| self.of[i as usize] == NONE) {
                let track = self.new_track(frame.stamp, None);
                members.iter().for_each(|&i| self.of[i as usize] = track);
            }
        }
        for at in 0..self.shares.len() {
            let Share { cluster, track, .. } = self.shares[at];
            if self.main[track as usize].1 == cluster {
                continue;
            }
            let is_split = |i: &&u32| self.of[**i as usize] == track;
            if clusters.members(cluster as usize).iter().any(|i| is_split(&i)) {
                let whole = self.tracks[track as usize].part_of.unwrap_or(track);
                let part = self.new_track(frame.stamp, Some(whole));
                for &i in clusters.members(cluster as usize) {
                    let of = &mut self.of[i as usize];
                    *of = if *of == track { part } else { *of };
                }
            }
        }
    }

    fn new_track(&mut self, since: Stamp, part_of: Option<u32>) -> u32 {
        let track = Track { is_used: true, since, part_of, ..Track::default() };
        let is_taken =
            |at: usize| self.tracks[at].is_used || self.main.get(at).is_some_and(|m| m.0 > 0);
        match (0..self.tracks.len()).find(|&at| !is_taken(at)) {
            Some(at) => {
                self.tracks[at] = track;
                at as u32
            }
            None => {
                self.tracks.push(track);
                self.tracks.len() as u32 - 1
            }
        }
    }

    fn release(&mut self, track: u32) {
        self.tracks[track as usize].is_used = false;
        // What was part of it is on its own.
        for other in &mut self.tracks {
            other.part_of = other.part_of.filter(|whole| *whole != track);
        }
    }

    /// Looks at all that is seen.
    fn look(&mut self, frame: &FrameFacts, seen: &Seen) {
        let Self { tracks, of, sums, .. } = self;
        sums.clear();
        sums.resize(tracks.len(), Sums::default());
        for (i, &track) in of.iter().enumerate() {
            if let Some(sums) = sums.get_mut(track as usize) {
                sums.add(seen, i);
            }
        }
        for (track, sums) in tracks.iter_mut().zip(sums).filter(|(_, sums)| sums.n > 0) {
            track.look = sums.look(frame.stamp);
            track.n_frames += 1;
        }
    }

    /// How far each went lately; parts that went away from what they were part of are on their own.
    fn drift(&mut self, frame: &FrameFacts, reach_m: f32, seen: &Seen) {
        let steps = frame.steps.min(MAX_STEPS);
        for at in 0..self.tracks.len() {
            let Track { is_used, part_of, look, .. } = self.tracks[at];
            if !is_used || look.stamp != frame.stamp {
                continue;
            }
            let mut moved = look.motion;
            if let Some(whole) = part_of {
                moved = minus(&moved, &self.motion_at(whole, frame.stamp, &look.center, seen));
            }
            let track = &mut self.tracks[at];
            let kept = REMEMBERED.powf(steps);
            track.way = plus(&track.way.map(|x| x * kept), &moved.map(|x| x * steps));
            let far_m = length(&track.way);
            track.has_moved |= part_of.is_none() && far_m > reach_m;
            let Some(whole) = part_of else { continue };
            let is_apart =
                far_m > SLIDES * reach_m || (far_m > reach_m && !self.touch(at as u32, whole));
            if is_apart {
                let track = &mut self.tracks[at];
                (track.has_moved, track.part_of) = (true, None);
            }
        }
    }

    /// Whether points of two tracks hang together, however they move.
    fn touch(&mut self, a: u32, b: u32) -> bool {
        self.chosen.clear();
        let of_a = self.of.iter().zip(&self.touching).filter(|(of, _)| **of == a);
        self.chosen.extend(of_a.map(|(_, first)| *first));
        self.chosen.sort_unstable();
        let mut of_b = self.of.iter().zip(&self.touching).filter(|(of, _)| **of == b);
        of_b.any(|(_, first)| self.chosen.binary_search(first).is_ok())
    }

    /// How far a track goes in a step at `place` (m), if it is rigid and seen; else 0.
    fn motion_at(&mut self, track: u32, stamp: Stamp, place: &Vec3, seen: &Seen) -> Vec3 {
        if self.tracks[track as usize].look.stamp != stamp {
            return [0.0; 3];
        }
        self.from.clear();
        self.to.clear();
        for i in (0..self.of.len()).filter(|&i| self.of[i] == track && seen.known[i]) {
            self.from.push(seen.positions[i]);
            self.to.push(plus(&seen.positions[i], &seen.motions[i]));
        }
        match self.from.is_empty() {
            true => [0.0; 3],
            false => RigidMotion::fit(&self.from, &self.to).motion_of(place),
        }
    }

    /// Finds again what was out of sight: what begins near to where it was, or was predicted to be, takes its
    /// number.
    fn find_lost(&mut self, frame: &FrameFacts, reach_m: f32) {
        for at in 0..self.tracks.len() {
            let new = self.tracks[at];
            let begins = new.is_used && new.look.stamp == frame.stamp && new.n_frames == 1;
            if !begins {
                continue;
            }
            let off = |lost: &Track| -> Option<f32> {
                let is_lost = lost.is_used
                    && lost.look.stamp != frame.stamp
                    && lost.part_of.is_none()
                    && lost.number > 0;
                let sizes = [lost.look.n as f32, new.look.n as f32];
                let is_alike = sizes[0] < SAME_SIZE * sizes[1]
                    && sizes[1] < SAME_SIZE * sizes[0]
                    && minus(&lost.look.color, &new.look.color)
                        .iter()
                        .all(|c| c.abs() < SAME_COLOR);
                if !is_lost || !is_alike {
                    return None;
                }
                let steps = frame.stamp.secs_since(lost.look.stamp) as f32 / frame.step_secs;
                let was = &lost.look.center;
                let gone = |way: &Vec3| plus(was, &way.map(|x| x * steps));
                let places = [*was, gone(&lost.look.ahead), gone(&lost.look.motion)];
                let off = places.iter().map(|place| distance(place, &new.look.center));
                let off = off.fold(f32::INFINITY, f32::min);
                let speed = length(&lost.look.ahead).max(length(&lost.look.motion));
                let may = lost.look.radius_m.max(new.look.radius_m) + reach_m;
                (off < may + STRAYS * speed * steps).then_some(off)
            };
            let found = self.tracks.iter().enumerate().filter_map(|(i, t)| Some((off(t)?, i)));
            let found = found.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let Some((_, lost)) = found else { continue };
            let Track { number, since, n_frames, .. } = self.tracks[lost];
            let track = &mut self.tracks[at];
            (track.number, track.since, track.part_of) = (number, since, None);
            track.n_frames += n_frames;
            self.release(lost as u32);
        }
    }

    /// Where the larger part is out of sight, another takes its number; forgets what was out of sight for long.
    fn succeed(&mut self, stamp: Stamp) {
        for whole in 0..self.tracks.len() as u32 {
            let Track { is_used, number, since, look, .. } = self.tracks[whole as usize];
            if !is_used || look.stamp == stamp {
                continue;
            }
            let is_part =
                |t: &Track| t.is_used && t.part_of == Some(whole) && t.look.stamp == stamp;
            let parts = self.tracks.iter().enumerate().filter(|(_, track)| is_part(track));
            let heir = parts.max_by_key(|(at, part)| (part.look.n, std::cmp::Reverse(*at)));
            if let Some((heir, _)) = heir {
                let part = &mut self.tracks[heir];
                (part.number, part.since, part.part_of) = (number, since, None);
                for track in &mut self.tracks {
                    if track.part_of == Some(whole) {
                        track.part_of = Some(heir as u32);
                    }
                }
                self.release(whole);
            } else if stamp.secs_since(look.stamp) > KEPT_SECS {
                self.release(whole);
            }
        }
    }

    /// Numbers what has become an object.
    fn number(&mut self, frame: &FrameFacts, seen: &Seen) {
        for at in 0..self.tracks.len() {
            let track = &mut self.tracks[at];
            let Track { is_used, part_of, has_moved, n_frames, look, .. } = *track;
            let is_seen = is_used && look.stamp == frame.stamp;
            if !is_seen || part_of.is_some() {
                continue;
            }
            // What was seen in parts turns out to be one large thing; a part of it stays what it was.
            track.is_fixed |= 2.0 * look.radius_m > LARGE * frame.extent_m;
            track.is_fixed &= !has_moved;
            let is_fixed = track.is_fixed;
            if is_fixed {
                track.number = 0;
            } else if track.number > 0 {
                continue;
            }
            let is_sure = look.n >= SURE.0 || n_frames >= SURE.1;
            if is_sure && !is_fixed && !self.is_of_robot(at as u32, frame.robot, seen) {
                self.n_numbers += 1;
                self.tracks[at].number = self.n_numbers;
            }
        }
    }

    /// Whether a track is near to the robot's surface.
    fn is_of_robot(&mut self, track: u32, robot: &[Vec3], seen: &Seen) -> bool {
        if robot.is_empty() {
            return false;
        }
        let near = |p: &Vec3| robot.iter().any(|q| distance(p, q) < NEAR_ROBOT.1);
        let points = (0..self.of.len()).filter(|&i| self.of[i] == track);
        let n_near = points.filter(|&i| near(&seen.positions[i])).count();
        n_near as f32 > NEAR_ROBOT.0 * self.tracks[track as usize].look.n as f32
    }
}
