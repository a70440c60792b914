//! Statuses of the predictions, and of what they need of the machine.

use std::time::Duration;

use super::{GRACE, Level, Status, hindered};
use crate::health::{Cause, Facts, WINDOW};
use forecloud::engine::motion_class::MotionClass;
use forecloud::robot::kinematics::RobotMode;

/// Longest time that the predictor should work on one frame.
const STUCK: Duration = Duration::from_secs(2);
/// Share of the model's own rate below which frames that were passed over are missed.
const FULL_RATE: f64 = 0.9;

/// Of so many particles that moved, fewer than so many percent within sigma_90 are told of.
const MIN_MOVED: u64 = 300;
const LEAST_WITHIN: f64 = 60.0;

impl Facts {
    /// Whether shared memory is large enough for images.
    pub(super) fn shared_memory(&self) -> Status {
        let mut status = Status::new("shared memory");
        self.memory_problems.iter().for_each(|problem| status.add(Level::Warn, problem));
        status.values.clone_from(&self.memory_values);
        status.or_summary(|| "no problem found".into())
    }

    /// Whether the workspace holds points.
    pub(super) fn workspace(&self, now: Duration) -> Status {
        let mut status = Status::new("workspace");
        self.add_trouble(&mut status, now, Cause::Workspace, self.last_prediction);
        status.value("particles", self.n_particles);
        status.or_summary(|| format!("{} particles", self.n_particles))
    }

    /// Whether frames become predictions.
    pub(super) fn predictions(&self, now: Duration) -> Status {
        let mut status = Status::new("predictions");
        let causes = [Cause::Rejected, Cause::Device, Cause::History, Cause::World, Cause::Publish];
        for cause in causes {
            self.add_trouble(&mut status, now, cause, self.last_prediction);
        }
        let working = self.working_since.map(|since| now.saturating_sub(since));
        if let Some(working) = working.filter(|working| *working > STUCK) {
            status.add(
                hindered(now, self.last_prediction),
                format!(
                    "the predictor has been working on one frame for {} s. Remedy: lower n_particles \
                     or horizon; if it stays so, restart the node and report this",
                    working.as_secs()
                ),
            );
        }
        let n = self.predictions.sum(now);
        if let (0, Some(why)) = (n, self.resting) {
            status.add(Level::Ok, why);
        } else if n == 0 && now > GRACE && status.level == Level::Ok {
            let since = self.last_prediction.map_or("none yet".to_owned(), |last| {
                format!("none for {} s", now.saturating_sub(last).as_secs())
            });
            status.add(Level::Stale, format!("{since}: the other statuses say why"));
        }
        status.value("predictions", self.predictions.total());
        status.value("frames", self.frames.total());
        status.value("frames_without_history", self.n_without_history);
        status.or_summary(|| match n {
            0 => "waiting for the first frame".into(),
            n => format!("{n} in the last 5 s"),
        })
    }

    /// Whether predictions come within a step of the model.
    pub(super) fn latency(&self, now: Duration) -> Status {
        let mut status = Status::new("latency");
        let (n_late, n) = (self.late.sum(now), self.predictions.sum(now));
        let step_ms = self.about.step_secs * 1e3;
        if n_late > 0 {
            status.add(
                Level::Warn,
                format!(
                    "{n_late} of {n} predictions of the last 5 s came later than one step of the \
                     model, {step_ms:.0} ms, after the last image. Remedy: lower n_particles or \
                     horizon, give the node more CPUs (threads)"
                ),
            );
        } else if let (0, Some(why)) = (n, self.resting) {
            status.add(Level::Ok, why);
        } else if n == 0 {
            status.add(Level::Stale, "no prediction in the last 5 s to measure");
        }
        let n_cut = self.cut.sum(now);
        if n_cut > 0 {
            status.add(
                Level::Warn,
                format!(
                    "{n_cut} of {n} predictions of the last 5 s were cut for deadline_secs, the \
                     last to {} steps of {} particles. Remedy: lower n_particles or horizon, give \
                     the node more CPUs (threads), or allow more time",
                    self.n_steps_cut, self.n_particles
                ),
            );
        }
        status.value("predictions_cut", self.cut.total());
        let mut latencies: Vec<f32> = self.latencies_ms.iter().copied().collect();
        latencies.sort_by(f32::total_cmp);
        let (p50, p99) = (percentile(&latencies, 0.5), percentile(&latencies, 0.99));
        for (key, value) in [("p50_ms", p50), ("p99_ms", p99)] {
            status.value(key, value.map_or("none".to_owned(), |value| format!("{value:.1}")));
        }
        let mut waits: Vec<f32> = self.waits_ms.iter().copied().collect();
        waits.sort_by(f32::total_cmp);
        let waited = percentile(&waits, 0.5);
        status.value("waited_p50_ms", waited.map_or("none".to_owned(), |ms| format!("{ms:.1}")));
        status.value("of_last", latencies.len());
        status.value("step_ms", format!("{step_ms:.0}"));
        status.or_summary(|| {
            format!("p50 {:.1} ms, p99 {:.1} ms", p50.unwrap_or(0.0), p99.unwrap_or(0.0))
        })
    }

