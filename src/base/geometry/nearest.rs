//! The nearest of a few thousand points, for many queries: by brute force, vector by vector, or leaving
//! out what is farther than a point that is known to be near.

use std::ops::Range;

use pulp::Simd;
use pulp::bytemuck::cast_slice;

use super::Vec3;
use crate::base::simd::{WithSimd, dispatch};

/// Points or boxes in a vector at most.
const LANES: usize = 16;
/// Points in a box: neighbours in the list, such as points of one link.
const IN_BOX: usize = 32;
const _: () = assert!(IN_BOX.is_multiple_of(LANES), "boxes are whole vectors");

/// Points by coordinate, padded to whole vectors with what is nobody's nearest.
#[derive(Debug, Default, Clone)]
pub(crate) struct Nearest {
    columns: [Vec<f32>; 3],
    /// Least and greatest coordinates of each box, padded likewise.
    least: [Vec<f32>; 3],
    greatest: [Vec<f32>; 3],
}

impl Nearest {
    /// Replaces the points; no allocation once the vectors have grown.
    pub(crate) fn rebuild(&mut self, points: &[Vec3]) {
        let padded = points.len().next_multiple_of(LANES);
        let ends = self.least.iter_mut().zip(&mut self.greatest);
        for ((axis, column), (least, greatest)) in self.columns.iter_mut().enumerate().zip(ends) {
            column.clear();
            column.extend(points.iter().map(|p| p[axis]));
            let of_boxes = column.chunks(IN_BOX);
            let n_boxes = of_boxes.len().next_multiple_of(LANES);
            least.clear();
            least.extend(of_boxes.clone().map(|x| x.iter().copied().fold(f32::INFINITY, f32::min)));
            least.resize(n_boxes, f32::INFINITY);
            greatest.clear();
            greatest.extend(of_boxes.map(|x| x.iter().copied().fold(f32::NEG_INFINITY, f32::max)));
            greatest.resize(n_boxes, f32::INFINITY);
            column.resize(padded, f32::INFINITY);
        }
    }

    /// Index of the point nearest to each of `queries`, the first one of several; 0 without points
    /// or where no distance is finite.
    pub(crate) fn find<'a>(&self, queries: impl Iterator<Item = (&'a mut u32, &'a Vec3)>) {
        dispatch(Find { points: self, queries, within: Within::Any });
    }

    /// As [`Nearest::find`], with the same indices, where each index is a guess: that of a point thought to
    /// be near to its query. Any will do; the nearer it is, the fewer points are looked at.
    pub(crate) fn find_near<'a>(&self, queries: impl Iterator<Item = (&'a mut u32, &'a Vec3)>) {
        dispatch(Find { points: self, queries, within: Within::Guess });
    }

    /// As [`Nearest::find`], with the same indices where the nearest point is no farther than `reach`; where
    /// it is, the index may be any. Fewer points are looked at.
    pub(crate) fn find_within<'a>(
        &self,
        reach: f32,
        queries: impl Iterator<Item = (&'a mut u32, &'a Vec3)>,
    ) {
        dispatch(Find { points: self, queries, within: Within::Square(reach * reach) });
    }

    /// Squared distance of point `index`, as the search has it; infinite where there is none.
    fn square(&self, index: u32, query: &Vec3) -> f32 {
        let at = |axis: usize| self.columns[axis].get(index as usize).copied();
        let [Some(x), Some(y), Some(z)] = [at(0), at(1), at(2)] else { return f32::INFINITY };
        let [dx, dy, dz] = [x - query[0], y - query[1], z - query[2]];
        dx * dx + dy * dy + dz * dz
    }
}

/// Names its vectors: left to the compiler, this ran on the narrowest ones. Closures may not be compiled for
/// the instruction set either: there are none in its loops.
struct Find<'a, I> {
    points: &'a Nearest,
    queries: I,
    within: Within,
}

/// How near the nearest point is known to be.
#[derive(Clone, Copy)]
enum Within {
    Any,
    /// As near as the point of the index that comes.
    Guess,
    /// Of such a squared distance (m²), or of no interest.
    Square(f32),
}

