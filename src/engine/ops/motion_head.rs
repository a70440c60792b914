//! The motion head: displacement as a mixture of candidate motions plus a bounded residual.
//!
//! Δx_i = Σ_c softmax(y_i)_c · candidate_ic + 0.25 m · tanh(r_i), where each row of the model's
//! output is `[y (candidates) | r (3) | more]`; what is more is not the head's.

/// Bound of the residual on each axis, in metres a step (papers' setting).
pub const MAX_RESIDUAL_M: f32 = 0.25;

/// Displacements (m) of `rows` particles. `y` `[rows, width]`, of which the head takes the first
/// `n + 3`; `candidates` `[rows, n]` (m).
///
/// Overwrites these with what the backward pass needs: the candidates' shares and tanh(r).
#[inline(always)]
pub fn motion_head_forward(
    y: &mut [f32],
    width: usize,
    candidates: &[[f32; 3]],
    out: &mut [[f32; 3]],
) {
    let n = candidates.len() / out.len().max(1);
    for (i, (y, out)) in y.chunks_exact_mut(width).zip(out).enumerate() {
        // By index, as chunks of 0 candidates would be none.
        let candidates = &candidates[i * n..][..n];
        let (shares, residual) = y[..n + 3].split_at_mut(n);
        let max = shares.iter().fold(f32::NEG_INFINITY, |m, &s| m.max(s));
        let mut total = 0.0;
        for s in shares.iter_mut() {
            *s = (*s - max).exp();
            total += *s;
        }
        for (axis, r) in residual.iter_mut().enumerate() {
            *r = r.tanh();
            out[axis] = MAX_RESIDUAL_M * *r;
        }
        for (s, candidate) in shares.iter_mut().zip(candidates) {
            *s /= total;
            for axis in 0..3 {
                out[axis] += *s * candidate[axis];
            }
        }
    }
}

