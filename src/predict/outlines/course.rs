//! The course of something, by where its ends were in some frames.

use nalgebra::{Matrix3, Vector3};

use crate::base::geometry::{Vec3, dot, length, minus};

use super::groups::{DIRECTIONS, N_DIRECTIONS};
use super::sight::Seen;

/// Frames that are looked at, and that there must be.
pub(super) const LOOKS: usize = 5;
const MIN_LOOKS: usize = 4;
/// What goes no farther in a step (m) is left to what is measured.
const LEAST_M: f32 = 0.002;
/// How much its ends may go apart in a step, its speed change, and a single step be short of it (m, and as a share).
const APART: (f32, f32) = (0.0005, 0.1);
const CHANGES: (f32, f32) = (0.0005, 0.08);
const SHORT_SHARE: f32 = 0.5;
/// What changes its speed less than this in a step (m, and as a share) goes on at one speed.
const EVEN: (f32, f32) = (0.0008, 0.015);
/// Steps from the middle of the looks to now and beyond, in which its speed may have changed as it did.
const SINCE: f32 = 3.0;
/// Measured motion that differs by less from what the ends tell (m, and as a share) is right but for the noise of
/// a step.
const AGREES: (f32, f32) = (0.001, 0.15);
/// How much the motion that is measured tells of directions whose ends are not seen.
const MEASURED: f32 = 0.01;
/// Directions are known in a plane: the second of these sums of squares is no less.
const LEAST_KNOWN: f32 = 0.5;

/// Where something ended in a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Look {
    /// How many steps ago.
    pub age: f32,
    /// Low and high end along each direction (m).
    pub ends: [[f32; 2]; N_DIRECTIONS],
}

impl Look {
    /// The middle between the ends along the axes (m).
    pub fn center(&self) -> Vec3 {
        [0, 1, 2].map(|d| self.middle(d))
    }

    /// How wide it is along the axes (m).
    pub fn diagonal(&self) -> Vec3 {
        [0, 1, 2].map(|d| self.ends[d][1] - self.ends[d][0])
    }

    /// How wide it is along each direction (m).
    pub fn widths(&self) -> impl Iterator<Item = f32> {
        self.ends.iter().map(|[low, high]| high - low)
    }

    /// Where it is along direction `d` (m): its middle, or the end that tells.
    fn place(&self, d: usize, seen: Seen) -> f32 {
        match seen {
            Seen::One(end) => self.ends[d][end],
            _ => self.middle(d),
        }
    }

    fn middle(&self, d: usize) -> f32 {
        0.5 * (self.ends[d][0] + self.ends[d][1])
    }
}

/// How something moved; all along its way but that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Course {
    /// Its motion in a step (m).
    pub way: Vec3,
    /// How far its ends go apart in a step (m, root of the mean square), along its way and in any direction.
    apart_m: [f32; 2],
    /// How much more it goes in a step than in the one before (m).
    change_m: f32,
    /// The least of its steps (m).
    least_m: f32,
}

/// Looks with their times.
struct Line<'a> {
    looks: &'a [Look],
    /// When each was, from their mean (steps), and the sum of the squares.
    times: [f32; LOOKS],
    square: f32,
}

impl Line<'_> {
    /// How much `of` grows in a step.
    fn slope(&self, of: impl Fn(&Look) -> f32) -> f32 {
        self.looks.iter().zip(&self.times).map(|(look, t)| t * of(look)).sum::<f32>() / self.square
    }
}

impl<'a> Line<'a> {
    fn through(looks: &'a [Look]) -> Option<Self> {
        if looks.len() < MIN_LOOKS {
            return None;
        }
        let mean = looks.iter().map(|look| look.age).sum::<f32>() / looks.len() as f32;
        let mut times = [0.0; LOOKS];
        times.iter_mut().zip(looks).for_each(|(time, look)| *time = mean - look.age);
        let square = times.iter().map(|t| t * t).sum();
        Some(Self { looks, times, square })
    }
}

impl Course {
    /// Whether any end of `looks` goes farther than what is left to what is measured.
    pub fn is_any(looks: &[Look]) -> bool {
        let goes = |line: Line| {
            let end = |d: usize, end: usize| line.slope(|look| look.ends[d][end]).abs() >= LEAST_M;
            (0..N_DIRECTIONS).any(|d| end(d, 0) || end(d, 1))
        };
        Line::through(looks).is_some_and(goes)
    }

    /// The course by `looks`, the newest first, in directions whose ends are `seen`, and as `measured` (m) in others;
    /// none where too few are.
    pub fn of(looks: &[Look], seen: &[Seen; N_DIRECTIONS], measured: &Vec3) -> Option<Self> {
        let line = Line::through(looks)?;
        let way = way(&line, seen, measured)?;
        let speed = length(&way);
        if speed < LEAST_M || !speed.is_finite() {
            return None;
        }
        let weights = DIRECTIONS.map(|direction| dot(&way, &direction) / speed);
        let total = known(seen).map(|d| weights[d].powi(2)).sum::<f32>();
        // Where it was along its way.
        let mut places = [0.0; LOOKS];
        for (place, look) in places.iter_mut().zip(looks) {
            *place = known(seen).map(|d| weights[d] * look.place(d, seen[d])).sum::<f32>() / total;
        }
        let places = &places[..looks.len()];
        let both = || known(seen).filter(|&d| seen[d] == Seen::Both);
        let grows = |d: usize| line.slope(|look| 0.5 * (look.ends[d][1] - look.ends[d][0]));
        let along = both().map(|d| (weights[d] * grows(d)).powi(2)).sum::<f32>() / total;
        let any = both().map(|d| grows(d).powi(2)).sum::<f32>() / both().count().max(1) as f32;
        let speed_of = |from: usize, to: usize| {
            (places[to] - places[from]) / (looks[from].age - looks[to].age)
        };
        let last = looks.len() - 1;
        let (half, other) = (looks.len() / 2, looks.len() - 1 - looks.len() / 2);
        let middle = |a: usize, b: usize| 0.5 * (looks[a].age + looks[b].age);
        let between = middle(last, other) - middle(half, 0);
        let least_m = (0..last).map(|i| speed_of(i + 1, i)).fold(f32::INFINITY, f32::min);
        Some(Self {
            way,
            apart_m: [along.sqrt(), any.sqrt()],
            change_m: (speed_of(half, 0) - speed_of(last, other)) / between,
            least_m,
        })
    }