impl<'q, I: Iterator<Item = (&'q mut u32, &'q Vec3)>> WithSimd for Find<'_, I> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Nearest { columns, least, greatest } = self.points;
        let (points, least, greatest) =
            (vectors(simd, columns), vectors(simd, least), vectors(simd, greatest));
        let in_box = IN_BOX / S::F32_LANES;
        for (nearest, query) in self.queries {
            let about =
                [simd.splat_f32s(query[0]), simd.splat_f32s(query[1]), simd.splat_f32s(query[2])];
            let mut search = Search::new(simd);
            let bound = match self.within {
                Within::Any => f32::INFINITY,
                Within::Guess => self.points.square(*nearest, query),
                Within::Square(square) => square,
            };
            if bound.is_finite() {
                for i in 0..least[0].len() {
                    let squares = squares_of_boxes(
                        simd,
                        [least[0][i], least[1][i], least[2][i]],
                        [greatest[0][i], greatest[1][i], greatest[2][i]],
                        about,
                    );
                    let squares: &[f32] = cast_slice(std::slice::from_ref(&squares));
                    // A bit for each box, as most are too far: one branch for all of these.
                    let mut near = 0u32;
                    for (lane, &square) in squares.iter().enumerate() {
                        // Not less alone: of points that are as near, the first counts.
                        near |= u32::from(square <= bound) << lane;
                    }
                    while near != 0 {
                        let first = (i * S::F32_LANES + near.trailing_zeros() as usize) * in_box;
                        search.over(simd, points, first..first + in_box, about);
                        near &= near - 1;
                    }
                }
            } else {
                search.over(simd, points, 0..points[0].len(), about);
            }
            *nearest = search.best(simd);
        }
    }
}

/// The columns as vectors.
#[inline(always)]
fn vectors<S: Simd>(_simd: S, columns: &[Vec<f32>; 3]) -> [&[S::f32s]; 3] {
    let n = columns[0].len() / S::F32_LANES;
    [
        &S::as_simd_f32s(&columns[0]).0[..n],
        &S::as_simd_f32s(&columns[1]).0[..n],
        &S::as_simd_f32s(&columns[2]).0[..n],
    ]
}

/// Squared distances of the place `about` from a vector of boxes.
///
/// Of no point in a box is the squared distance less, as rounded: each operation here is one that is done
/// for points, too, of numbers that are no greater, and rounding keeps their order.
#[inline(always)]
fn squares_of_boxes<S: Simd>(
    simd: S,
    least: [S::f32s; 3],
    greatest: [S::f32s; 3],
    about: [S::f32s; 3],
) -> S::f32s {
    let mut sum = simd.splat_f32s(0.0);
    for axis in 0..3 {
        let below = simd.sub_f32s(least[axis], about[axis]);
        let above = simd.sub_f32s(about[axis], greatest[axis]);
        let outside = simd.max_f32s(simd.max_f32s(below, above), simd.splat_f32s(0.0));
        sum = simd.add_f32s(sum, simd.mul_f32s(outside, outside));
    }
    sum
}

/// A search for the point nearest to one query, over vectors of points in their order.
struct Search<S: Simd> {
    /// Of each lane, of every other vector, the least squared distance, and the vector that it is in: two,
    /// so that one comparison does not wait for the one before.
    least: [S::f32s; 2],
    at: [S::u32s; 2],
}

impl<S: Simd> Search<S> {
    #[inline(always)]
    fn new(simd: S) -> Self {
        Self { least: [simd.splat_f32s(f32::INFINITY); 2], at: [simd.splat_u32s(0); 2] }
    }

    /// Goes on over the points of the vectors `range` (what is behind the last is left out).
    #[inline(always)]
    fn over(&mut self, simd: S, points: [&[S::f32s]; 3], range: Range<usize>, about: [S::f32s; 3]) {
        let end = range.end.min(points[0].len());
        let [xs, ys, zs] = [&points[0][..end], &points[1][..end], &points[2][..end]];
        let mut i = range.start;
        while i + 1 < end {
            self.look_at(simd, 0, i, [xs[i], ys[i], zs[i]], about);
            self.look_at(simd, 1, i + 1, [xs[i + 1], ys[i + 1], zs[i + 1]], about);
            i += 2;
        }
        if i < end {
            self.look_at(simd, 0, i, [xs[i], ys[i], zs[i]], about);
        }
    }

    /// Looks at the points `places` of the vector `i`.
    #[inline(always)]
    fn look_at(
        &mut self,
        simd: S,
        half: usize,
        i: usize,
        places: [S::f32s; 3],
        about: [S::f32s; 3],
    ) {
        let dx = simd.sub_f32s(places[0], about[0]);
        let dy = simd.sub_f32s(places[1], about[1]);
        let dz = simd.sub_f32s(places[2], about[2]);
        // Not fused: the same distances, to the bit, on any processor.
        let square = simd.add_f32s(simd.mul_f32s(dx, dx), simd.mul_f32s(dy, dy));
        let square = simd.add_f32s(square, simd.mul_f32s(dz, dz));
        // Not the minimum: NaN is nobody's nearest.
        let is_less = simd.less_than_f32s(square, self.least[half]);
        self.least[half] = simd.select_f32s(is_less, square, self.least[half]);
        self.at[half] = simd.select_u32s(is_less, simd.splat_u32s(i as u32), self.at[half]);
    }

