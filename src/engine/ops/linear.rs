//! The dense layer y = x·W + b.

use gemm::Parallelism;

use super::held_product::held_product;
use crate::base::instruction_set::held_back;
use crate::base::simd::vectorized;

/// A row-major matrix to multiply: data, rows, columns and the distance between rows.
#[derive(Clone, Copy)]
pub struct Mat<'a> {
    /// The numbers, from the first element on.
    pub data: &'a [f32],
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Distance between rows, in numbers (≥ columns).
    pub stride: usize,
    /// Read as its transpose (`rows` and `cols` are those of the stored matrix).
    pub transposed: bool,
}

impl<'a> Mat<'a> {
    /// Dense matrix of `cols` columns.
    pub fn new(data: &'a [f32], cols: usize) -> Self {
        Self { data, rows: data.len() / cols, cols, stride: cols, transposed: false }
    }

    /// `cols` columns of each row of a matrix of row length `stride`, from column `first` on.
    pub fn columns(data: &'a [f32], stride: usize, first: usize, cols: usize) -> Self {
        Self { data: &data[first..], rows: data.len() / stride, cols, stride, transposed: false }
    }

    /// The same matrix, transposed.
    pub fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    fn check(&self) {
        let used = if self.rows == 0 { 0 } else { (self.rows - 1) * self.stride + self.cols };
        assert!(used <= self.data.len() && self.cols <= self.stride, "matrix within its data");
    }
}

