//! Lens distortion: from the ideal image plane (x / z, y / z) to the real one, and back.
//!
//! Formulas: documentation of OpenCV, modules `calib3d` (x″, y″) and `fisheye` (x′, y′).

use super::polynomial::{derivative, product, sign_changes, value};

/// Largest distance from the optical axis that counts, in focal lengths: 89.4 degrees.
const MAX_RADIUS: f64 = 100.0;
/// How far the inverse may be off, in focal lengths: about 1e-8 pixels.
const TOLERANCE: f64 = 1e-11;
/// Steps of Newton's method at most; three to six are usual.
const MAX_STEPS: usize = 40;

/// A distortion other than none: `image = ideal * radial(r²) + tangential`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Distortion {
    radial: Radial,
    /// p1, p2.
    tangential: [f64; 2],
    /// Distance from the axis, in focal lengths, up to which the radial part grows with it.
    max_radius: f64,
}

/// Polynomials, from the constant on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Radial {
    /// Of r²: (1 k1 k2 k3) / (1 k4 k5 k6).
    Rational { numerator: [f64; 4], denominator: [f64; 4] },
    /// Of θ², with r = tan θ: (1 k1 k2 k3 k4) θ / r.
    Fisheye([f64; 5]),
}

impl Distortion {
    /// `None` if all coefficients are zero.
    ///
    /// # Errors
    /// What is wrong, and the remedy.
    pub(super) fn new(name: &str, d: &[f64]) -> Result<Option<Self>, String> {
        if d.iter().all(|&d| d == 0.0) {
            return Ok(None);
        }
        let (radial, tangential) = match name {
            "plumb_bob" | "rational_polynomial" => polynomial_model(d),
            "equidistant" | "fisheye" => fisheye_model(d),
            _ => Err("plumb_bob, rational_polynomial, equidistant and fisheye are supported"),
        }
        .map_err(|why| {
            let shown = &d[..d.len().min(14)];
            format!(
                "distortion '{name:.32}' {shown:?}: {why}; or rectify the images (image_proc) and use a \
                 camera info without distortion"
            )
        })?;
        Ok(Some(Self { radial, tangential, max_radius: radial.max_radius() }))
    }

    /// Where the ideal point is seen; `None` beyond the range of the model, and where the image
    /// folds back.
    pub(super) fn distort(&self, ideal: [f64; 2]) -> Option<[f64; 2]> {
        let (image, jacobian) = self.image(ideal);
        let is_valid = ideal[0].hypot(ideal[1]) < self.max_radius && determinant(&jacobian) > 0.0;
        is_valid.then_some(image)
    }

    /// The ideal point that is seen at `image`; `None` if there is none, or none was found.
    pub(super) fn undistort(&self, image: [f64; 2]) -> Option<[f64; 2]> {
        // A start at `image` mostly does; where the distortion is strong, the radial part leads.
        self.newton(image, image).or_else(|| self.newton(image, self.undistort_radial(image)))
    }

    fn newton(&self, image: [f64; 2], start: [f64; 2]) -> Option<[f64; 2]> {
        let mut ideal = start;
        for _ in 0..MAX_STEPS {
            let (seen, jacobian) = self.image(ideal);
            let mut step = solve(&jacobian, [image[0] - seen[0], image[1] - seen[1]]);
            let after = |step: [f64; 2]| [ideal[0] + step[0], ideal[1] + step[1]];
            let [x, y] = after(step);
            if x.hypot(y) >= self.max_radius {
                step = step.map(|step| 0.5 * step);
            }
            ideal = after(step);
            if step[0].hypot(step[1]) < 1e-13 {
                break;
            }
        }
        let seen = self.distort(ideal)?;
        let error = (seen[0] - image[0]).hypot(seen[1] - image[1]);
        (error <= TOLERANCE).then_some(ideal)
    }

    /// Inverse of the radial part alone, roughly; within its range.
    fn undistort_radial(&self, image: [f64; 2]) -> [f64; 2] {
        let distance = image[0].hypot(image[1]);
        let (mut low, mut high) = (0.0, self.max_radius);
        for _ in 0..30 {
            let middle = 0.5 * (low + high);
            let is_short = middle * self.radial.factor(middle * middle).0 < distance;
            if is_short { low = middle } else { high = middle }
        }
        image.map(|x| if distance > 0.0 { x / distance * low } else { 0.0 })
    }