    /// Whether the predictor is fast enough for the model's rate.
    pub(super) fn load(&self, now: Duration) -> Status {
        let mut status = Status::new("load");
        let n_busy = self.busy.sum(now);
        let (rate_hz, wanted_hz) = (self.predictions.rate_hz(now), 1.0 / self.about.step_secs);
        // From the second after the window's first one on, the rate is that of a whole window.
        let settled = self.first_prediction.is_some_and(|first| now > first + WINDOW + WINDOW / 5);
        if settled && n_busy > 0 && rate_hz > 0.0 && rate_hz < FULL_RATE * wanted_hz {
            status.add(
                Level::Warn,
                format!(
                    "busy: {n_busy} frames of the last 5 s were replaced by newer ones before \
                     they were predicted from, and {rate_hz:.1} predictions a second came where \
                     the model's step asks for {wanted_hz:.1}. Remedy: lower n_particles or \
                     horizon, or give the node more CPUs (threads)"
                ),
            );
        }
        status.value("frames_dropped_busy", self.busy.total());
        status.value("predictions_hz", format!("{rate_hz:.1}"));
        status.value("diagnostics_ms_per_sec", format!("{:.2}", self.monitor_ms_per_sec));
        status.or_summary(|| format!("skipped {n_busy} frames of the last 5 s for newer ones"))
    }

    /// Whether what was predicted came: how much lay within sigma_90 after one step.
    pub(super) fn outcome(&self, now: Duration) -> Status {
        let mut status = Status::new("outcome");
        let sums = self.outcomes.each_ref().map(|counts| counts.each_ref().map(|n| n.sum(now)));
        let share = |[n, n_within]: [u64; 2]| 100.0 * n_within as f64 / n as f64;
        let [moving, flying] = [MotionClass::Moving, MotionClass::Flying].map(|c| sums[c as usize]);
        let moved = [moving[0] + flying[0], moving[1] + flying[1]];
        if moved[0] >= MIN_MOVED && share(moved) < LEAST_WITHIN {
            status.add(
                Level::Warn,
                format!(
                    "only {:.0} % of what moved in the last 5 s came to lie within sigma_90 of where it was predicted \
                     (90 % should): the model has not learnt to predict this scene. Remedy: trust its sigma, which \
                     has grown, or train it on recordings of such scenes",
                    share(moved)
                ),
            );
        }
        for (class, sums) in MotionClass::ALL.into_iter().zip(sums) {
            if class != MotionClass::Unplanned {
                let told = if sums[0] == 0 { "none".into() } else { format!("{:.0}", share(sums)) };
                status.value(format!("{}_within_sigma_90_percent", class.name()), told);
            }
        }
        status.or_summary(|| match moved[0] {
            0 => "nothing moved in the last 5 s that was predicted".into(),
            _ => format!("{:.0} % of what moved in the last 5 s lay within sigma_90", share(moved)),
        })
    }

    /// Which model runs, and on what.
    pub(super) fn model(&self) -> Status {
        let mut status = Status::new("model");
        self.missed_device.iter().for_each(|why| status.add(Level::Warn, why));
        status.value("device", &self.device);
        status.value("file", &self.about.model_file);
        status.value("hash", &self.about.model_hash);
        status.value("step_secs", self.about.step_secs);
        status.value("takes_robot", self.about.robot != RobotMode::None);
        status.or_summary(|| "loaded".into())
    }
}

/// Nearest rank; `sorted` ascends.
fn percentile(sorted: &[f32], share: f64) -> Option<f32> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}
