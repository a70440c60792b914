//! Where points came from: which tracks each cluster holds points of.

use crate::base::geometry::{Vec3, distance, plus};

use super::super::clusters::{self, Clusters};
use super::super::looks::Seen;
use super::{FrameFacts, MAX_STEPS, NONE, Share, Track, Tracks};

/// Points of a track within a cluster that are told from a few that strayed: at least so many, and this share of
/// the points that came from any.
const MIN_SHARE: (u32, f32) = (4, 0.1);

impl Tracks {
    /// The track that each point seems to come from: of the past point that is nearest to where it was, or that
    /// should be nearest to where it is.
    pub(super) fn claim(&mut self, frame: &FrameFacts, clusters: &Clusters, seen: &Seen) {
        let n = seen.positions.len();
        self.of.clear();
        self.of.resize(n, NONE);
        if self.past.is_empty() {
            return;
        }
        let steps = frame.steps.min(MAX_STEPS);
        let after = |p: &Vec3, way: &Vec3, steps: f32| plus(p, &way.map(|x| x * steps));
        self.expected.clear();
        let past = self.past.iter().zip(&self.past_ahead);
        self.expected.extend(past.map(|(p, ahead)| after(p, ahead, steps)));
        self.queries.clear();
        let came_from = seen.positions.iter().zip(&seen.motions);
        self.queries.extend(came_from.map(|(p, motion)| after(p, motion, -steps)));
        for (nearest, (points, queries)) in self
            .nearest
            .iter_mut()
            .zip([(&self.past, &self.queries), (&self.expected, &seen.positions)])
        {
            nearest.clear();
            nearest.resize(n, 0);
            self.search.rebuild(points);
            self.search.find_within(clusters.reach_m, nearest.iter_mut().zip(queries));
        }
        for i in (0..n).filter(|&i| clusters.of[i] != clusters::NONE) {
            let [was, should] = [self.nearest[0][i] as usize, self.nearest[1][i] as usize];
            let found = [
                (distance(&self.queries[i], &self.past[was]), was),
                (distance(&seen.positions[i], &self.expected[should]), should),
            ];
            let (off_m, j) = if found[1].0 < found[0].0 { found[1] } else { found[0] };
            if off_m < clusters.reach_m {
                self.of[i] = self.past_of[j];
            }
        }
    }

    /// Counts the points of each track in each cluster.
    pub(super) fn share(&mut self, clusters: &Clusters) {
        self.pairs.clear();
        let claimed = self.of.iter().zip(&clusters.of).filter(|(track, _)| **track != NONE);
        self.pairs.extend(claimed.map(|(&t, &c)| u64::from(c) << 32 | u64::from(t)));
        self.pairs.sort_unstable();
        self.shares.clear();
        for &pair in &self.pairs {
            let (cluster, track) = ((pair >> 32) as u32, pair as u32);
            match self.shares.last_mut().filter(|s| (s.cluster, s.track) == (cluster, track)) {
                Some(share) => share.n += 1,
                None => self.shares.push(Share { cluster, track, n: 1 }),
            }
        }
        let Self { shares, main, most, tracks, claimed, .. } = self;
        for (found, n) in [(&mut *main, tracks.len()), (&mut *most, clusters.len())] {
            found.clear();
            found.resize(n, (0, NONE));
        }
        // The first of several as large.
        for share in shares.iter() {
            let main = &mut main[share.track as usize];
            if share.n > main.0 {
                *main = (share.n, share.cluster);
            }
            let most = &mut most[share.cluster as usize];
            if share.n > most.0 {
                *most = (share.n, share.track);
            }
        }
        claimed.clear();
        claimed.resize(clusters.len(), 0);
        shares.iter().for_each(|share| claimed[share.cluster as usize] += share.n);
        let counts = |share: &Share| {
            let is_its = main[share.track as usize].1 == share.cluster;
            let is_most = most[share.cluster as usize].1 == share.track;
            let least =
                (MIN_SHARE.1 * claimed[share.cluster as usize] as f32).max(MIN_SHARE.0 as f32);
            is_most || (is_its && share.n as f32 >= least)
        };
        shares.retain(counts);
    }

