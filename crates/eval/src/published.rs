//! Predictions that a node published, held against those that replay computes.

use std::collections::BTreeMap;
use std::path::Path;

use forecloud::base::geometry::Vec3;
use forecloud::message::{self, Stamp};
use forecloud::predict::predictor::Prediction;
use forecloud::predict::track_record::{LAG, WINDOW};
use forecloud::{Error, Result};
use forecloud_bag::bag::Bag;

/// How the names of topics end that predictions are published on.
const TOPIC_END: &str = "/prediction";

/// Steps that predictions remember of those before, as far as they may lie apart: what was said three steps
/// before the first of those whose misses count.
const REMEMBERED_STEPS: f64 = 1.5 * (WINDOW + LAG) as f64;

/// Published predictions by stamp.
#[derive(Debug, Clone, Default)]
pub struct Published {
    messages: BTreeMap<Stamp, message::Prediction>,
    /// Most particles and most steps of a prediction.
    n_particles: u32,
    n_steps: u32,
    /// Stamps of predictions that tell of earlier ones which replay can't make.
    breaks: Vec<Stamp>,
    comparison: Comparison,
}

/// What came of holding them against replay.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Comparison {
    /// Published predictions.
    pub n_published: u64,
    /// Frames that replay predicted, or would have if they had been published.
    pub n_replayed: u64,
    /// Frames that both predicted.
    pub n_both: u64,
    /// Of those: frames whose particles, sources and displacements are the same bit for bit, as
    /// far as the published roll-out goes (a deadline may have cut it short).
    pub n_equal: u64,
    /// Of the published predictions: those with fewer particles than others, for a deadline;
    /// replay draws other particles, so they are not compared.
    pub n_reduced: u64,
    /// Frames that replay could predict and of which none was published.
    pub n_lacking: u64,
    /// Of the published predictions: those that are held against earlier ones which replay can't make (of before
    /// the recording, lost, or with fewer particles), so they are not compared.
    #[serde(default)]
    pub n_unsettled: u64,
    /// Of the frames that both predicted: those whose objects have the same extent, under other numbers: those of the
    /// node hang on predictions of before the recording, or that were lost.
    #[serde(default)]
    pub n_renumbered: u64,
    /// The same whose objects have another extent: the node remembers of them what the recording does not tell.
    #[serde(default)]
    pub n_other_objects: u64,
    /// Published predictions of frames that replay did not predict.
    pub n_of_other_frames: u64,
    /// Largest difference of a position or displacement (m), where numbers could be compared.
    pub max_difference_m: f64,
    /// The first frame that differs, and how.
    pub first_difference: Option<String>,
    /// What differs, each cause once.
    pub differences: Vec<Difference>,
    /// What the file of the predictions lost: it is cut or damaged.
    pub warnings: Vec<String>,
}

/// Something in which published and replayed predictions differ.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// What: `model`, `seed`, `step`, `horizon`, `particles`, `world frame`, the prediction `held against` the frame,
    /// `pixels` that the
    /// particles come from, or `numbers`.
    pub what: &'static str,
    /// In words, of the first such frame.
    pub told: String,
    /// Frames that differ in it.
    pub n_frames: u64,
}

/// What a comparison comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Every predicted frame was published, and is the same bit for bit.
    Equal,
    /// What could be compared is the same; frames lack, or could not be compared.
    Partial,
    /// Something differs, or nothing could be compared.
    Different,
}

/// What replay predicts with, to be held against what was published.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Hash of the model.
    pub model_hash: &'a str,
    /// Frame of the predictions.
    pub world_frame: &'a str,
    /// Length of a step (s).
    pub step_secs: f64,
}

impl Comparison {
    /// Whether every frame that replay predicts was published as it is, bit for bit.
    pub fn agreement(&self) -> Agreement {
        if self.n_equal == 0 || self.n_equal < self.n_both || self.n_of_other_frames > 0 {
            Agreement::Different
        } else if self.n_lacking + self.n_reduced + self.n_unsettled + self.n_other_objects > 0
            || !self.warnings.is_empty()
        {
            Agreement::Partial
        } else {
            Agreement::Equal
        }
    }

