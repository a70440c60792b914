//! Predictions that end in time: a shorter roll-out first, then fewer particles.

use std::time::{Duration, Instant};

/// Predictions in a row that even the shortest roll-out could not end in time, before particles
/// are given up.
const LATE_IN_A_ROW: u32 = 3;
/// Predictions in a row with time to spare before particles come back.
const EARLY_IN_A_ROW: u32 = 20;
/// Share of the time that such a prediction leaves free.
const SPARE: f64 = 0.3;
/// Factors by which particles go and come back.
const FEWER: f64 = 0.8;
const MORE: f64 = 1.1;

/// When a prediction must end, and what may be given up for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deadline {
    /// Time from when a frame is whole to the end of its prediction; zero for none.
    pub time: Duration,
    /// Steps of a roll-out: at least, and where there is time.
    pub steps: [usize; 2],
    /// Scene particles: at least, and where there is time.
    pub particles: [usize; 2],
}

/// What predictions took so far, and what the next one may take.
#[derive(Debug, Clone)]
pub struct Pace {
    deadline: Deadline,
    n_particles: usize,
    late: u32,
    early: u32,
}

/// One prediction under way.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    end: Option<Instant>,
    steps: [usize; 2],
    last: Instant,
    longest: Duration,
}

impl Pace {
    /// Starts with all particles.
    pub fn new(deadline: Deadline) -> Self {
        Self { deadline, n_particles: deadline.particles[1], late: 0, early: 0 }
    }

    /// Scene particles of the next prediction.
    pub fn n_particles(&self) -> usize {
        self.n_particles
    }

    /// Whether particles are given up.
    pub fn is_slowed(&self) -> bool {
        self.n_particles < self.deadline.particles[1]
    }

    /// Starts to roll out the prediction of a frame that was `whole` then.
    pub fn start(&self, whole: Instant, now: Instant) -> Run {
        let Deadline { time, steps, .. } = self.deadline;
        let end = (!time.is_zero()).then(|| whole + time);
        Run { end, steps, last: now, longest: Duration::ZERO }
    }

    /// Learns from a prediction of `n_steps` steps that ended at `now`.
    pub fn end(&mut self, run: &Run, n_steps: usize, now: Instant) {
        let Some(end) = run.end else { return };
        let [least, most] = self.deadline.particles;
        let spare = end.saturating_duration_since(now).as_secs_f64();
        let is_early = n_steps >= run.steps[1] && spare > SPARE * self.deadline.time.as_secs_f64();
        self.late = if now > end && n_steps <= run.steps[0] { self.late + 1 } else { 0 };
        self.early = if is_early { self.early + 1 } else { 0 };
        let scaled = |factor: f64| (self.n_particles as f64 * factor) as usize;
        if self.late >= LATE_IN_A_ROW {
            (self.n_particles, self.late) = (scaled(FEWER).clamp(least.min(most), most), 0);
        } else if self.early >= EARLY_IN_A_ROW && self.n_particles < most {
            let more = scaled(MORE).max(self.n_particles + 1);
            (self.n_particles, self.early) = (more.min(most), 0);
        }
    }
}

impl Run {
    /// Whether there is time for another step after `n_done` steps, the last of which ended now:
    /// if it takes as long as the longest so far.
    pub fn goes_on(&mut self, n_done: usize, now: Instant) -> bool {
        self.longest = self.longest.max(now.saturating_duration_since(self.last));
        self.last = now;
        n_done < self.steps[0] || self.end.is_none_or(|end| now + self.longest <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(100);
    const DEADLINE: Deadline = Deadline { time: TIME, steps: [2, 5], particles: [100, 1000] };

    /// Rolls out with steps of `step_ms`, after `before_ms` since the arrival; steps and end.
    fn roll_out(pace: &mut Pace, before_ms: u64, step_ms: u64) -> (usize, Duration) {
        let arrived = Instant::now();
        let mut now = arrived + Duration::from_millis(before_ms);
        let mut run = pace.start(arrived, now);
        let mut n_done = 0;
        while n_done < DEADLINE.steps[1] {
            now += Duration::from_millis(step_ms);
            n_done += 1;
            if !run.goes_on(n_done, now) {
                break;
            }
        }
        pace.end(&run, n_done, now);
        (n_done, now - arrived)
    }

    fn roll_out_often(pace: &mut Pace, times: std::ops::Range<u32>, before_ms: u64, step_ms: u64) {
        for _ in times {
            roll_out(pace, before_ms, step_ms);
        }
    }

    #[test]
    fn a_roll_out_is_as_long_as_there_is_time_and_no_shorter_than_stated() {
        let mut pace = Pace::new(DEADLINE);
        assert_eq!(roll_out(&mut pace, 10, 10).0, 5);
        assert_eq!(roll_out(&mut pace, 50, 10).0, 5);
        assert_eq!(roll_out(&mut pace, 55, 10).0, 4);
        assert_eq!(roll_out(&mut pace, 10, 30).0, 3);
        assert_eq!(roll_out(&mut pace, 10, 80).0, 2);
        assert_eq!(pace.n_particles(), 1000);
    }

    #[test]
    fn particles_go_only_where_the_shortest_roll_out_is_late_and_come_back() {
        let mut pace = Pace::new(DEADLINE);
        (0..2).for_each(|_| assert_eq!(roll_out(&mut pace, 10, 80).0, 2));
        assert_eq!(pace.n_particles(), 1000);
        roll_out(&mut pace, 10, 80);
        assert_eq!(pace.n_particles(), 800);
        roll_out_often(&mut pace, 0..100, 10, 80);
        assert_eq!(pace.n_particles(), 100, "no fewer than stated");
        // In time, but nothing to spare: no more, no fewer.
        roll_out_often(&mut pace, 0..100, 30, 10);
        assert_eq!(pace.n_particles(), 100);
        roll_out_often(&mut pace, 0..20, 10, 10);
        assert_eq!(pace.n_particles(), 110);
        roll_out_often(&mut pace, 0..2000, 10, 10);
        assert_eq!(pace.n_particles(), 1000);
    }

    #[test]
    fn without_a_deadline_nothing_is_given_up() {
        let mut pace = Pace::new(Deadline { time: Duration::ZERO, ..DEADLINE });
        (0..10).for_each(|_| assert_eq!(roll_out(&mut pace, 1000, 1000).0, 5));
        assert_eq!(pace.n_particles(), 1000);
    }
}
