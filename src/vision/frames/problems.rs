//! What went wrong with the messages: the first of each kind is kept, causes before what follows
//! from them.

use std::collections::VecDeque;

/// Kinds of problems that are kept; more are counted with the last of them.
const MAX_KEPT: usize = 32;
/// Problems that wait to be taken one by one.
const MAX_FRESH: usize = 16;

/// What a problem is about, in the order in which one leads to another.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// Stamps of a topic went back.
    TimeJump,
    /// A message can't be decoded or used.
    BadMessage,
    /// Images and calibration don't belong together.
    Mismatch,
    /// No calibration of a camera.
    Calibration,
    /// An only camera can't be placed by what it sees.
    Placing,
    /// No pose of a camera.
    Transform,
    /// No measured joints.
    Joints,
    /// Frames go without the robot.
    Robot,
    /// Images without partners.
    Unpaired,
    /// A camera is left out.
    LeftOut,
    /// Images not newer than those of the last frame.
    Late,
}

/// Problems that differ in their numbers only: the first of them.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// What it is about.
    pub kind: ProblemKind,
    /// What was said the first time, with the remedy.
    pub first: String,
    /// How often it was said.
    pub count: u64,
}

impl Problem {
    /// Whether `other` says the same but for numbers.
    pub fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind && are_alike(&self.first, &other.first)
    }

    /// Puts causes before what follows from them, and what was said most often first.
    pub fn sort(problems: &mut [Self]) {
        problems.sort_by_key(|problem| (problem.kind, std::cmp::Reverse(problem.count)));
    }

    /// What was said, and how often if more than once.
    pub fn text(&self) -> String {
        match self.count {
            0 | 1 => self.first.clone(),
            n => format!("{} ({n} times alike)", self.first),
        }
    }

    /// Adds problems of another source; what is alike is counted together.
    pub fn merge(problems: &mut Vec<Self>, more: impl IntoIterator<Item = Self>) {
        for problem in more {
            match problems.iter_mut().find(|known| known.is_like(&problem)) {
                Some(known) => known.count += problem.count,
                None => problems.push(problem),
            }
        }
        Self::sort(problems);
    }
}

/// All problems so far.
#[derive(Debug, Default)]
pub(super) struct Problems {
    /// With their text without numbers; in the order in which they came up.
    kept: Vec<(String, Problem)>,
    /// Those that were not taken yet, one by one.
    fresh: VecDeque<Problem>,
}

impl Problems {
    pub(super) fn note(&mut self, kind: ProblemKind, text: String) {
        let shape = without_numbers(&text);
        let is_full = self.kept.len() >= MAX_KEPT;
        let known = self
            .kept
            .iter_mut()
            .find(|(known, problem)| problem.kind == kind && (*known == shape || is_full));
        match known {
            Some((_, problem)) => problem.count += 1,
            None => self.kept.push((shape, Problem { kind, first: text.clone(), count: 1 })),
        }
        if self.fresh.len() == MAX_FRESH {
            self.fresh.pop_front();
        }
        self.fresh.push_back(Problem { kind, first: text, count: 1 });
    }

    /// All kinds so far, causes first.
    pub(super) fn all(&self) -> Vec<Problem> {
        let mut all: Vec<Problem> = self.kept.iter().map(|(_, problem)| problem.clone()).collect();
        Problem::sort(&mut all);
        all
    }

    /// The first that was said of a message of `topic` that can't be used, and how many there were.
    pub(super) fn refused(&self, topic: &str) -> Option<(&str, u64)> {
        let of_topic = |(_, problem): &'_ (String, Problem)| {
            problem.kind == ProblemKind::BadMessage
                && problem.first.strip_prefix(topic).is_some_and(|rest| rest.starts_with(':'))
        };
        let mut all = self.kept.iter().filter(|kept| of_topic(kept));
        let (_, first) = all.next()?;
        let count = first.count + all.map(|(_, problem)| problem.count).sum::<u64>();
        Some((first.first[topic.len() + 1..].trim_start(), count))
    }

    pub(super) fn last(&self) -> Option<&str> {
        self.fresh.back().map(|problem| problem.first.as_str())
    }

    pub(super) fn take(&mut self) -> Vec<Problem> {
        self.fresh.drain(..).collect()
    }
}

/// Whether two texts differ in numbers that stand alone only.
pub fn are_alike(a: &str, b: &str) -> bool {
    without_numbers(a) == without_numbers(b)
}

/// The text with numbers cut out that stand alone: those in names stay.
fn without_numbers(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    let mut rest = text;
    let starts_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    while let Some(at) = rest.find([' ', '(', '[', '-']) {
        let (before, after) = rest.split_at(at + 1);
        shape.push_str(before);
        rest = match starts_number(after) {
            true => after.trim_start_matches(|c: char| c.is_ascii_digit() || ".e".contains(c)),
            false => after,
        };
    }
    shape + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_stand_alone_do_not_tell_problems_apart() {
        let shape = without_numbers("frame of 12.5 s: 'camera_2' has 640 x 480 (100 of -3)");
        assert_eq!(shape, "frame of  s: 'camera_2' has  x  ( of -)");
        assert_eq!(without_numbers(""), "");
        assert_ne!(without_numbers("camera 'a1'"), without_numbers("camera 'a2'"));
    }

    #[test]
    fn the_first_of_each_kind_is_kept_and_causes_come_first() {
        let mut problems = Problems::default();
        problems.note(ProblemKind::Calibration, "dropped 1.0 s: no calibration".into());
        for i in 0..100 {
            problems.note(ProblemKind::BadMessage, format!("/info: K is 0 in message {i}"));
            problems.note(ProblemKind::Calibration, format!("dropped {i}.5 s: no calibration"));
        }
        let all = problems.all();
        let told: Vec<(&str, u64)> = all.iter().map(|p| (p.first.as_str(), p.count)).collect();
        assert_eq!(
            told,
            [("/info: K is 0 in message 0", 100), ("dropped 1.0 s: no calibration", 101)]
        );
        assert_eq!(problems.refused("/info"), Some(("K is 0 in message 0", 100)));
        assert_eq!(problems.refused("/inf"), None);
        assert_eq!(problems.take().len(), MAX_FRESH);
        assert!(problems.take().is_empty() && problems.all().len() == 2);
    }

    #[test]
    fn kinds_are_bounded() {
        let mut problems = Problems::default();
        for i in 0..1000 {
            problems.note(ProblemKind::BadMessage, format!("'name{i}' is unknown"));
        }
        let all = problems.all();
        assert_eq!(all.len(), MAX_KEPT);
        assert_eq!(all.iter().map(|problem| problem.count).sum::<u64>(), 1000);
    }

    #[test]
    fn problems_of_several_recordings_are_counted_together() {
        let problem = |kind, first: &str, count| Problem { kind, first: first.into(), count };
        let mut all = vec![problem(ProblemKind::Joints, "late by 80 ms", 3)];
        let more = [
            problem(ProblemKind::Joints, "late by 90 ms", 4),
            problem(ProblemKind::TimeJump, "went back", 1),
        ];
        Problem::merge(&mut all, more);
        assert_eq!(all[0].text(), "went back");
        assert_eq!(all[1].text(), "late by 80 ms (7 times alike)");
    }
}