    /// Image of an ideal point, and its derivatives: `jacobian[i][j] = d image[i] / d ideal[j]`.
    fn image(&self, [x, y]: [f64; 2]) -> ([f64; 2], [[f64; 2]; 2]) {
        let [p1, p2] = self.tangential;
        let r2 = x * x + y * y;
        let (factor, slope) = self.radial.factor(r2);
        let image = [
            x * factor + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x),
            y * factor + 2.0 * p2 * x * y + p1 * (r2 + 2.0 * y * y),
        ];
        let mixed = 2.0 * (x * y * slope + p1 * x + p2 * y);
        let dx = factor + 2.0 * (x * x * slope + p1 * y + 3.0 * p2 * x);
        let dy = factor + 2.0 * (y * y * slope + 3.0 * p1 * y + p2 * x);
        (image, [[dx, mixed], [mixed, dy]])
    }
}

impl Radial {
    /// The factor, and its derivative by `r2`.
    fn factor(&self, r2: f64) -> (f64, f64) {
        match self {
            Self::Rational { numerator: n, denominator: d } => {
                let slope = |c: &[f64; 4]| c[1] + r2 * (2.0 * c[2] + r2 * 3.0 * c[3]);
                let (above, below) = (value(n, r2), value(d, r2));
                let factor = above / below;
                (factor, (slope(n) - factor * slope(d)) / below)
            }
            Self::Fisheye(c) => {
                if r2 < 1e-18 {
                    return (1.0, 0.0); // both are 0 / 0 on the axis
                }
                let r = r2.sqrt();
                let angle = r.atan();
                let a2 = angle * angle;
                let factor = angle * value(c, a2) / r;
                let by_angle = value(&angle_slope(c), a2);
                (factor, (by_angle / (1.0 + r2) - factor) / (2.0 * r2))
            }
        }
    }

    /// Up to where `r * factor(r²)` grows with r.
    fn max_radius(&self) -> f64 {
        let first = |c: &[f64], end: f64| sign_changes(c, end).first().copied().unwrap_or(end);
        match self {
            Self::Rational { numerator: n, denominator: d } => {
                // Of the derivative n / d + 2 r² (n / d)′, only the part above d² can change sign.
                let [dn, dd] = [n, d].map(|c| derivative(c));
                let mut growth = product(n, d);
                let pairs = product(&dn, d).into_iter().zip(product(n, &dd));
                for (growth, (a, b)) in growth[1..].iter_mut().zip(pairs) {
                    *growth += 2.0 * (a - b);
                }
                let end = first(d, MAX_RADIUS * MAX_RADIUS);
                first(&growth, end).sqrt()
            }
            Self::Fisheye(c) => {
                let max_angle = MAX_RADIUS.atan();
                first(&angle_slope(c), max_angle * max_angle).sqrt().tan()
            }
        }
    }
}

/// Derivative of `θ c(θ²)` by θ, as a polynomial of θ².
fn angle_slope(c: &[f64; 5]) -> [f64; 5] {
    std::array::from_fn(|i| c[i] * (2 * i + 1) as f64)
}

fn polynomial_model(d: &[f64]) -> Result<(Radial, [f64; 2]), &'static str> {
    let rest = match d.len() {
        4 | 5 | 8 => &[],
        12 | 14 => &d[8..],
        _ => return Err("4, 5, 8, 12 or 14 coefficients are supported"),
    };
    if rest.iter().any(|&d| d != 0.0) {
        return Err("coefficients of thin prisms and tilt (the 9th on) must be zero");
    }
    let at = |i: usize| d.get(i).copied().unwrap_or(0.0);
    let numerator = [1.0, at(0), at(1), at(4)];
    let denominator = [1.0, at(5), at(6), at(7)];
    Ok((Radial::Rational { numerator, denominator }, [at(2), at(3)]))
}

fn fisheye_model(d: &[f64]) -> Result<(Radial, [f64; 2]), &'static str> {
    match *d {
        [k1, k2, k3, k4] => Ok((Radial::Fisheye([1.0, k1, k2, k3, k4]), [0.0; 2])),
        _ => Err("4 coefficients are supported"),
    }
}

fn determinant([[a, b], [c, d]]: &[[f64; 2]; 2]) -> f64 {
    a * d - b * c
}

/// `x` of `matrix x = right`.
fn solve(matrix: &[[f64; 2]; 2], right: [f64; 2]) -> [f64; 2] {
    let [[a, b], [c, d]] = matrix;
    let scale = 1.0 / determinant(matrix);
    [(d * right[0] - b * right[1]) * scale, (a * right[1] - c * right[0]) * scale]
}

#[cfg(test)]
mod tests;