    /// Gives each point of a cluster one of the tracks that count there. A part that hangs together again with
    /// what it was part of is that again.
    pub(super) fn settle(&mut self, clusters: &Clusters, seen: &Seen) {
        let mut first = 0;
        for cluster in 0..clusters.len() {
            let of_cluster = self.shares[first..].iter();
            let n = of_cluster.take_while(|share| share.cluster as usize == cluster).count();
            let shares = first..first + n;
            first += n;
            let members = clusters.members(cluster);
            for at in shares.clone() {
                let track = self.shares[at].track;
                let whole = self.whole_of(track, &self.shares[shares.clone()]);
                let Some(whole) = whole else { continue };
                // Also where other clusters hold points of it: it is no more.
                for share in &mut self.shares {
                    share.track = if share.track == track { whole } else { share.track };
                }
                for of in &mut self.of {
                    *of = if *of == track { whole } else { *of };
                }
                self.release(track);
            }
            let shares = &self.shares[shares];
            let Some(Share { track: only, .. }) = shares.first().copied() else {
                // What strayed here from tracks that are elsewhere.
                members.iter().for_each(|&i| self.of[i as usize] = NONE);
                continue;
            };
            if shares.iter().all(|share| share.track == only) {
                members.iter().for_each(|&i| self.of[i as usize] = only);
                continue;
            }
            self.divide(n, first, members, seen);
        }
    }

    /// What a track is part of, as far as that is in the same cluster, by its `shares`: what it was part of, or, if
    /// neither ever moved, an older one: what rests and hangs together is one thing.
    fn whole_of(&self, track: u32, shares: &[Share]) -> Option<u32> {
        let this = &self.tracks[track as usize];
        let others = || shares.iter().map(|share| share.track).filter(|other| *other != track);
        if let Some(whole) = this.part_of {
            return others().find(|other| *other == whole);
        }
        let is_older = |other: &u32| {
            let that = &self.tracks[*other as usize];
            let age = |track: &Track, at: u32| (track.since, track.number, at);
            that.part_of.is_none() && !that.has_moved && age(that, *other) < age(this, track)
        };
        others().find(is_older).filter(|_| !this.has_moved)
    }

    /// Gives the points of a cluster that came from none of the `n` tracks that count there, those before
    /// `end` among the shares, the track of the nearest one that did.
    fn divide(&mut self, n: usize, end: usize, members: &[u32], seen: &Seen) {
        let shares = &self.shares[end - n..end];
        let counts = |track: u32| shares.iter().any(|share| share.track == track);
        self.chosen.clear();
        self.chosen.extend(members.iter().filter(|&&i| counts(self.of[i as usize])));
        self.from.clear();
        self.from.extend(self.chosen.iter().map(|&i| seen.positions[i as usize]));
        self.search.rebuild(&self.from);
        let nearest = &mut self.nearest[0];
        nearest.clear();
        nearest.resize(members.len(), 0);
        let queries = members.iter().map(|&i| &seen.positions[i as usize]);
        self.search.find(nearest.iter_mut().zip(queries));
        for (&i, &nearest) in members.iter().zip(&*nearest) {
            if !counts(self.of[i as usize]) {
                self.of[i as usize] = self.of[self.chosen[nearest as usize] as usize];
            }
        }
    }

    /// Keeps what the next frame asks for.
    pub(super) fn remember(&mut self, seen: &Seen) {
        self.past.clear();
        self.past_ahead.clear();
        self.past_of.clear();
        for i in (0..self.of.len()).filter(|&i| self.of[i] != NONE) {
            self.past.push(seen.positions[i]);
            self.past_ahead.push(seen.ahead[i]);
            self.past_of.push(self.of[i]);
        }
    }
}
