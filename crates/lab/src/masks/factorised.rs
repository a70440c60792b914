//! Factorised space and time: the Kronecker product A ⊗ B of two masks, A of the outer index (frames),
//! B of the inner one (patches of a frame): M_(s,p),(t,q) = A_st B_pq (000, appendix C.4: space and time
//! one after the other, as in the factorised form of video transformers). Products with N columns of A
//! and of B, so O(N) where theirs are linear.

use super::Mask;
use forecloud::base::scratch::with_scratch;

/// A ⊗ B; parameters of A first, `n_outer_params` of them, then those of B.
#[derive(Debug)]
pub struct Factorised<A, B> {
    /// A, over the outer index.
    pub outer: A,
    /// B, over the inner index.
    pub inner: B,
    /// Parameters of A.
    pub n_outer_params: usize,
}

impl<A: Mask, B: Mask> Factorised<A, B> {
    fn inner_len(&self, x: &[f32]) -> usize {
        (x.len() / self.outer.n_nodes().max(1)).max(1)
    }
}

impl<A: Mask, B: Mask> Mask for Factorised<A, B> {
    fn n_nodes(&self) -> usize {
        self.outer.n_nodes() * self.inner.n_nodes()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let (of_outer, of_inner) = params.split_at(self.n_outer_params);
        let len = self.inner_len(x);
        with_scratch(x.len(), |inside| {
            let frames = x.chunks_exact(len).zip(inside.chunks_exact_mut(len));
            frames.for_each(|(x, y)| self.inner.apply(of_inner, x, y));
            // Patches and columns of a frame are the outer mask's columns.
            self.outer.apply(of_outer, inside, y);
        });
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        let (of_outer, of_inner) = params.split_at(self.n_outer_params);
        let len = self.inner_len(x);
        with_scratch(x.len(), |inside| {
            let frames = x.chunks_exact(len).zip(inside.chunks_exact_mut(len));
            frames.for_each(|(x, y)| self.inner.apply_transposed(of_inner, x, y));
            self.outer.apply_transposed(of_outer, inside, y);
        });
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        let (of_outer, of_inner) = params.split_at(self.n_outer_params);
        let (d_outer, d_inner) = d_params.split_at_mut(self.n_outer_params);
        let len = self.inner_len(x);
        with_scratch(x.len(), |inside| {
            let frames = x.chunks_exact(len).zip(inside.chunks_exact_mut(len));
            frames.for_each(|(x, y)| self.inner.apply(of_inner, x, y));
            self.outer.gradients(of_outer, inside, dy, d_outer);
            let d_inside = inside;
            self.outer.apply_transposed(of_outer, dy, d_inside);
            for (x, dy) in x.chunks_exact(len).zip(d_inside.chunks_exact(len)) {
                self.inner.gradients(of_inner, x, dy, d_inner);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{assert_products, softplus64};
    use super::super::{Causal, Toeplitz};
    use super::*;

    /// Steps of time that see no later one, times a learnt image mask; and the other way round.
    #[test]
    fn the_factorised_mask_is_the_dense_one() {
        let times = [0.0, 0.1, 0.1, 0.3];
        let image = || Toeplitz::new(&[2, 3], &[1, 1]).unwrap();
        let causal = |i: usize, j: usize| f64::from(u8::from(times[i] >= times[j]));
        let offset = |params: &[f64], i: usize, j: usize| {
            let (dy, dx) = (i / 3 + 1 - j / 3, (i % 3 + 3 - j % 3).wrapping_sub(2));
            if dx < 3 { softplus64(params[dy * 3 + dx]) } else { 0.0 }
        };
        let video = Factorised { outer: Causal::new(&times), inner: image(), n_outer_params: 0 };
        assert_products("a video", &video, 9, 1e-5, |params| {
            let entry = |at: usize| {
                let (i, j) = (at / 24, at % 24);
                causal(i / 6, j / 6) * offset(params, i % 6, j % 6)
            };
            (0..24 * 24).map(entry).collect()
        });
        let tracks = Factorised { outer: image(), inner: Causal::new(&times), n_outer_params: 9 };
        assert_products("tracks", &tracks, 9, 1e-5, |params| {
            let entry = |at: usize| {
                let (i, j) = (at / 24, at % 24);
                offset(params, i / 4, j / 4) * causal(i % 4, j % 4)
            };
            (0..24 * 24).map(entry).collect()
        });
    }
}
