//! The nearest of a few thousand points, for many queries: by brute force, vector by vector.

use pulp::Simd;
use pulp::bytemuck::cast_slice;

use super::Vec3;
use crate::simd::{WithSimd, dispatch};

/// Points in a vector at most.
const BLOCK: usize = 16;

/// Points by coordinate, padded to whole blocks with what is nobody's nearest.
#[derive(Debug, Default, Clone)]
pub(crate) struct Nearest {
    columns: [Vec<f32>; 3],
}

impl Nearest {
    /// Replaces the points; no allocation once the vectors have grown.
    pub(crate) fn rebuild(&mut self, points: &[Vec3]) {
        let padded = points.len().next_multiple_of(BLOCK);
        for (axis, column) in self.columns.iter_mut().enumerate() {
            column.clear();
            column.extend(points.iter().map(|p| p[axis]));
            column.resize(padded, f32::INFINITY);
        }
    }

    /// Index of the point nearest to each of `queries`, the first one of several; 0 without points
    /// or where no distance is finite.
    pub(crate) fn find<'a>(&self, queries: impl Iterator<Item = (&'a mut u32, &'a Vec3)>) {
        dispatch(Find { columns: &self.columns, queries });
    }
}

/// Names its vectors: left to the compiler, this ran on the narrowest ones.
struct Find<'a, I> {
    columns: &'a [Vec<f32>; 3],
    queries: I,
}

impl<'q, I: Iterator<Item = (&'q mut u32, &'q Vec3)>> WithSimd for Find<'_, I> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows: [&[S::f32s]; 3] = [
            S::as_simd_f32s(&self.columns[0]).0,
            S::as_simd_f32s(&self.columns[1]).0,
            S::as_simd_f32s(&self.columns[2]).0,
        ];
        let n = rows[0].len();
        let [xs, ys, zs] = [&rows[0][..n], &rows[1][..n], &rows[2][..n]];
        for (nearest, query) in self.queries {
            let about = [query[0], query[1], query[2]].map(|x| simd.splat_f32s(x));
            // Of each lane the least distance, and the vector that it is in.
            let mut least = simd.splat_f32s(f32::INFINITY);
            let mut at = simd.splat_u32s(0);
            for i in 0..n {
                let dx = simd.sub_f32s(xs[i], about[0]);
                let dy = simd.sub_f32s(ys[i], about[1]);
                let dz = simd.sub_f32s(zs[i], about[2]);
                // Not fused: the same distances, to the bit, on any processor.
                let square = simd.add_f32s(simd.mul_f32s(dx, dx), simd.mul_f32s(dy, dy));
                let square = simd.add_f32s(square, simd.mul_f32s(dz, dz));
                // Not the minimum: NaN is nobody's nearest.
                let is_less = simd.less_than_f32s(square, least);
                least = simd.select_f32s(is_less, square, least);
                at = simd.select_u32s(is_less, simd.splat_u32s(i as u32), at);
            }
            let squares: &[f32] = cast_slice(std::slice::from_ref(&least));
            let vectors: &[u32] = cast_slice(std::slice::from_ref(&at));
            let mut best = (f32::INFINITY, 0);
            for (lane, (&square, &vector)) in squares.iter().zip(vectors).enumerate() {
                let index = vector * S::F32_LANES as u32 + lane as u32;
                if square < best.0 || (square == best.0 && square.is_finite() && index < best.1) {
                    best = (square, index);
                }
            }
            *nearest = best.1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::squared_distance;
    use crate::random::{draw, normal_pair};

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
}
