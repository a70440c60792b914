//! How many separate things points are of.

use std::collections::BTreeMap;

use crate::base::geometry::Vec3;

/// Side of the cells that points are sorted into (m): things lie apart if one is empty between them.
const CELL_M: f32 = 0.05;
/// Points of a cell on average: else cells grow, by this factor, so that none within a thing is empty.
const LEAST_FILLED: usize = 4;
const GROWTH: f32 = 1.5;
/// Share of the points that a thing has at least: what is less is noise.
const LEAST_SHARE: f32 = 0.05;

/// Numbers of points by cell.
type Cells = BTreeMap<[i32; 3], usize>;

/// The number of things among `points` (m) that gaps separate.
pub(super) fn count(points: &[Vec3]) -> usize {
    let mut cell_m = CELL_M;
    let mut cells = sort(points, cell_m);
    // Ends: in large cells there are all.
    while points.len() < LEAST_FILLED * cells.len() && cells.len() > 1 {
        cell_m *= GROWTH;
        cells = sort(points, cell_m);
    }
    let (mut n_things, mut reached) = (0, Vec::new());
    while let Some((first, n)) = cells.pop_first() {
        let mut size = n;
        reached.push(first);
        while let Some([x, y, z]) = reached.pop() {
            for i in 0..27 {
                let [dx, dy, dz] = [i % 3 - 1, i / 3 % 3 - 1, i / 9 - 1];
                let beside = [x.saturating_add(dx), y.saturating_add(dy), z.saturating_add(dz)];
                if let Some(n) = cells.remove(&beside) {
                    size += n;
                    reached.push(beside);
                }
            }
        }
        n_things += usize::from(size as f32 >= LEAST_SHARE * points.len() as f32);
    }
    n_things
}

fn sort(points: &[Vec3], cell_m: f32) -> Cells {
    let mut cells = Cells::new();
    for p in points {
        *cells.entry(p.map(|x| (x / cell_m).floor() as i32)).or_default() += 1;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plate of 20 x 20 points, `spacing_m` apart, from `x` on.
    fn plate(x: f32, spacing_m: f32) -> impl Iterator<Item = Vec3> {
        (0..400).map(move |i| [x + spacing_m * (i % 20) as f32, spacing_m * (i / 20) as f32, 0.0])
    }

    #[test]
    fn gaps_separate_things_and_noise_is_none() {
        let of = |xs: &[f32], spacing_m: f32| -> Vec<Vec3> {
            xs.iter().flat_map(|x| plate(*x, spacing_m)).collect()
        };
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&of(&[0.0], 0.01)), 1);
        assert_eq!(count(&of(&[0.0, 0.4, 0.8], 0.01)), 3);
        assert_eq!(count(&of(&[0.0, 0.23, 0.46], 0.01)), 1, "4 cm apart");
        // Points far apart are no things of their own.
        assert_eq!(count(&of(&[0.0], 0.1)), 1);
        let with_noise = plate(0.0, 0.01).chain([[3.0; 3], [5.0; 3]]).collect::<Vec<_>>();
        assert_eq!(count(&with_noise), 1);
        // Nor do points at the end of all numbers make it search for ever.
        assert_eq!(count(&[[f32::MAX; 3], [f32::MIN; 3], [0.0; 3]]), 1);
    }
}
