//! Predictions that a node published, held against those that replay computes.

use std::collections::BTreeMap;
use std::path::Path;

use crate::bag::Bag;
use crate::message::{self, Stamp};
use crate::predictor::Prediction;
use crate::{Error, Result};

/// How the names of topics end that predictions are published on.
const TOPIC_END: &str = "/prediction";

type Vec3 = [f32; 3];

/// Published predictions by stamp.
#[derive(Debug, Clone, Default)]
pub struct Published {
    messages: BTreeMap<Stamp, message::Prediction>,
    /// Most particles and most steps of a prediction.
    n_particles: u32,
    n_steps: u32,
    comparison: Comparison,
}

/// What came of holding them against replay.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Comparison {
    /// Published predictions.
    pub n_published: u64,
    /// Frames that replay predicted.
    pub n_replayed: u64,
    /// Frames that both predicted.
    pub n_both: u64,
    /// Of those: frames whose particles, sources and displacements are the same bit for bit, as
    /// far as the published roll-out goes (a deadline may have cut it short).
    pub n_equal: u64,
    /// Of the published predictions: those with fewer particles than others, for a deadline;
    /// replay draws other particles, so they are not compared.
    pub n_reduced: u64,
    /// Largest difference of a position or displacement (m).
    pub max_difference_m: f64,
    /// The first frame that differs, and how.
    pub first_difference: Option<String>,
}

impl Comparison {
    /// Whether every published prediction is, bit for bit, one that replay computes.
    pub fn is_equal(&self) -> bool {
        self.n_equal > 0 && self.n_equal + self.n_reduced == self.n_published
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
        Ok(Self::new(messages.into_values()))
    }

    /// Of decoded messages.
    pub fn new(messages: impl IntoIterator<Item = message::Prediction>) -> Self {
        let messages: BTreeMap<_, _> =
            messages.into_iter().map(|message| (message.header.stamp, message)).collect();
        let n_published = messages.len() as u64;
        let n_particles = messages.values().map(|m| m.n_particles).max().unwrap_or(0);
        let n_steps = messages.values().map(|m| m.n_steps).max().unwrap_or(0);
        let n_reduced = messages.values().filter(|m| m.n_particles < n_particles).count() as u64;
        let comparison = Comparison { n_published, n_reduced, ..Comparison::default() };
        Self { messages, n_particles, n_steps, comparison }
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

    /// Holds the published prediction of the same stamp, if there is one, against `replayed`.
    pub fn compare(&mut self, replayed: &Prediction) -> Option<&message::Prediction> {
        let result = &mut self.comparison;
        result.n_replayed += 1;
        let published = self.messages.get(&replayed.stamp)?;
        if published.n_particles < self.n_particles {
            return Some(published);
        }
        result.n_both += 1;
        match difference(published, replayed) {
            None => result.n_equal += 1,
            Some((problem, difference_m)) => {
                result.max_difference_m = result.max_difference_m.max(difference_m);
                let at = replayed.stamp;
                result
                    .first_difference
                    .get_or_insert_with(|| format!("frame of {at} s: {problem}"));
            }
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

/// How the two differ, and the largest difference of two numbers (m; 0 if their counts differ).
fn difference(published: &message::Prediction, replayed: &Prediction) -> Option<(String, f64)> {
    let n_steps = published.n_steps as usize;
    let ours = replayed.displacements.iter().take(n_steps).flatten().flatten();
    let ours: Vec<f32> = ours.copied().collect();
    let theirs = &published.displacements;
    if n_steps > replayed.displacements.len() || published.sources != replayed.particles.sources {
        let problem = format!(
            "{} steps of {} particles were published, replay has {} of {} (or other ones)",
            published.n_steps,
            published.n_particles,
            replayed.displacements.len(),
            replayed.particles.len()
        );
        return Some((problem, 0.0));
    }
    let positions = replayed.particles.positions.iter().flatten();
    let pairs = published.positions.iter().zip(positions).chain(theirs.iter().zip(&ours));
    let differing = pairs.filter(|(a, b)| a.to_bits() != b.to_bits());
    let (n, max_m) = differing.fold((0, 0f64), |(n, max), (&a, &b)| {
        (n + 1, max.max((f64::from(a) - f64::from(b)).abs()))
    });
    (n > 0).then(|| (format!("{n} numbers differ, by up to {max_m:e} m"), max_m))
}
