//! Effective resistance: how far the potentials of i and j are apart while 1 flows from one to the other,
//! R_ij = (u_i - u_j)ᵀ L⁺ (u_i - u_j) (section 3.2), edges being conductances. Infinite between components.

use nalgebra::DMatrix;

use super::{Laplacian, electric_flow, fast_electric_flow};
use forecloud::{Error, Result};

/// R `[n, n]`, from L⁺ by `n_layers` layers of Lemma 4, of step δ.
///
/// # Errors
/// As [`fast_electric_flow`].
pub fn effective_resistance(
    laplacian: &Laplacian,
    n_layers: usize,
    delta: f64,
) -> Result<DMatrix<f64>> {
    let inverse = fast_electric_flow(laplacian, n_layers, delta)?;
    let (n, l) = (laplacian.len(), |i: usize, j: usize| inverse[(i, j)]);
    Ok(DMatrix::from_fn(n, n, |i, j| match laplacian.are_joined(i, j) {
        true => l(i, i) + l(j, j) - 2.0 * l(i, j),
        false => f64::INFINITY,
    }))
}

/// R of `pairs` of nodes, on graphs of any size: the flow of each pair by `n_layers` layers of Lemma 1, of
/// step δ.
///
/// # Errors
/// As [`electric_flow`], and [`Error::Shape`] for nodes that are not there.
pub fn effective_resistance_between(
    laplacian: &Laplacian,
    pairs: &[(u32, u32)],
    n_layers: usize,
    delta: f32,
) -> Result<Vec<f32>> {
    let (n, width) = (laplacian.len(), pairs.len());
    if let Some(&(i, j)) = pairs.iter().find(|(i, j)| *i.max(j) as usize >= n) {
        return Err(Error::Shape { what: "a node of a pair", expected: n, got: i.max(j) as usize });
    }
    let joined = |&(i, j): &(u32, u32)| i != j && laplacian.are_joined(i as usize, j as usize);
    let mut demands = vec![0.0; n * width];
    for (at, &(i, j)) in pairs.iter().enumerate().filter(|(_, pair)| joined(pair)) {
        demands[i as usize * width + at] = 1.0;
        demands[j as usize * width + at] = -1.0;
    }
    let phi = electric_flow(laplacian, &demands, n_layers, delta)?;
    let potential = |i: u32, at: usize| phi[i as usize * width + at];
    let resistance = |(at, pair): (usize, &(u32, u32))| match pair.0 == pair.1 || joined(pair) {
        true => potential(pair.0, at) - potential(pair.1, at),
        false => f32::INFINITY,
    };
    Ok(pairs.iter().enumerate().map(resistance).collect())
}

#[cfg(test)]
mod tests {
    use super::super::resistive_embedding;
    use super::super::tests::{function, laplacians};
    use super::*;

    /// Against L⁺ of the eigenvectors, for all pairs and both ways; and Fact 1, by the embedding.
    #[test]
    fn resistances_are_those_of_the_pseudoinverse() {
        for (name, laplacian) in laplacians() {
            let (n, delta) = (laplacian.len(), laplacian.step());
            let inverse = function(&laplacian, |value| 1.0 / value).0;
            let all = effective_resistance(&laplacian, 16, f64::from(delta)).unwrap();
            let pairs: Vec<(u32, u32)> =
                (0..n * n).map(|at| ((at / n) as u32, (at % n) as u32)).collect();
            let some = effective_resistance_between(&laplacian, &pairs, 4000, delta).unwrap();
            let mut identity = vec![0.0; n * n];
            (0..n).for_each(|i| identity[i * n + i] = 1.0);
            laplacian.center(&mut identity);
            let rows = resistive_embedding(&laplacian, &identity, 4000, delta).unwrap();
            let row = |i: usize| &rows[i * n..(i + 1) * n];
            for (at, &(i, j)) in pairs.iter().enumerate() {
                let (i, j) = (i as usize, j as usize);
                if !laplacian.are_joined(i, j) {
                    assert!(all[(i, j)].is_infinite() && some[at].is_infinite(), "{name}");
                    continue;
                }
                let wanted = inverse[(i, i)] + inverse[(j, j)] - 2.0 * inverse[(i, j)];
                assert!((all[(i, j)] - wanted).abs() < 1e-9, "{name}, {i}, {j}");
                assert!((f64::from(some[at]) - wanted).abs() < 1e-4, "{name}, {i}, {j}");
                let apart = row(i).iter().zip(row(j)).map(|(a, b)| f64::from(a - b).powi(2));
                assert!((apart.sum::<f64>() - wanted).abs() < 1e-4, "{name}, {i}, {j}: Fact 1");
            }
        }
        let (_, path) = laplacians().swap_remove(0);
        assert!(effective_resistance_between(&path, &[(0, 12)], 1, 0.1).is_err());
    }

    /// In a row resistances add up; side by side conductances do.
    #[test]
    fn resistances_follow_ohms_law() {
        let (_, path) = laplacians().swap_remove(0);
        let all = effective_resistance(&path, 20, 0.2).unwrap();
        assert!((all[(2, 9)] - 7.0).abs() < 1e-9, "{}", all[(2, 9)]);
        // Parts: 0-1 of 1 / 0.5 beside 0-2-1 of 1 / 1 + 1 / 2.
        let (_, parts) = laplacians().swap_remove(3);
        let all = effective_resistance(&parts, 20, 0.1).unwrap();
        assert!((all[(0, 1)] - 1.0 / (0.5 + 1.0 / 1.5)).abs() < 1e-9, "{}", all[(0, 1)]);
        assert!((all[(4, 5)] - 1.0 / 0.3).abs() < 1e-6 && all[(0, 4)].is_infinite());
    }
}