/// out = a·b, or out += a·b when `add`; `out` has row length `out_stride`.
///
/// # Panics
/// If the shapes do not belong together.
pub fn matmul(out: &mut [f32], out_stride: usize, a: Mat, b: Mat, add: bool) {
    let shape = |m: &Mat| if m.transposed { (m.cols, m.rows) } else { (m.rows, m.cols) };
    let ((m, k), (k_b, n)) = (shape(&a), shape(&b));
    assert_eq!(k, k_b, "inner dimensions");
    a.check();
    b.check();
    assert!(m == 0 || (m - 1) * out_stride + n <= out.len() && n <= out_stride, "output");
    let strides = |m: &Mat| {
        let (rs, cs) = (m.stride as isize, 1);
        if m.transposed { (rs, cs) } else { (cs, rs) } // (column stride, row stride)
    };
    let ((a_cs, a_rs), (b_cs, b_rs)) = (strides(&a), strides(&b));
    if let Some(set) = held_back() {
        let (out, a) = ((out.as_mut_ptr(), 1, out_stride as isize), (a.data.as_ptr(), a_cs, a_rs));
        // SAFETY: as below.
        if unsafe { held_product(set, (m, n, k), out, add, a, (b.data.as_ptr(), b_cs, b_rs)) } {
            return;
        }
    }
    // SAFETY: `check` and the assertion above hold every element that the strides reach within
    // `a.data`, `b.data` and `out`; `out` is a unique borrow.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            out_stride as isize,
            add,
            a.data.as_ptr(),
            a_cs,
            a_rs,
            b.data.as_ptr(),
            b_cs,
            b_rs,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// y = x·W + b. `x` `[rows, n_in]`, `weight` `[n_in, n_out]`, `y` `[rows, n_out]`.
pub fn linear_forward(x: &[f32], weight: &[f32], bias: &[f32], y: &mut [f32]) {
    linear_relu_forward(x, weight, bias, 0, y);
}

/// y = x·W + b, then ReLU on the first `n_relu` columns.
pub fn linear_relu_forward(x: &[f32], weight: &[f32], bias: &[f32], n_relu: usize, y: &mut [f32]) {
    let n_in = weight.len() / bias.len();
    matmul(y, bias.len(), Mat::new(x, n_in), Mat::new(weight, bias.len()), false);
    // Behind the product, while the rows are in cache.
    add_bias(y, bias, n_relu);
}

vectorized! {
    /// y += b in each row, then ReLU on the first `n_relu` columns, in one pass.
    fn add_bias(y: &'a mut [f32], bias: &'a [f32], n_relu: usize) {
        for row in y.chunks_exact_mut(bias.len()) {
            let (relu, plain) = row.split_at_mut(n_relu);
            relu.iter_mut().zip(bias).for_each(|(y, b)| *y = (*y + b).max(0.0));
            plain.iter_mut().zip(&bias[n_relu..]).for_each(|(y, b)| *y += b);
        }
    }
}

vectorized! {
    /// sum += each row of `y`.
    fn add_rows(sum: &'a mut [f32], y: &'a [f32]) {
        for row in y.chunks_exact(sum.len()) {
            sum.iter_mut().zip(row).for_each(|(sum, y)| *sum += y);
        }
    }
}

/// y += x·W + b: a projection back onto the residual stream.
pub fn linear_forward_add(x: &[f32], weight: &[f32], bias: &[f32], y: &mut [f32]) {
    add_bias(y, bias, 0);
    let n_in = weight.len() / bias.len();
    matmul(y, bias.len(), Mat::new(x, n_in), Mat::new(weight, bias.len()), true);
}

/// dx = dy·Wᵀ. `dy` `[rows, n_out]`, `dx` `[rows, n_in]`.
pub fn linear_backward_input(dy: &[f32], weight: &[f32], n_out: usize, dx: &mut [f32]) {
    let n_in = weight.len() / n_out;
    matmul(dx, n_in, Mat::new(dy, n_out), Mat::new(weight, n_out).t(), false);
}

/// dW += xᵀ·dy and db += Σ dy.
pub fn linear_backward_weights(x: &[f32], dy: &[f32], d_weight: &mut [f32], d_bias: &mut [f32]) {
    let (n_out, n_in) = (d_bias.len(), d_weight.len() / d_bias.len());
    matmul(d_weight, n_out, Mat::new(x, n_in).t(), Mat::new(dy, n_out), true);
    add_rows(d_bias, dy);
}

#[cfg(test)]
use crate::engine::ops::plain;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::instruction_set::InstructionSet;
    use crate::engine::ops::check::*;

    #[test]
    fn linear_and_its_gradients() {
        let (rows, n_in, n_out) = (13, 7, 5);
        let (x, w, b) = (numbers(rows * n_in, 1), numbers(n_in * n_out, 2), numbers(n_out, 3));
        let dy = numbers(rows * n_out, 4);
        let mut y = vec![0.0; rows * n_out];
        linear_forward(&x, &w, &b, &mut y);
        assert_close(&y, &plain::linear(&f64s(&x), &f64s(&w), &f64s(&b)), 1e-5);
        let mut twice = y.clone();
        linear_forward_add(&x, &w, &b, &mut twice);
        assert_close(&twice, &f64s(&y).iter().map(|y| 2.0 * y).collect::<Vec<_>>(), 1e-5);

        let mut dx = vec![0.0; x.len()];
        let (mut dw, mut db) = (vec![0.0; w.len()], vec![0.0; b.len()]);
        linear_backward_input(&dy, &w, n_out, &mut dx);
        linear_backward_weights(&x, &dy, &mut dw, &mut db);
        assert_gradient(&dx, &x, &dy, |x| plain::linear(x, &f64s(&w), &f64s(&b)));
        assert_gradient(&dw, &w, &dy, |w| plain::linear(&f64s(&x), w, &f64s(&b)));
        assert_gradient(&db, &b, &dy, |b| plain::linear(&f64s(&x), &f64s(&w), b));
    }

    /// The kernels of every width that this processor has, of shapes that no block size divides.
    #[test]
    fn held_products_are_products() {
        let (m, k, n, stride) = (13, 37, 19, 23);
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let exact = plain::linear(&f64s(&a), &f64s(&b), &vec![0.0; n]);
        let mut n_held = 0;
        for set in InstructionSet::ALL {
            let mut out = vec![0.0; m * stride];
            for times in [1.0, 2.0] {
                let (to, add) = ((out.as_mut_ptr(), 1, stride as isize), times > 1.0);
                let (a, b) = ((a.as_ptr(), 1, k as isize), (b.as_ptr(), 1, n as isize));
                // SAFETY: `out` is m·stride, `a` m·k, `b` k·n.
                if !unsafe { held_product(set, (m, n, k), to, add, a, b) } {
                    break;
                }
                n_held += 1;
                let rows: Vec<f32> = out.chunks(stride).flat_map(|row| row[..n].to_vec()).collect();
                let want: Vec<f64> = exact.iter().map(|x| times * x).collect();
                assert_close_of(set.name(), &rows, &want, 1e-5);
            }
        }
        let has_avx2 =
            matches!(InstructionSet::widest(), InstructionSet::Avx2 | InstructionSet::Avx512);
        assert_eq!(n_held, if has_avx2 { 4 } else { 2 }, "scalar, and AVX2 where it is");
    }
}
