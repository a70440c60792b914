//! ReLU, in place.

/// x = max(x, 0).
#[inline(always)]
pub fn relu_forward(x: &mut [f32]) {
    for x in x {
        *x = x.max(0.0);
    }
}

/// dy = 0 where the activation `y` is 0.
#[inline(always)]
pub fn relu_backward(y: &[f32], dy: &mut [f32]) {
    for (dy, &y) in dy.iter_mut().zip(y) {
        *dy = if y > 0.0 { *dy } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::check::*;

    #[test]
    fn relu_and_its_gradient() {
        let (x, dy) = (numbers(33, 1), numbers(33, 2));
        let plain = |x: &[f64]| x.iter().map(|x| x.max(0.0)).collect::<Vec<_>>();
        let mut y = x.clone();
        relu_forward(&mut y);
        assert_close(&y, &plain(&f64s(&x)), 1e-9);
        let mut dx = dy.clone();
        relu_backward(&y, &mut dx);
        assert_gradient(&dx, &x, &dy, plain);
    }
}
