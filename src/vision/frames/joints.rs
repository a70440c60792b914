//! Measured joint positions over time.

use crate::message::{JointState, Stamp};
use crate::robot::kinematics::{JointLimits, Outline};
use std::collections::VecDeque;
use std::sync::Arc;

/// Samples of one joint that are kept.
const MAX_SAMPLES: usize = 2048;
/// Joints that are kept.
const MAX_JOINTS: usize = 1024;
/// Seconds after which a joint that fell silent is forgotten, where no description asks for it.
const SILENCE_SECS: f64 = 5.0;
/// Seconds between two looks for them.
const LOOK_SECS: f64 = 0.5;
/// Two states of one joint at one time differ by no more (rad or m), or their sources contradict each other.
const SAME: f64 = 0.02;
/// No joint goes there and back at such a speed, where its description tells no limit: turning (rad/s),
/// sliding (m/s); otherwise at [`OVER_LIMIT`] times its limit.
const FASTEST: [f64; 2] = [15.0, 3.0];
const OVER_LIMIT: f64 = 3.0;
/// Such ways there and back before two sources are told of: a single one may be a bad sample.
const ZIGZAGS: u32 = 3;

/// Positions of all joints at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Joints {
    /// Names of the joints.
    pub names: Arc<[String]>,
    /// One per name: radians or metres.
    pub positions: Vec<f64>,
}

/// The joint states of the last seconds, joint by joint: arm and gripper may publish apart, and the
/// order of the names may change from one message to the next.
#[derive(Debug, Default)]
pub(super) struct JointHistory {
    /// In the order in which they came first.
    tracks: Vec<Track>,
    /// Names of the last message, and the track of each; none of a name that came before.
    last_names: Vec<String>,
    last_tracks: Vec<Option<usize>>,
    newest: Option<Stamp>,
    /// When it was last looked for joints that are silent.
    looked: Option<Stamp>,
}

/// The positions of one joint, ascending in time.
#[derive(Debug)]
struct Track {
    name: String,
    samples: VecDeque<(Stamp, f64)>,
    n_zigzags: u32,
}

/// What was wrong with a joint state.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// Positions that are no numbers, of joints that nobody needs.
    pub(super) n_ignored: u64,
    /// A position that is no number of a joint that the robot has.
    pub(super) bad: Option<String>,
    /// Positions that contradict others, and the first of them in words where it is worth telling.
    pub(super) n_contradictions: u64,
    pub(super) contradiction: Option<String>,
}

impl JointHistory {
    /// Adds a state; `robot`: which joints count, and how they move. A position that came already at
    /// this stamp stays as it is.
    pub(super) fn push(&mut self, state: &JointState, robot: Option<&Outline>) -> Findings {
        let mut findings = Findings::default();
        let stamp = state.header.stamp;
        self.newest = self.newest.max(Some(stamp));
        self.find_tracks(&state.names);
        for (i, &position) in state.positions.iter().enumerate() {
            let Some(&Some(track)) = self.last_tracks.get(i) else { continue };
            let track = &mut self.tracks[track];
            let joint = robot.and_then(|robot| robot.joint(&track.name));
            if position.is_finite() {
                track.add(
                    stamp,
                    position,
                    &joint.copied().unwrap_or(JointLimits::NONE),
                    &mut findings,
                );
            } else if joint.is_some() {
                findings.bad.get_or_insert_with(|| format!("{position} of joint '{}'", track.name));
            } else {
                findings.n_ignored += 1;
            }
        }
        self.forget_silent(stamp, robot);
        findings
    }

    /// Fills in the tracks of `names`, made where they are new.
    fn find_tracks(&mut self, names: &[String]) {
        if self.last_names == names {
            return;
        }
        self.last_names = names.to_vec();
        self.last_tracks.clear();
        for (i, name) in names.iter().enumerate().take(MAX_JOINTS) {
            let is_first = !names[..i].contains(name);
            let known = self.tracks.iter().position(|track| track.name == *name);
            let track = known.or_else(|| {
                let has_room = is_first && self.tracks.len() < MAX_JOINTS;
                has_room.then(|| {
                    let samples = VecDeque::new();
                    self.tracks.push(Track { name: name.clone(), samples, n_zigzags: 0 });
                    self.tracks.len() - 1
                })
            });
            self.last_tracks.push(track.filter(|_| is_first));
        }
    }

    /// Joints that no description asks for go once they are silent; those of a robot stay, so that it
    /// can be said since when they are.
    fn forget_silent(&mut self, now: Stamp, robot: Option<&Outline>) {
        if self.looked.is_some_and(|looked| now.secs_since(looked).abs() < LOOK_SECS) {
            return;
        }
        self.looked = Some(now);
        let n_before = self.tracks.len();
        self.tracks.retain(|track| {
            let newest = track.samples.back().map(|(at, _)| *at);
            let is_fresh = newest.is_some_and(|at| now.secs_since(at) < SILENCE_SECS);
            is_fresh || robot.is_some_and(|robot| robot.joint(&track.name).is_some())
        });
        if self.tracks.len() < n_before {
            self.last_names.clear();
            self.last_tracks.clear();
        }
    }

    /// Whether no publisher is left at `stamp`.
    pub(super) fn is_silent(&self, stamp: Stamp) -> bool {
        self.newest.is_none_or(|newest| stamp.secs_since(newest) > SILENCE_SECS)
    }