    fn note(&mut self, stamp: Stamp, causes: Vec<Difference>) {
        self.first_difference.get_or_insert_with(|| {
            let causes: Vec<&str> = causes.iter().map(|cause| cause.told.as_str()).collect();
            format!("frame of {stamp} s: {}", causes.join("; "))
        });
        for cause in causes {
            match self.differences.iter_mut().find(|known| known.what == cause.what) {
                Some(known) => known.n_frames += 1,
                None => self.differences.push(cause),
            }
        }
    }
}

impl Published {
    /// Reads the predictions of a recording.
    ///
    /// # Errors
    /// As [`Bag::open`]; [`Error::Bag`] if there are none, [`Error::Message`] if one can't be
    /// decoded.
    pub fn read(path: &Path) -> Result<Self> {
        let bag = Bag::open(path)?;
        let mut messages = BTreeMap::new();
        for message in bag.messages_where(|topic| topic.ends_with(TOPIC_END)) {
            let message = message::Prediction::decode(&message?.data)?;
            messages.insert(message.header.stamp, message);
        }
        if messages.is_empty() {
            let problem =
                format!("no predictions: record the node's topic that ends in {TOPIC_END}");
            return Err(Error::Bag { path: path.to_owned(), problem });
        }
        let mut published = Self::new(messages.into_values());
        published.comparison.warnings = bag.warnings().to_vec();
        Ok(published)
    }

    /// Of decoded messages.
    pub fn new(messages: impl IntoIterator<Item = message::Prediction>) -> Self {
        let messages: BTreeMap<_, _> =
            messages.into_iter().map(|message| (message.header.stamp, message)).collect();
        let n_published = messages.len() as u64;
        let n_particles = messages.values().map(|m| m.n_particles).max().unwrap_or(0);
        let n_steps = messages.values().map(|m| m.n_steps).max().unwrap_or(0);
        let n_reduced = messages.values().filter(|m| m.n_particles < n_particles).count() as u64;
        let n_of_other_frames = n_published; // until a frame of it comes
        let comparison =
            Comparison { n_published, n_reduced, n_of_other_frames, ..Comparison::default() };
        let is_break = |m: &&message::Prediction| {
            let lacks =
                m.held_against != Stamp::default() && !messages.contains_key(&m.held_against);
            // Too short to be held against what comes.
            let is_short = m.n_steps < n_steps.min(LAG as u32);
            lacks || is_short || m.n_particles < n_particles
        };
        let breaks = messages.values().filter(is_break).map(|m| m.header.stamp).collect();
        Self { messages, n_particles, n_steps, breaks, comparison }
    }

    /// Whether the prediction of `stamp` hangs on earlier ones that replay can't make.
    fn is_unsettled(&self, stamp: Stamp, step_secs: f64) -> bool {
        let after = self.breaks.partition_point(|&known| known <= stamp);
        let last = after.checked_sub(1).map(|i| self.breaks[i]);
        last.is_some_and(|last| stamp.secs_since(last) <= REMEMBERED_STEPS * step_secs)
    }

    /// Notes a frame that was not published, so that replay does not predict it either.
    pub fn lack(&mut self) {
        self.comparison.n_replayed += 1;
        self.comparison.n_lacking += 1;
    }

    /// The earliest prediction: what the node's settings were.
    pub fn first(&self) -> Option<&message::Prediction> {
        self.messages.values().next()
    }

    /// The prediction of this stamp.
    pub fn at(&self, stamp: Stamp) -> Option<&message::Prediction> {
        self.messages.get(&stamp)
    }

    /// Most particles of a prediction.
    pub fn n_particles(&self) -> usize {
        self.n_particles as usize
    }

