//! How the last predictions of a particle's body turned out, and what that says of the next one.
//!
//! Three things are held against what then came, one step and three steps after they were said: what the model
//! predicted, that the body goes on as it moved, and that it rests. It is a mixture of experts by their losses
//! (Herbster and Warmuth 1998): each counts by its prior times exp(-loss). One step tells at once; three steps
//! tell of a model that slows down what does not. Only the last [`WINDOW`] steps count: what was predicted
//! longer ago changes no bit of a prediction.

mod scene;

pub use scene::SceneRecord;

use crate::base::geometry::{Vec3, add, dot, length, minus};
use crate::engine::rollout_input::Evidence;

/// Steps after which predictions are held against what came, besides the first.
pub const LAG: usize = 3;
/// Steps whose misses count.
pub const WINDOW: usize = 5;
/// Misses of a body's centre in [`LAG`] steps that tell nothing of which is right (m): the noise of its motion.
const NOISE_M: f32 = 0.0035;
/// The same of one step of its particles (m).
const NOISE_OF_PARTICLES_M: f32 = 0.003;
/// And as a share of the motion.
const NOISE_SHARE: f32 = 0.2;
/// How likely each is right before anything was seen: the model, going on, resting. So small that a little
/// evidence pulls little: what is predicted to stop goes on far in ten steps.
const PRIOR: [f32; 3] = [0.996, 0.002, 0.002];
/// Way (m) that is taken to have come as the model said, besides what did: so much must be said before it counts
/// that it did not come.
const WORD_NOISE_M: f32 = 0.01;
/// Steps that must have been looked at before anything but the model counts.
const MIN_STEPS: f32 = 1.9;
/// Motion of a body's particles in the last step (m, root of the mean square) from which on nothing is taken to
/// rest, whatever it did before: it has begun to move, and how far is the model's.
const BEGINS_M: f32 = 0.008;
/// Steps in which a body must have gone straight on, and how far each may be from their mean (m, and as a share of
/// it): what is left is the noise of a step's measurement.
const STEADY_STEPS: f32 = 3.9;
const STEADY_M: f32 = 0.003;
const STEADY_SHARE: f32 = 0.15;
/// How far its particles' motions may be from it (m, root of the mean square, and as a share of it): those of a
/// thing that turns go round it, and so they do where it turns in place.
const STEADY_PART_M: f32 = 0.004;
const STEADY_PART_SHARE: f32 = 0.5;
/// How much it may turn about the vertical in a step (rad), on average: five centimetres off the axis of a turntable, the
/// way of a slow one is no curve that could be told from noise.
const STEADY_TURN_RAD: f32 = 0.04;
/// How much the motion may change from step to step (m).
const STEADY_SLOPE_M: f32 = 0.0009;
/// Mean motion (m) and mean turn about the vertical (rad) of a step, and steps, by which a body is known to rest.
const RESTS_M: f32 = 0.0006;
const RESTS_RAD: f32 = 0.02;
const RESTS_STEPS: f32 = 3.9;

/// What was said of a step and those after it (m): by the model, and if the body goes on.
pub type Said = [[Vec3; LAG]; 2];

/// The misses of a body's last steps. A mean of records is one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TrackRecord {
    /// The newest first.
    steps: [Look; WINDOW],
    /// What was said one step and two steps ago of the steps to come.
    pending: [Pending; LAG - 1],
}

/// What was found in one step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Look {
    /// 1; 0 where nothing was looked at, and a share of 1 of a mean.
    is_known: f32,
    /// Losses of the model, of going on, of resting.
    losses: [f32; 3],
    /// Mean squared misses of the particles (m²), of the same; their noise included.
    squares: [f32; 3],
    /// The body's motion (m), and turn about the vertical (rad).
    motion: Vec3,
    turn_rad: f32,
    /// Of the model's word for [`LAG`] steps: its product with the way that came, and its square (m²).
    gain: [f32; 2],
}