/// Gradients of the model's output `dy` and of the candidates, from those of the displacements.
///
/// `saved`: what [`motion_head_forward`] left in `y`. Of `dy` only what is the head's is written.
#[inline(always)]
pub fn motion_head_backward(
    saved: &[f32],
    width: usize,
    candidates: &[[f32; 3]],
    d_out: &[[f32; 3]],
    dy: &mut [f32],
    d_candidates: &mut [[f32; 3]],
) {
    let n = candidates.len() / d_out.len().max(1);
    let rows = saved.chunks_exact(width).zip(dy.chunks_exact_mut(width)).zip(d_out);
    for (i, ((saved, dy), g)) in rows.enumerate() {
        let candidates = &candidates[i * n..][..n];
        let d_candidates = &mut d_candidates[i * n..][..n];
        let mut mean = 0.0;
        for c in 0..n {
            dy[c] = (0..3).map(|axis| g[axis] * candidates[c][axis]).sum();
            mean += saved[c] * dy[c];
            d_candidates[c] = g.map(|g| saved[c] * g);
        }
        for c in 0..n {
            dy[c] = saved[c] * (dy[c] - mean);
        }
        for axis in 0..3 {
            dy[n + axis] = MAX_RESIDUAL_M * g[axis] * (1.0 - saved[n + axis] * saved[n + axis]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::check::*;

    fn plain(y: &[f64], candidates: &[f64], n: usize) -> Vec<f64> {
        y.chunks_exact(n + 3)
            .zip(candidates.chunks_exact(3 * n))
            .flat_map(|(y, candidates)| {
                let total: f64 = y[..n].iter().map(|s| s.exp()).sum();
                (0..3).map(move |axis| {
                    let mixed: f64 =
                        (0..n).map(|c| y[c].exp() / total * candidates[3 * c + axis]).sum();
                    mixed + 0.25 * y[n + axis].tanh()
                })
            })
            .collect()
    }

    #[test]
    fn motion_head_and_its_gradients() {
        let (rows, n) = (7, 4);
        let (y, candidates) = (numbers(rows * (n + 3), 1), numbers(rows * n * 3, 2));
        let d_out = numbers(rows * 3, 3);
        let vectors = |x: &[f32]| x.chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect::<Vec<_>>();
        let (mut saved, mut out) = (y.clone(), vec![[0.0; 3]; rows]);
        motion_head_forward(&mut saved, n + 3, &vectors(&candidates), &mut out);
        assert_close(out.as_flattened(), &plain(&f64s(&y), &f64s(&candidates), n), 1e-6);
        let (mut dy, mut dc) = (vec![0.0; y.len()], vec![[0.0; 3]; rows * n]);
        let (given, d) = (vectors(&candidates), vectors(&d_out));
        motion_head_backward(&saved, n + 3, &given, &d, &mut dy, &mut dc);
        assert_gradient(&dy, &y, &d_out, |y| plain(y, &f64s(&candidates), n));
        let f = |c: &[f64]| plain(&f64s(&y), c, n);
        assert_gradient(dc.as_flattened(), &candidates, &d_out, f);
    }

    #[test]
    fn what_is_more_in_a_row_is_left_alone() {
        let (rows, n) = (3, 2);
        let (y, candidates) = (numbers(rows * (n + 3), 1), vec![[0.1, -0.2, 0.3]; rows * n]);
        let widened = |y: &[f32]| -> Vec<f32> {
            y.chunks_exact(n + 3).flat_map(|row| row.iter().copied().chain([7.0])).collect()
        };
        let (mut narrow, mut wide) = (y.clone(), widened(&y));
        let [mut out, mut wide_out] = [(); 2].map(|()| vec![[0.0; 3]; rows]);
        motion_head_forward(&mut narrow, n + 3, &candidates, &mut out);
        motion_head_forward(&mut wide, n + 4, &candidates, &mut wide_out);
        assert!(out == wide_out && wide == widened(&narrow));
        let (mut dy, mut wide_dy) = (vec![0.0; narrow.len()], vec![7.0; wide.len()]);
        let mut dc = candidates.clone();
        motion_head_backward(&narrow, n + 3, &candidates, &out, &mut dy, &mut dc);
        motion_head_backward(&wide, n + 4, &candidates, &out, &mut wide_dy, &mut dc);
        assert_eq!(wide_dy, widened(&dy));
    }

    #[test]
    fn no_rows_and_no_candidates_are_no_panic() {
        motion_head_forward(&mut [], 3, &[], &mut []);
        motion_head_backward(&[], 3, &[], &[], &mut [], &mut []);
        // Without candidates the residual is all there is.
        let (mut y, mut out, mut dy) = ([0.0, 1.0, -1.0], [[9.0; 3]], [9.0; 3]);
        motion_head_forward(&mut y, 3, &[], &mut out);
        assert_eq!(out[0], y.map(|r| MAX_RESIDUAL_M * r));
        motion_head_backward(&y, 3, &[], &[[0.0, 0.0, 1.0]], &mut dy, &mut []);
        assert!(dy[..2] == [0.0; 2] && dy[2] > 0.1, "{dy:?}");
    }

    #[test]
    fn head_and_loss_equal_pytorch() {
        use crate::engine::ops::charbonnier::charbonnier;
        let golden = Golden::read("head");
        let (mut saved, candidates) = (golden.f32("y"), golden.vectors("cand"));
        let weights = golden.f32("weight");
        let mut out = vec![[0.0; 3]; weights.len()];
        motion_head_forward(&mut saved, 7, &candidates, &mut out);
        assert_close(out.as_flattened(), &golden.f64("dx"), 1e-6);
        let mut d_out = vec![[0.0; 3]; out.len()];
        let loss = charbonnier(&out, &golden.vectors("target"), &weights, 1.0, &mut d_out);
        assert!((loss / golden.f64("loss")[0] - 1.0).abs() < 1e-5);
        assert_close(d_out.as_flattened(), &golden.f64("grad.dx"), 1e-5);
        let (mut dy, mut dc) = (vec![0.0; saved.len()], vec![[0.0; 3]; candidates.len()]);
        motion_head_backward(&saved, 7, &candidates, &d_out, &mut dy, &mut dc);
        assert_close(&dy, &golden.f64("grad.y"), 2e-5);
        assert_close(dc.as_flattened(), &golden.f64("grad.cand"), 2e-5);
    }
}