    /// Steps of the longest prediction.
    pub fn n_steps(&self) -> usize {
        self.n_steps as usize
    }

    /// What came of all [`Published::compare`].
    pub fn comparison(&self) -> &Comparison {
        &self.comparison
    }

    /// First and last stamp of what was published.
    pub fn span(&self) -> Option<[Stamp; 2]> {
        Some([*self.messages.keys().next()?, *self.messages.keys().next_back()?])
    }

    /// Holds the published prediction of the same stamp, if there is one, against `replayed`.
    pub fn compare(
        &mut self,
        replayed: &Prediction,
        setup: &Setup,
    ) -> Option<&message::Prediction> {
        let is_unsettled = self.is_unsettled(replayed.stamp, setup.step_secs);
        let breaks = self.breaks.iter();
        let mut breaks = breaks.filter(|at| (replayed.objects.since..=replayed.stamp).contains(at));
        let are_broken = breaks.next().is_some();
        let result = &mut self.comparison;
        result.n_replayed += 1;
        let Some(published) = self.messages.get(&replayed.stamp) else {
            result.n_lacking += 1;
            return None;
        };
        result.n_of_other_frames = result.n_of_other_frames.saturating_sub(1);
        if published.n_particles < self.n_particles {
            return Some(published);
        }
        if is_unsettled {
            result.n_unsettled += 1;
            return Some(published);
        }
        result.n_both += 1;
        let mut causes = settings(published, replayed, setup);
        if causes.is_empty()
            && let Some((numbers, difference_m)) = numbers(published, replayed)
        {
            result.max_difference_m = result.max_difference_m.max(difference_m);
            causes.push(numbers);
        }
        if causes.is_empty() {
            match objects(published, replayed) {
                Objects::Equal => {}
                // What hangs on the same predictions must be the same.
                Objects::Renumbered | Objects::Others
                    if hang_alike(published, replayed) && !are_broken =>
                {
                    let told =
                        "objects: particles have other numbers, or are of another kind".into();
                    causes.push(Difference { what: "objects", told, n_frames: 1 });
                }
                Objects::Renumbered => result.n_renumbered += 1,
                Objects::Others => result.n_other_objects += 1,
            }
        }
        match causes.is_empty() {
            true => result.n_equal += 1,
            false => result.note(replayed.stamp, causes),
        }
        Some(published)
    }
}

/// Positions of the particles of `published` (m), `[n]`.
pub fn positions(published: &message::Prediction) -> Vec<Vec3> {
    rows(&published.positions)
}

/// Displacements of `published` (m), `[n_steps][n]`.
pub fn displacements(published: &message::Prediction) -> Vec<Vec<Vec3>> {
    let n_values = 3 * published.n_particles.max(1) as usize;
    published.displacements.chunks_exact(n_values).map(rows).collect()
}

fn rows(values: &[f32]) -> Vec<Vec3> {
    values.chunks_exact(3).map(|row| [row[0], row[1], row[2]]).collect()
}