/// What was said some steps ago of the steps to come, and how far that is off by now (m).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Pending {
    /// As [`Look::is_known`].
    is_known: f32,
    /// From the step at hand on.
    said: Said,
    off: [Vec3; 2],
    /// How far the body went since.
    way: Vec3,
}

/// What is seen of a body one step after something was said of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Its motion (m).
    pub motion: Vec3,
    /// Its turn about the vertical (rad).
    pub turn_rad: f32,
    /// What was said of that.
    pub said: Said,
    /// Mean squared misses of its particles (m²): of the model, of going on and of resting.
    pub squares: [f32; 3],
}

impl TrackRecord {
    fn n_steps(&self) -> f32 {
        self.steps.iter().map(|look| look.is_known).sum()
    }

    /// Adds a step.
    pub fn add(&mut self, seen: &Seen) {
        let Seen { motion, turn_rad, said, squares } = *seen;
        // In one step turns count, too: each particle's miss. In several, what the body's centre is off by.
        let mut losses = losses_of(squares, NOISE_OF_PARTICLES_M);
        let now = Pending { is_known: 1.0, said, ..Pending::default() }.after(&motion);
        let [last, before] = self.pending.map(|pending| pending.after(&motion));
        let mut gain = [0.0; 2];
        if before.is_known > 0.5 {
            let later = losses_of(before.squares(), NOISE_M);
            losses.iter_mut().zip(later).for_each(|(loss, later)| *loss += later);
            let said = minus(&before.way, &before.off[0]);
            gain = [dot(&said, &before.way), dot(&said, &said)];
        }
        self.pending = [now, last];
        self.steps.rotate_right(1);
        self.steps[0] = Look { is_known: 1.0, losses, squares, motion, turn_rad, gain };
    }

    /// What it tells of the next steps in a scene of which `scene` tells; none where nothing was looked at.
    pub fn evidence(&self, scene: &SceneRecord) -> Option<Evidence> {
        let [model, goes_on, rests] = self.shares();
        let (misses_m, has_rested) = (self.misses_m(), self.has_rested());
        let is_known = self.n_steps() > 0.0;
        let (keeps, steady) = (self.keeps(scene.share()), self.steady());
        let until = u32::MAX;
        is_known.then_some(Evidence {
            model,
            goes_on,
            rests,
            misses_m,
            has_rested,
            keeps,
            steady,
            until,
        })
    }

    /// How much the model, going on and resting count from here on.
    fn shares(&self) -> [f32; 3] {
        if self.n_steps() < MIN_STEPS {
            return [1.0, 0.0, 0.0];
        }
        let mut losses =
            [0, 1, 2].map(|i| self.steps.iter().map(|look| look.losses[i]).sum::<f32>());
        if self.steps[0].squares[2] > BEGINS_M * BEGINS_M {
            losses[2] = f32::INFINITY;
        }
        let least = losses.into_iter().fold(f32::INFINITY, f32::min);
        let weights = [0, 1, 2].map(|i| PRIOR[i] * (least - losses[i]).exp());
        let sum = weights.iter().sum::<f32>();
        weights.map(|weight| weight / sum)
    }

    /// Whether it has rested for some steps, whatever the noise of a single one.
    fn has_rested(&self) -> bool {
        let n_steps = self.n_steps();
        let mut motion = [0.0; 3];
        self.steps.iter().for_each(|look| add(&mut motion, &look.motion));
        // The middle of what turns in place rests.
        let turn_rad = self.steps.iter().map(|look| look.turn_rad).sum::<f32>();
        let turns = turn_rad.abs() >= RESTS_RAD * n_steps;
        n_steps >= RESTS_STEPS && length(&motion) < RESTS_M * n_steps && !turns
    }

    /// How much of a step's motion the next one keeps, by what became of the model's word for [`LAG`] steps: 1 where
    /// all of it came. A share c of it came if 1 + r + r² = 3 c of that decay r; `usual` is what comes in this scene.
    fn keeps(&self, usual: f32) -> f32 {
        let sum = |k: usize| self.steps.iter().map(|look| look.gain[k]).sum::<f32>();
        let noise = WORD_NOISE_M * WORD_NOISE_M;
        let share = ((sum(0) + noise * usual) / (sum(1) + noise)).clamp(1.0 / 3.0, 1.0);
        ((12.0 * share - 3.0).max(0.0).sqrt() - 1.0) / 2.0
    }

