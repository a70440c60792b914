//! The nearest of a few thousand points, for many queries: by brute force, vector by vector.

use super::Vec3;
use crate::simd::vectorize;

/// Points that are compared before the least distance is looked at.
const BLOCK: usize = 64;

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
        vectorize(|| {
            for (nearest, query) in queries {
                *nearest = self.nearest(query);
            }
        });
    }

    #[inline(always)]
    fn nearest(&self, p: &Vec3) -> u32 {
        let [xs, ys, zs] = self.columns.each_ref().map(|column| column.as_chunks::<BLOCK>().0);
        let (mut best, mut index) = (f32::INFINITY, 0);
        for (block, ((x, y), z)) in xs.iter().zip(ys).zip(zs).enumerate() {
            let mut squares = [0.0f32; BLOCK];
            for i in 0..BLOCK {
                let (dx, dy, dz) = (x[i] - p[0], y[i] - p[1], z[i] - p[2]);
                squares[i] = dx * dx + dy * dy + dz * dz;
            }
            let mut least = [f32::INFINITY; 16];
            for i in 0..BLOCK {
                // Not f32::min: NaN is nobody's nearest either way, and this is one instruction.
                let square = squares[i];
                least[i % 16] = if square < least[i % 16] { square } else { least[i % 16] };
            }
            let least = least.iter().fold(f32::INFINITY, |a, &b| if b < a { b } else { a });
            if least < best {
                best = least;
                let within = squares.iter().position(|&square| square == least).unwrap_or(0);
                index = (block * BLOCK + within) as u32;
            }
        }
        index
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
