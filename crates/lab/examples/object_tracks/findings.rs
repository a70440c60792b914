//! Numbers of particles held against the bodies that they are of.

use std::collections::BTreeMap;

use forecloud::predict::objects::ParticleKind;
use forecloud_bag::recording::{BodyKind, Truth};

/// Particles of a body off the support plane from which on it counts as in view.
const IN_VIEW: usize = 10;
/// Particles of a piece at least.
const PIECE: usize = 4;

/// What a particle is of, by the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Object(usize),
    Robot,
    Scene,
}

/// The bodies of a recording.
pub struct Bodies(Vec<Of>);

impl Bodies {
    /// Copies of a body (of a torn frame) are of that body.
    pub fn new(truth: &Truth) -> Self {
        let name_of = |name: &str| name.split("_late_").next().unwrap_or(name).to_owned();
        let mut names = BTreeMap::new();
        let of = truth.bodies.iter().map(|body| match body.kind {
            BodyKind::Object => {
                let n = names.len();
                Of::Object(*names.entry(name_of(&body.name)).or_insert(n))
            }
            BodyKind::Robot => Of::Robot,
            BodyKind::Static => Of::Scene,
        });
        Self(of.collect())
    }

    pub fn of(&self, id: u16) -> Of {
        self.0.get(usize::from(id)).copied().unwrap_or(Of::Scene)
    }
}

/// What was found; sums over frames.
#[derive(Default)]
pub struct Findings {
    pub n_recordings: usize,
    /// Seconds of objects in view, their numbers, and of them those found.
    secs: f64,
    n_in_view: u64,
    n_found: u64,
    n_switches: u64,
    n_pieces: u64,
    /// Numbered particles, those of the body that most of their number are of, and those of no object.
    n_numbered: u64,
    n_pure: u64,
    n_false: u64,
    last_secs: Option<f64>,
    /// The last number of each body.
    known: BTreeMap<usize, u64>,
}

impl Findings {
    pub fn next_recording(&mut self) {
        self.n_recordings += 1;
        self.known.clear();
        self.last_secs = None;
    }

    pub fn merge(&mut self, other: &Self) {
        self.n_recordings += other.n_recordings;
        self.secs += other.secs;
        for (sum, n) in [
            (&mut self.n_in_view, other.n_in_view),
            (&mut self.n_found, other.n_found),
            (&mut self.n_switches, other.n_switches),
            (&mut self.n_pieces, other.n_pieces),
            (&mut self.n_numbered, other.n_numbered),
            (&mut self.n_pure, other.n_pure),
            (&mut self.n_false, other.n_false),
        ] {
            *sum += n;
        }
    }

    /// Adds a frame; tells which numbers changed.
    pub fn add(
        &mut self,
        secs: f64,
        of: &[Of],
        numbers: &[u64],
        kinds: &[ParticleKind],
    ) -> Vec<String> {
        let step = self.last_secs.replace(secs).map_or(0.0, |last| (secs - last).clamp(0.0, 0.5));
        let mut told = Vec::new();
        // Particles of each number by what they are of, and of each body by number.
        let mut of_number: BTreeMap<u64, BTreeMap<Option<usize>, usize>> = BTreeMap::new();
        let mut of_body: BTreeMap<usize, BTreeMap<u64, usize>> = BTreeMap::new();
        for ((of, &number), kind) in of.iter().zip(numbers).zip(kinds) {
            let body = if let Of::Object(body) = of { Some(*body) } else { None };
            if number > 0 {
                *of_number.entry(number).or_default().entry(body).or_default() += 1;
            }
            // What lies in the band of the support plane is no one's to find.
            if let Some(body) = body.filter(|_| *kind != ParticleKind::Support) {
                *of_body.entry(body).or_default().entry(number).or_default() += 1;
            }
        }
        let mut majority = BTreeMap::new();
        for (&number, bodies) in &of_number {
            let n: usize = bodies.values().sum();
            let (&body, &most) = bodies.iter().max_by_key(|(_, n)| **n).expect("not empty");
            self.n_numbered += n as u64;
            self.n_pure += if body.is_some() { most as u64 } else { 0 };
            self.n_false += bodies.get(&None).copied().unwrap_or(0) as u64;
            majority.insert(number, (body, most, n));
        }
        for (&body, by_number) in &of_body {
            let n: usize = by_number.values().sum();
            if n < IN_VIEW {
                continue;
            }
            self.n_in_view += 1;
            self.secs += step;
            let is_its = |number: u64| majority.get(&number).is_some_and(|m| m.0 == Some(body));
            let pieces =
                by_number.iter().filter(|(number, n)| is_its(**number) && **n >= PIECE).count();
            self.n_pieces += pieces as u64;
            let numbered = by_number.iter().filter(|(number, _)| **number > 0);
            let Some((&number, &most)) = numbered.max_by_key(|(_, n)| **n) else { continue };
            if 2 * most < n || !is_its(number) {
                continue;
            }
            self.n_found += 1;
            if let Some(before) = self.known.insert(body, number).filter(|known| *known != number) {
                self.n_switches += 1;
                told.push(format!("body {body}: {before} → {number}"));
            }
        }
        told
    }

    pub fn print(&self, task: &str, name: &str) {
        let minutes = self.secs / 60.0;
        let share = |n: u64, of: u64| 100.0 * n as f64 / of.max(1) as f64;
        println!(
            "| {task} | {name} | {} | {minutes:.2} | {:.1} | {:.2} | {:.1} | {:.2} | {:.1} |",
            self.n_recordings,
            share(self.n_found, self.n_in_view),
            self.n_switches as f64 / minutes.max(1e-9),
            share(self.n_pure, self.n_numbered - self.n_false),
            0.01 * share(self.n_pieces, self.n_found),
            share(self.n_false, self.n_numbered),
        );
    }
}