    /// The body's mean motion (m), where it went straight on at one speed in the steps that count.
    fn steady(&self) -> Option<Vec3> {
        let n_steps = self.n_steps();
        if n_steps < STEADY_STEPS {
            return None;
        }
        let mut mean = [0.0; 3];
        self.steps.iter().for_each(|look| add(&mut mean, &look.motion));
        let mean = mean.map(|x| x / n_steps);
        let most = STEADY_M + STEADY_SHARE * length(&mean);
        let turn_rad = self.steps.iter().map(|look| look.turn_rad).sum::<f32>() / n_steps;
        if turn_rad.abs() > STEADY_TURN_RAD {
            return None;
        }
        let most_of_parts = STEADY_PART_M + STEADY_PART_SHARE * length(&mean);
        // Each step's motion besides the mean; and what of that grows with time, which a curve or a brake has.
        let (mut slope, mut square) = ([0.0; 3], 0.0);
        for (i, look) in self.steps.iter().enumerate() {
            let off = minus(&look.motion, &mean.map(|x| x * look.is_known));
            let parts = (look.squares[2] - dot(&look.motion, &look.motion)).max(0.0).sqrt();
            if length(&off) > most || parts > most_of_parts {
                return None;
            }
            let time = i as f32 - (n_steps - 1.0) / 2.0;
            add(&mut slope, &off.map(|x| x * time));
            square += time * time * look.is_known;
        }
        (length(&slope) < STEADY_SLOPE_M * square).then_some(mean)
    }

    /// Usual miss of a particle in a step (m, root of the mean square): of the model, and of going on.
    fn misses_m(&self) -> [f32; 2] {
        let n_steps = self.n_steps().max(1.0);
        [0, 1]
            .map(|i| (self.steps.iter().map(|look| look.squares[i]).sum::<f32>() / n_steps).sqrt())
    }

    /// Adds another, for a mean.
    pub(crate) fn sum(&mut self, other: &Self) {
        let mut other = *other;
        self.numbers().zip(other.numbers()).for_each(|(sum, x)| *sum += *x);
    }

    /// All numbers times `factor`.
    pub(crate) fn scale(&mut self, factor: f32) {
        self.numbers().for_each(|x| *x *= factor);
    }

    fn numbers(&mut self) -> impl Iterator<Item = &mut f32> {
        let looks = self.steps.iter_mut().flat_map(
            |Look { is_known, losses, squares, motion, turn_rad, gain }| {
                let rest = [is_known, turn_rad];
                losses.iter_mut().chain(squares).chain(motion).chain(gain).chain(rest)
            },
        );
        let pending = self.pending.iter_mut().flat_map(|Pending { is_known, said, off, way }| {
            let vectors = said.iter_mut().flatten().chain(off).flatten();
            vectors.chain(way).chain([is_known])
        });
        looks.chain(pending)
    }
}

/// Losses of squared misses (m²): of the model, of going on, and of resting, which is the square of the way.
fn losses_of(squares: [f32; 3], noise_m: f32) -> [f32; 3] {
    let noise = noise_m * noise_m + NOISE_SHARE * NOISE_SHARE * squares[2];
    squares.map(|square| square / (2.0 * noise))
}

impl Pending {
    /// After the body moved by `motion` (m): what was said of that step is done.
    fn after(mut self, motion: &Vec3) -> Self {
        for (said, off) in self.said.iter_mut().zip(&mut self.off) {
            add(off, &minus(motion, &said[0]));
            said.rotate_left(1);
        }
        add(&mut self.way, motion);
        self
    }