/// In what the two were made differently; then their numbers say nothing.
fn settings(
    published: &message::Prediction,
    replayed: &Prediction,
    setup: &Setup,
) -> Vec<Difference> {
    let n_steps = [published.n_steps as usize, replayed.displacements.len()];
    let n_particles = [published.n_particles as usize, replayed.particles.len()];
    let step_secs = [published.step_secs, setup.step_secs as f32];
    let seed = [published.seed, replayed.seed];
    let pair = |values: [usize; 2]| values.map(|value| value.to_string());
    let mut causes = Vec::new();
    let mut note = |differs: bool, what, [published, replayed]: [String; 2]| {
        if differs {
            let told = format!("{what}: {published} published, {replayed} replayed");
            causes.push(Difference { what, told, n_frames: 1 });
        }
    };
    let model = [&published.model_hash, setup.model_hash];
    note(model[0] != model[1], "model", model.map(str::to_owned));
    note(seed[0] != seed[1], "seed", seed.map(|seed| seed.to_string()));
    note(step_secs[0] != step_secs[1], "step", step_secs.map(|secs| format!("{secs} s")));
    // A deadline may have cut the published one short.
    note(n_steps[0] > n_steps[1], "horizon", pair(n_steps));
    note(n_particles[0] != n_particles[1], "particles", pair(n_particles));
    let world = [published.header.frame_id.as_str(), setup.world_frame];
    note(world[0] != world[1], "world frame", world.map(str::to_owned));
    let held = [published.held_against, replayed.held_against.unwrap_or_default()];
    let told =
        held.map(
            |stamp| if stamp == Stamp::default() { "nothing".into() } else { format!("{stamp} s") },
        );
    note(held[0] != held[1], "held against", told);
    let n_sigmas: usize = replayed.told_sigmas(0).iter().take(n_steps[0]).map(Vec::len).sum();
    if causes.is_empty() && published.sigma.len() != n_sigmas {
        let told = format!("sigmas: {} published, {n_sigmas} replayed", published.sigma.len());
        causes.push(Difference { what: "sigmas", told, n_frames: 1 });
    }
    if causes.is_empty() && published.sources != replayed.particles.sources {
        let told = "the particles come from other pixels: another recording, workspace or cameras";
        causes.push(Difference { what: "pixels", told: told.into(), n_frames: 1 });
    }
    causes
}

/// Whether the numbers of both hang on as many predictions since the same one.
fn hang_alike(published: &message::Prediction, replayed: &Prediction) -> bool {
    let map = &replayed.objects;
    (published.objects_since, published.n_followed) == (map.since, map.n_followed)
}

/// How objects compare.
enum Objects {
    /// The same numbers.
    Equal,
    /// The same particles under other numbers.
    Renumbered,
    Others,
}

fn objects(published: &message::Prediction, replayed: &Prediction) -> Objects {
    let map = &replayed.objects;
    let (ids, of) = map.indexed();
    if !published.kinds.iter().copied().eq(map.kinds.iter().map(|&kind| kind as u8)) {
        return Objects::Others;
    }
    if published.object_ids == ids && published.objects == of {
        return Objects::Equal;
    }
    let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
    let pairs = published.objects.iter().zip(&of);
    let is_one = pairs.into_iter().all(|(&theirs, &ours)| {
        (theirs == 0) == (ours == 0)
            && *there.entry(theirs).or_insert(ours) == ours
            && *back.entry(ours).or_insert(theirs) == theirs
    });
    if is_one { Objects::Renumbered } else { Objects::Others }
}

/// How many numbers differ, and by how much at most (m).
fn numbers(published: &message::Prediction, replayed: &Prediction) -> Option<(Difference, f64)> {
    let n_steps = published.n_steps as usize;
    let ours = replayed.displacements.iter().take(n_steps).flatten().flatten();
    let positions = replayed.particles.positions.iter().flatten();
    let pairs = published.positions.iter().zip(positions);
    let pairs = pairs.chain(published.displacements.iter().zip(ours));
    let told = [&published.sigma, &published.sigma_90].into_iter().enumerate();
    let pairs = pairs.chain(told.flat_map(|(level, published)| {
        published.iter().zip(replayed.told_sigmas(level).iter().take(n_steps).flatten())
    }));
    let differing = pairs.filter(|(a, b)| a.to_bits() != b.to_bits());
    let (n, max_m) = differing.fold((0, 0f64), |(n, max), (&a, &b)| {
        (n + 1, max.max((f64::from(a) - f64::from(b)).abs()))
    });
    let numbers = if n == 1 { "number differs" } else { "numbers differ" };
    let told = format!("{n} {numbers}, by up to {max_m:e} m");
    (n > 0).then_some((Difference { what: "numbers", told, n_frames: 1 }, max_m))
}

#[cfg(test)]
mod tests;