    /// The nearest point, the first one of several; 0 where no distance is finite.
    #[inline(always)]
    fn best(&self, simd: S) -> u32 {
        let least = simd.reduce_min_f32s(simd.min_f32s(self.least[0], self.least[1]));
        if least == f32::INFINITY {
            return 0;
        }
        // Without branches, which no processor would foresee.
        let mut best = u32::MAX;
        for half in 0..2 {
            let squares: &[f32] = cast_slice(std::slice::from_ref(&self.least[half]));
            let vectors: &[u32] = cast_slice(std::slice::from_ref(&self.at[half]));
            for (lane, (&square, &vector)) in squares.iter().zip(vectors).enumerate() {
                let index = vector * S::F32_LANES as u32 + lane as u32;
                best = best.min(if square == least { index } else { u32::MAX });
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::geometry::squared_distance;
    use crate::base::random::{draw, normal_pair};

    fn points(n: usize, seed: u64) -> Vec<Vec3> {
        let normal = |i, axis| normal_pair(draw(seed, 0, i, axis))[0];
        (0..n as u64).map(|i| [normal(i, 0), normal(i, 1), normal(i, 2)]).collect()
    }

    #[test]
    fn is_the_nearest_by_definition() {
        let mut nearest = Nearest::default();
        for n in [1, 2, 63, 64, 65, 300] {
            let points = points(n, n as u64);
            nearest.rebuild(&points);
            for query in self::points(50, 7) {
                let mut got = u32::MAX;
                nearest.find([(&mut got, &query)].into_iter());
                let distance = |i: usize| squared_distance(&points[i], &query);
                let want = (0..n).min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap();
                let gap = distance(got as usize) - distance(want);
                // Fused products may tell two apart that the definition does not.
                assert!(gap <= 1e-6, "{got} instead of {want} of {n}: {gap}");
            }
        }
    }

    #[test]
    fn ties_go_to_the_first_and_nothing_is_0() {
        let mut nearest = Nearest::default();
        let mut got = u32::MAX;
        nearest.find([(&mut got, &[0.0; 3])].into_iter());
        assert_eq!(got, 0);
        nearest.rebuild(&[[1.0, 0.0, 0.0]; 200]);
        nearest.find([(&mut got, &[0.0; 3])].into_iter());
        assert_eq!(got, 0);
        nearest.find([(&mut got, &[f32::NAN; 3])].into_iter());
        assert_eq!(got, 0);
    }

    /// Boxes leave out no point that counts, whatever is guessed.
    #[test]
    fn guesses_change_nothing() {
        let mut nearest = Nearest::default();
        for n in [1, 63, 64, 65, 300, 1500] {
            let mut points = points(n, n as u64);
            // On a lattice, so that many are as near; and in the order of one axis, as parts of a body.
            points.iter_mut().flatten().for_each(|x| *x = (*x * 4.0).round() / 4.0);
            points.sort_by(|a, b| a[0].total_cmp(&b[0]));
            points[n / 2] = [f32::NAN; 3];
            if n > 2 {
                points[n / 3][1] = f32::INFINITY;
                points[n / 4][2] = f32::NAN;
            }
            nearest.rebuild(&points);
            let mut queries = self::points(60, 7);
            queries[..30].iter_mut().flatten().for_each(|x| *x = (*x * 4.0).round() / 4.0);
            queries.push([f32::NAN, 0.0, 0.0]);
            for (i, query) in queries.iter().enumerate() {
                let mut want = u32::MAX;
                nearest.find([(&mut want, query)].into_iter());
                for guess in
                    [0, (i % n) as u32, (n / 2) as u32, n as u32 - 1, n as u32, want, u32::MAX]
                {
                    let mut got = guess;
                    nearest.find_near([(&mut got, query)].into_iter());
                    assert_eq!(got, want, "query {i} of {n} points, from {guess}");
                }
                let distance = nearest.square(want, query).sqrt();
                for reach in [0.0, 0.3, 1.0, distance, 100.0] {
                    let mut got = u32::MAX;
                    nearest.find_within(reach, [(&mut got, query)].into_iter());
                    if distance < 0.999 * reach {
                        assert_eq!(got, want, "query {i} of {n} points, within {reach}");
                    } else {
                        assert!(got == 0 || (got as usize) < n, "{got} of {n} points");
                    }
                }
            }
        }
    }
}