    /// What the model is off by, squared (m²), and what going on and resting are.
    fn squares(&self) -> [f32; 3] {
        let [model, goes_on] = &self.off;
        [model, goes_on, &self.way].map(|v| length(v).powi(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record of a body that moves by `motions`, one after the other, of which the model says `model` each
    /// time, and its velocity what it was.
    fn record(motions: &[Vec3], model: &[Vec3; LAG]) -> TrackRecord {
        let mut record = TrackRecord::default();
        for pair in motions.windows(2) {
            let said = [*model, [pair[0]; LAG]];
            let off = |said: &Vec3| length(&minus(&pair[1], said)).powi(2);
            let squares = [off(&model[0]), off(&pair[0]), off(&[0.0; 3])];
            record.add(&Seen { motion: pair[1], turn_rad: 0.0, said, squares });
        }
        record
    }

    const ON: Vec3 = [0.012, 0.0, 0.0];
    const STOPS: [Vec3; LAG] = [[0.001, 0.0, 0.0], [0.0; 3], [0.0; 3]];

    #[test]
    fn what_goes_on_against_the_model_soon_counts_and_one_step_never_does() {
        assert_eq!(TrackRecord::default().evidence(&SceneRecord::default()), None);
        assert_eq!(record(&[ON; 2], &STOPS).shares()[0], 1.0, "one step may be noise");
        assert!(record(&[ON; 4], &STOPS).shares()[1] > 0.9);
        assert!(record(&[ON; 9], &STOPS).shares()[1] > 0.999);
        // Where the model is as good, it is the model's.
        assert!(record(&[ON; 9], &[ON; LAG]).shares()[0] > 0.99);
    }

    #[test]
    fn a_model_that_slows_down_is_told_by_what_three_steps_bring() {
        // In one step it is off by less than noise.
        let slows = [[0.010, 0.0, 0.0], [0.006, 0.0, 0.0], [0.002, 0.0, 0.0]];
        assert!(record(&[ON; 3], &slows).shares()[0] > 0.95);
        assert!(record(&[ON; 9], &slows).shares()[1] > 0.9);
    }

    #[test]
    fn what_is_said_and_does_not_come_fades_and_what_comes_does_not() {
        let keeps = |motions: &[Vec3], model: &[Vec3; LAG]| record(motions, model).keeps(1.0);
        assert_eq!(keeps(&[ON; 3], &STOPS), 1.0, "no three steps were looked at");
        assert!(keeps(&[ON; 9], &[ON; LAG]) > 0.999);
        assert_eq!(keeps(&[ON; 9], &STOPS), 1.0, "more came than was said");
        // To and fro: nothing of what is said comes.
        let swings: Vec<Vec3> =
            (0..9).map(|i| if i % 2 == 0 { ON } else { ON.map(|x| -x) }).collect();
        assert!(keeps(&swings, &[ON; LAG]) < 0.1, "{}", keeps(&swings, &[ON; LAG]));
        // Half of it comes: 1 + r + r² is 1.5.
        let keep = keeps(&[ON; 9], &[ON.map(|x| 2.0 * x); LAG]);
        assert!((0.366..0.45).contains(&keep), "{keep}");
        // Millimetres that do not come tell little.
        assert!(keeps(&[[0.0; 3]; 9], &[[0.0, 0.0, 0.0005]; LAG]) > 0.85);
    }

    #[test]
    fn what_goes_straight_on_is_told_by_the_mean_and_what_turns_or_brakes_is_not() {
        let steady = |motion: &dyn Fn(usize) -> Vec3| {
            record(&(0..9).map(motion).collect::<Vec<_>>(), &STOPS).steady()
        };
        let noisy = |i: usize| [0.012 + [0.002, -0.002][i % 2], 0.0, 0.0];
        let mean = steady(&noisy).expect("it goes straight on");
        assert!((mean[0] - 0.012).abs() < 0.0005, "{mean:?}");
        assert_eq!(record(&[ON; 4], &STOPS).steady(), None, "too short");
        // Ten centimetres from the axis of a turntable, 1 rad/s.
        let turns = |i: usize| [0.01 * (0.1 * i as f32).cos(), 0.01 * (0.1 * i as f32).sin(), 0.0];
        assert_eq!(steady(&turns), None);
        assert_eq!(steady(&|i| [0.02 - 0.0015 * i as f32, 0.0, 0.0]), None, "it brakes");
        assert_eq!(steady(&|i| [[0.012, -0.012][i % 2], 0.0, 0.0]), None, "it swings");
        // In place, as the plate of a turntable does: its centre rests, its rim goes 2 cm.
        let mut plate = TrackRecord::default();
        for _ in 0..WINDOW {
            plate.add(&Seen { squares: [4e-4, 0.0, 2e-4], ..Seen::default() });
        }
        assert_eq!(plate.steady(), None, "it turns in place");
        // Five centimetres from the axis, 1 rad/s: its turn tells, its way does not yet.
        let slow = |turn_rad: f32| {
            let mut record = TrackRecord::default();
            for i in 0..WINDOW {
                let (sin, cos) = (0.1 * i as f32).sin_cos();
                let motion = [0.005 * cos, 0.005 * sin, 0.0];
                record.add(&Seen { motion, turn_rad, ..Seen::default() });
            }
            record.steady()
        };
        assert!(slow(0.0).is_some() && slow(0.1).is_none());
    }

    #[test]
    fn what_stops_is_no_longer_taken_to_go_on() {
        let mut motions = vec![ON; 9];
        motions.extend([[0.0; 3]; 3]);
        let shares = record(&motions, &STOPS).shares();
        assert!(shares[1] < 0.5, "{shares:?}");
        assert!(!record(&motions, &STOPS).has_rested(), "not yet");
    }

    #[test]
    fn what_rests_is_known_to_for_all_the_noise_of_a_step() {
        let noisy: Vec<Vec3> =
            (0..7).map(|i| [if i % 2 == 0 { 0.002 } else { -0.002 }, 0.0, 0.0]).collect();
        assert!(record(&noisy, &STOPS).has_rested());
        assert!(!record(&noisy[..3], &STOPS).has_rested(), "too short");
        assert!(!record(&[[0.001, 0.0, 0.0]; 7], &STOPS).has_rested(), "slow, but it moves");
        // A turntable, whose middle rests; and the noise of a turn.
        let turned = |turns: [f32; 2]| {
            let mut record = TrackRecord::default();
            for i in 0..WINDOW {
                record.add(&Seen { turn_rad: turns[i % 2], ..Seen::default() });
            }
            record.has_rested()
        };
        assert!(!turned([0.05; 2]) && turned([0.05, -0.05]));
        // What is predicted to drift by a centimetre, and does not, until it is pushed.
        let drifts = [[0.0, 0.0, 0.01]; LAG];
        let mut motions = vec![[0.0; 3]; 9];
        assert!(record(&motions, &drifts).shares()[0] < 0.1);
        motions.push(ON);
        assert_eq!(record(&motions, &drifts).shares()[2], 0.0);
    }

    #[test]
    fn what_was_said_longer_ago_changes_no_bit() {
        let mut early = vec![[0.1, -0.03, 0.2]; 6];
        let late = [ON; WINDOW + LAG + 1];
        early.extend(late);
        let (a, b) = (record(&early, &STOPS), record(&late, &STOPS));
        assert_eq!(a.evidence(&SceneRecord::default()), b.evidence(&SceneRecord::default()));
        assert_eq!(a, b);
    }

    #[test]
    fn the_mean_of_records_is_one() {
        let (a, b) = (record(&[ON; 9], &STOPS), record(&[ON; 9], &[ON; LAG]));
        let mut mean = a;
        mean.sum(&b);
        mean.scale(0.5);
        assert_eq!(mean.n_steps(), a.n_steps());
        let half = |i: usize| (a.steps[0].losses[i] + b.steps[0].losses[i]) / 2.0;
        assert_eq!(mean.steps[0].losses, [0, 1, 2].map(half));
    }
}
