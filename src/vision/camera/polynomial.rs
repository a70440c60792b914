//! Roots of polynomials in an interval; coefficients ascend: `c[0] + c[1] x + …`.

/// Value at `x`.
pub(super) fn value(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// Coefficients of the derivative.
pub(super) fn derivative(coefficients: &[f64]) -> Vec<f64> {
    let powers = (1u32..).map(f64::from);
    coefficients.iter().skip(1).zip(powers).map(|(c, power)| c * power).collect()
}

/// Coefficients of `a * b`.
pub(super) fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut product = vec![0.0; (a.len() + b.len()).saturating_sub(1)];
    for (i, a) in a.iter().enumerate() {
        for (j, b) in b.iter().enumerate() {
            product[i + j] += a * b;
        }
    }
    product
}

/// Where the polynomial changes its sign in `0..=end`, ascending.
///
/// Between neighbouring sign changes of the derivative it is monotone, so bisection finds the
/// only one there.
pub(super) fn sign_changes(coefficients: &[f64], end: f64) -> Vec<f64> {
    if coefficients.len() < 2 {
        return Vec::new();
    }
    let mut ends = vec![0.0];
    ends.extend(sign_changes(&derivative(coefficients), end));
    ends.push(end);
    let at = |x| value(coefficients, x);
    let has_change = |pair: &&[f64]| (at(pair[0]) < 0.0) != (at(pair[1]) < 0.0);
    let changes = ends.windows(2).filter(has_change);
    changes.map(|pair| bisect(|x| (at(x) < 0.0) != (at(pair[0]) < 0.0), pair[0], pair[1])).collect()
}

/// The least `x` of `low..=high` where `is_beyond` holds, which is monotone there.
fn bisect(is_beyond: impl Fn(f64) -> bool, mut low: f64, mut high: f64) -> f64 {
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return high; // neighbouring numbers
        }
        if is_beyond(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_changes_of_products_of_known_roots() {
        // (x - 0.5)(x - 1)(x - 3)(x + 2), a double root at 2, and none at all.
        let linear = |root: f64| [-root, 1.0];
        let mut four = vec![1.0];
        for root in [0.5, 1.0, 3.0, -2.0] {
            four = product(&four, &linear(root));
        }
        let near = |got: Vec<f64>, expected: &[f64]| {
            assert_eq!(got.len(), expected.len(), "{got:?}, not {expected:?}");
            for (got, expected) in got.iter().zip(expected) {
                assert!((got - expected).abs() < 1e-12, "{got}, not {expected}");
            }
        };
        near(sign_changes(&four, 10.0), &[0.5, 1.0, 3.0]);
        near(sign_changes(&four, 2.9), &[0.5, 1.0]);
        near(sign_changes(&product(&linear(2.0), &linear(2.0)), 10.0), &[]);
        near(sign_changes(&[1.0, 0.0, 1.0], 10.0), &[]);
        near(sign_changes(&[1.0], 10.0), &[]);
        near(sign_changes(&[], 10.0), &[]);
    }
}