    /// Whether a state of that time or a newer one has come.
    pub(super) fn has_come_since(&self, stamp: Stamp) -> bool {
        self.newest.is_some_and(|newest| newest >= stamp)
    }

    /// Positions at `stamp`, interpolated, of the joints of `robot`, or of all without one;
    /// `slack_secs` allows the nearest sample beyond the ends.
    ///
    /// The error says what is missing.
    pub(super) fn at(
        &self,
        stamp: Stamp,
        slack_secs: f64,
        robot: Option<&Outline>,
    ) -> Result<Joints, String> {
        if self.newest.is_none() {
            return Err("no joint state has come".into());
        }
        let Some(robot) = robot else {
            let names = self.tracks.iter().map(|track| track.name.clone()).collect();
            let at = |track: &Track| track.at(stamp, slack_secs, &JointLimits::NONE);
            let positions = self.tracks.iter().map(at).collect::<Result<_, _>>()?;
            return Ok(Joints { names, positions });
        };
        let of = |(name, limits): (&String, &JointLimits)| {
            let track = self.tracks.iter().find(|track| track.name == *name);
            let track = track.filter(|track| !track.samples.is_empty());
            track.ok_or_else(|| self.lack(robot))?.at(stamp, slack_secs, limits)
        };
        let joints = robot.joint_names.iter().zip(&robot.limits);
        let positions = joints.map(of).collect::<Result<_, _>>()?;
        Ok(Joints { names: robot.joint_names.clone(), positions })
    }

    /// Which joints of `robot` no state has told of.
    fn lack(&self, robot: &Outline) -> String {
        let is_there = |name: &String| {
            self.tracks.iter().any(|track| track.name == *name && !track.samples.is_empty())
        };
        let missing = robot.joint_names.iter().filter(|name| !is_there(name));
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        let known: Vec<&str> = self.tracks.iter().map(|track| track.name.as_str()).collect();
        format!("joint state lacks {}; it has {}", missing.join(", "), known.join(", "))
    }
}

impl Track {
    fn add(&mut self, stamp: Stamp, position: f64, limits: &JointLimits, findings: &mut Findings) {
        let after = self.samples.partition_point(|(at, _)| *at < stamp);
        match self.samples.get(after) {
            Some((at, known)) if *at == stamp => {
                if limits.way(*known, position).abs() > SAME {
                    findings.contradicts(|| {
                        let Self { name, .. } = self;
                        format!("'{name}' is at {known:.3} and at {position:.3} at {stamp} s")
                    });
                }
                return;
            }
            _ => self.samples.insert(after, (stamp, position)),
        }
        if self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
        if let Some(text) = self.zigzag(limits) {
            self.n_zigzags += 1;
            findings.n_contradictions += 1;
            if self.n_zigzags >= ZIGZAGS {
                findings.contradiction.get_or_insert(text);
            }
        }
    }

    /// The newest three samples, if they go there and back, and one of it faster than the joint can.
    fn zigzag(&self, limits: &JointLimits) -> Option<String> {
        let n = self.samples.len();
        let [a, b, c] = [n.checked_sub(3)?, n - 2, n - 1].map(|i| self.samples[i]);
        let ways = [limits.way(a.1, b.1), limits.way(b.1, c.1)];
        let most = match limits.speed.is_finite() {
            true => OVER_LIMIT * limits.speed,
            false => FASTEST[usize::from(limits.slides)],
        };
        let secs = [b.0.secs_since(a.0), c.0.secs_since(b.0)];
        let is_fast = |i: usize| ways[i].abs() > SAME && ways[i].abs() > most * secs[i];
        let farthest = ways[0].abs().max(ways[1].abs());
        let comes_back = ways[0] * ways[1] < 0.0 && (ways[0] + ways[1]).abs() < 0.5 * farthest;
        (comes_back && (is_fast(0) || is_fast(1))).then(|| {
            let [from, there, back] = [a, b, c].map(|(_, position)| format!("{position:.3}"));
            let Self { name, .. } = self;
            format!(
                "'{name}' is at {from} at {} s, at {there} at {} s and at {back} at {} s",
                a.0, b.0, c.0
            )
        })
    }

    fn at(&self, stamp: Stamp, slack_secs: f64, limits: &JointLimits) -> Result<f64, String> {
        let after = self.samples.partition_point(|(at, _)| *at < stamp);
        let before = after.checked_sub(1).and_then(|i| self.samples.get(i));
        match (before, self.samples.get(after)) {
            (_, Some((at, exact))) if *at == stamp => Ok(*exact),
            (Some((start, a)), Some((end, b))) => {
                let t = stamp.secs_since(*start) / end.secs_since(*start);
                Ok(a + t * limits.way(*a, *b))
            }
            (Some((at, nearest)), None) | (None, Some((at, nearest))) => {
                let gap_secs = stamp.secs_since(*at);
                if gap_secs.abs() <= slack_secs {
                    return Ok(*nearest);
                }
                let side = if gap_secs > 0.0 { "newest" } else { "oldest" };
                let joint = &self.name;
                Err(format!(
                    "the {side} state of joint '{joint}' is at {at} s, wanted at {stamp} s"
                ))
            }
            (None, None) => Err("no joint state has come".into()),
        }
    }
}

impl Findings {
    fn contradicts(&mut self, text: impl FnOnce() -> String) {
        self.n_contradictions += 1;
        self.contradiction.get_or_insert_with(text);
    }
}