    fn within(&self, x: f32, (least, share): (f32, f32)) -> bool {
        x.abs() <= least + share * length(&self.way)
    }

    /// Whether it went straight on at about one speed, both ends alike.
    pub fn is_steady(&self) -> bool {
        let speed = length(&self.way);
        self.apart_m.iter().all(|&apart| self.within(apart, APART))
            && self.within(self.change_m, CHANGES)
            && self.least_m >= SHORT_SHARE * speed
    }

    /// Whether its speed is the same in all steps.
    pub fn is_even(&self) -> bool {
        self.within(self.change_m, EVEN)
    }

    /// Whether a motion that is `measured` in the last step (m) is what it may have come to since.
    pub fn agrees(&self, measured: &Vec3) -> bool {
        let (speed, off) = (length(&self.way), minus(measured, &self.way));
        let change = SINCE * self.change_m;
        let along = (dot(&off, &self.way) / speed).clamp(change.min(0.0), change.max(0.0));
        let off = minus(&off, &self.way.map(|x| along * x / speed));
        self.within(length(&off), AGREES)
    }
}

/// Directions along which an end tells.
fn known(seen: &[Seen; N_DIRECTIONS]) -> impl Iterator<Item = usize> {
    (0..N_DIRECTIONS).filter(|&d| seen[d] != Seen::None)
}

/// The motion in a step (m) that explains best how its places move.
fn way(line: &Line, seen: &[Seen; N_DIRECTIONS], measured: &Vec3) -> Option<Vec3> {
    let (mut matrix, mut right) = (Matrix3::<f32>::zeros(), Vector3::<f32>::zeros());
    for d in known(seen) {
        let direction = Vector3::from(DIRECTIONS[d]);
        matrix += direction * direction.transpose();
        right += direction * line.slope(|look| look.place(d, seen[d]));
    }
    // What comes into view is known along itself alone.
    let least = if seen.iter().any(|seen| matches!(seen, Seen::One(_))) { 1 } else { 2 };
    let sums = matrix.symmetric_eigenvalues();
    if sums.iter().filter(|sum| **sum >= LEAST_KNOWN).count() < least {
        return None;
    }
    right += MEASURED * Vector3::from(*measured);
    let way = (matrix + MEASURED * Matrix3::identity()).cholesky()?.solve(&right);
    Some(way.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The course of a box of 6 cm whose middle is at `places` (m) along x, the oldest first, a step apart.
    fn course(places: &[f32]) -> Course {
        let looks = places.iter().rev().enumerate().map(|(age, x)| {
            let along = |direction: &Vec3| [x * direction[0] - 0.03, x * direction[0] + 0.03];
            Look { age: age as f32, ends: DIRECTIONS.map(|direction| along(&direction)) }
        });
        let looks: Vec<Look> = looks.collect();
        Course::of(&looks, &[Seen::Both; N_DIRECTIONS], &[0.0; 3]).expect("it moves")
    }

    #[test]
    fn it_is_steady_at_one_speed_alone() {
        let even = course(&[0.0, 0.008, 0.016, 0.024, 0.032]);
        assert!((even.way[0] - 0.008).abs() < 1e-4 && even.is_steady() && even.is_even());
        // Steps of 3 and 13 mm by turns; steps that grow by 2 mm.
        assert!(!course(&[0.0, 0.013, 0.016, 0.029, 0.032]).is_steady());
        assert!(!course(&[0.0, 0.005, 0.012, 0.021, 0.032]).is_steady());
        let grows = course(&[0.0, 0.0065, 0.014, 0.0225, 0.032]);
        assert!(grows.is_steady() && !grows.is_even(), "by 1 mm");
    }

    #[test]
    fn what_is_measured_may_be_where_a_change_leads() {
        let grows = course(&[0.0, 0.0065, 0.014, 0.0225, 0.032]);
        for (measured, agrees) in
            [(0.008, true), (0.0115, true), (0.014, false), (0.005, false), (0.0, false)]
        {
            assert_eq!(grows.agrees(&[measured, 0.0, 0.0]), agrees, "{measured}");
        }
        assert!(!grows.agrees(&[0.008, 0.004, 0.0]));
    }

    #[test]
    fn too_few_looks_or_directions_tell_nothing() {
        let look = |age: f32| Look { age, ends: DIRECTIONS.map(|d| [-age * d[0]; 2]) };
        let looks = [0.0, 1.0, 2.0, 3.0].map(look);
        let of = |looks, seen| Course::of(looks, seen, &[0.0; 3]);
        assert!(of(&looks, &[Seen::Both; N_DIRECTIONS]).is_some());
        assert_eq!(of(&looks[..3], &[Seen::Both; N_DIRECTIONS]), None);
        let mut seen = [Seen::None; N_DIRECTIONS];
        seen[0] = Seen::Both;
        assert_eq!(of(&looks, &seen), None);
        assert_eq!(of(&[look(0.0); 4], &[Seen::Both; N_DIRECTIONS]), None, "all at one time");
    }
}
