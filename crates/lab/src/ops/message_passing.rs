//! Messages between particles: what a receiver hears of its senders (neighbour-attender of the
//! Interlacer, Whitney et al. 2024, as GRF masking describes it in C.3).
//!
//! m_ij = ReLU(s_j + r_i + W_p (p_j - p_i)), with s = W_s h of the senders and r = W_r h + b of the
//! receivers made beforehand by one matrix product each; a_i = the mean of m_ij over the senders j
//! of i. Per message that is additions alone, and three multiply-adds a channel for the place.

use std::ops::Range;

use forecloud::base::geometry::Vec3;
use forecloud::base::simd::axpy;

/// Relative positions are divided by this, so that those of neighbours are of order 1.
pub const POSITION_SCALE_M: f32 = 0.05;

/// Who hears whom: a bipartite graph from senders to receivers, each numbered on its own.
pub trait Links: Sync {
    /// Senders that receiver `i` hears; at least one.
    fn senders(&self, i: usize) -> &[u32];
    /// Position of receiver `i` (m).
    fn receiver_position(&self, i: usize) -> Vec3;
    /// Position of sender `j` (m).
    fn sender_position(&self, j: usize) -> Vec3;
}

/// Links whose receivers can be found from their senders.
pub trait TransposedLinks: Links {
    /// Receivers that hear sender `j`, ascending.
    fn receivers(&self, j: usize) -> &[u32];
}

/// (p_j - p_i) in units of [`POSITION_SCALE_M`].
#[inline(always)]
fn offset(links: &impl Links, i: usize, j: usize) -> Vec3 {
    let (to, from) = (links.receiver_position(i), links.sender_position(j));
    std::array::from_fn(|axis| (from[axis] - to[axis]) * (1.0 / POSITION_SCALE_M))
}

/// The message before its ReLU, in channel c.
#[inline(always)]
fn message(s: f32, r: f32, w: [f32; 3], p: Vec3) -> f32 {
    s + r + (p[0] * w[0] + p[1] * w[1] + p[2] * w[2])
}

/// Splits `[3, d]` into its rows.
#[inline(always)]
fn axes(weight: &[f32], d: usize) -> [&[f32]; 3] {
    [&weight[..d], &weight[d..2 * d], &weight[2 * d..3 * d]]
}

/// Mean messages `out` `[receivers, d]`; `senders` `[all senders, d]` s, `receivers`
/// `[all receivers, d]` r, `position_weight` `[3, d]`.
#[inline(always)]
pub fn message_passing_forward(
    range: Range<usize>,
    links: &impl Links,
    senders: &[f32],
    receivers: &[f32],
    position_weight: &[f32],
    out: &mut [f32],
) {
    let d = position_weight.len() / 3;
    let [wx, wy, wz] = axes(position_weight, d);
    for (i, out) in range.zip(out.chunks_exact_mut(d)) {
        let r = &receivers[i * d..][..d];
        out.fill(0.0);
        let from = links.senders(i);
        for &j in from {
            let (s, p) = (&senders[j as usize * d..][..d], offset(links, i, j as usize));
            for (c, out) in out.iter_mut().enumerate() {
                *out += message(s[c], r[c], [wx[c], wy[c], wz[c]], p).max(0.0);
            }
        }
        let share = 1.0 / from.len().max(1) as f32;
        out.iter_mut().for_each(|o| *o *= share);
    }
}

/// Backward pass over receivers: `d_receivers` `[range, d]` from `d_out` of the same rows, and adds
/// to `d_position_weight` `[3, d]`.
#[inline(always)]
pub fn message_passing_backward_receiver(
    range: Range<usize>,
    links: &impl Links,
    senders: &[f32],
    receivers: &[f32],
    position_weight: &[f32],
    d_out: &[f32],
    d_receivers: &mut [f32],
    d_position_weight: &mut [f32],
    scratch: &mut [f32],
) {
    let d = position_weight.len() / 3;
    let [wx, wy, wz] = axes(position_weight, d);
    let gradient = &mut scratch[..d];
    let rows = d_out.chunks_exact(d).zip(d_receivers.chunks_exact_mut(d));
    for (i, (d_out, d_r)) in range.zip(rows) {
        let r = &receivers[i * d..][..d];
        let from = links.senders(i);
        let share = 1.0 / from.len().max(1) as f32;
        d_r.fill(0.0);
        for &j in from {
            let (s, p) = (&senders[j as usize * d..][..d], offset(links, i, j as usize));
            for (c, g) in gradient.iter_mut().enumerate() {
                let is_on = message(s[c], r[c], [wx[c], wy[c], wz[c]], p) > 0.0;
                *g = if is_on { share * d_out[c] } else { 0.0 };
            }
            axpy(d_r, 1.0, gradient);
            for (axis, d_weight) in d_position_weight.chunks_exact_mut(d).enumerate() {
                axpy(d_weight, p[axis], gradient);
            }
        }
    }
}

/// Backward pass over senders: `d_senders` `[range, d]`, gathered from the receivers that hear
/// them; `d_out` holds all receivers' rows. No atomics.
#[inline(always)]
pub fn message_passing_backward_sender(
    range: Range<usize>,
    links: &impl TransposedLinks,
    senders: &[f32],
    receivers: &[f32],
    position_weight: &[f32],
    d_out: &[f32],
    d_senders: &mut [f32],
) {
    let d = position_weight.len() / 3;
    let [wx, wy, wz] = axes(position_weight, d);
    for (j, d_s) in range.zip(d_senders.chunks_exact_mut(d)) {
        let s = &senders[j * d..][..d];
        d_s.fill(0.0);
        for &i in links.receivers(j) {
            let i = i as usize;
            let (r, d_out) = (&receivers[i * d..][..d], &d_out[i * d..][..d]);
            let p = offset(links, i, j);
            let share = 1.0 / links.senders(i).len().max(1) as f32;
            for (c, d_s) in d_s.iter_mut().enumerate() {
                let is_on = message(s[c], r[c], [wx[c], wy[c], wz[c]], p) > 0.0;
                *d_s += if is_on { share * d_out[c] } else { 0.0 };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::engine::ops::check::*;

    /// Receiver i hears senders i, i + 1, … (2 + i % 2 of them), modulo their number.
    struct Chain {
        from: Vec<Vec<u32>>,
        to: Vec<Vec<u32>>,
        places: Vec<Vec3>,
    }

    impl Chain {
        fn new(n_receivers: usize, n_senders: usize) -> Self {
            let from: Vec<Vec<u32>> = (0..n_receivers)
                .map(|i| (0..2 + i % 2).map(|step| ((i + step) % n_senders) as u32).collect())
                .collect();
            let to = (0..n_senders as u32)
                .map(|j| {
                    let hears = |i: &u32| from[*i as usize].contains(&j);
                    (0..n_receivers as u32).filter(hears).collect()
                })
                .collect();
            let n = n_receivers.max(n_senders);
            let places = numbers(3 * n, 9);
            let places = places.chunks_exact(3).map(|p| [p[0], p[1], p[2]]);
            Self { from, to, places: places.map(|p| p.map(|x| 0.05 * x)).collect() }
        }
    }

    impl Links for Chain {
        fn senders(&self, i: usize) -> &[u32] {
            &self.from[i]
        }
        fn receiver_position(&self, i: usize) -> Vec3 {
            self.places[i]
        }
        fn sender_position(&self, j: usize) -> Vec3 {
            self.places[j].map(|x| 1.5 * x)
        }
    }

    impl TransposedLinks for Chain {
        fn receivers(&self, j: usize) -> &[u32] {
            &self.to[j]
        }
    }

    fn plain(links: &Chain, s: &[f64], r: &[f64], w: &[f64]) -> Vec<f64> {
        let d = w.len() / 3;
        let mut out = vec![0.0; r.len()];
        for i in 0..r.len() / d {
            let from = &links.from[i];
            for (&j, c) in from.iter().flat_map(|j| (0..d).map(move |c| (j, c))) {
                let (to, at) = (links.places[i], links.sender_position(j as usize));
                let place: f64 = (0..3)
                    .map(|axis| {
                        (f64::from(at[axis]) - f64::from(to[axis])) / 0.05 * w[axis * d + c]
                    })
                    .sum();
                let message = s[j as usize * d + c] + r[i * d + c] + place;
                out[i * d + c] += message.max(0.0) / from.len() as f64;
            }
        }
        out
    }

    #[test]
    fn message_passing_and_its_gradients() {
        let (n_receivers, n_senders, d) = (13, 17, 9);
        let links = Chain::new(n_receivers, n_senders);
        let (s, r) = (numbers(n_senders * d, 1), numbers(n_receivers * d, 2));
        let (w, d_out) = (numbers(3 * d, 3), numbers(n_receivers * d, 4));
        let (s64, r64, w64) = (f64s(&s), f64s(&r), f64s(&w));
        let chunks = [0..6, 6..n_receivers];

        let mut out = vec![0.0; n_receivers * d];
        for rows in chunks.clone() {
            let out = &mut out[rows.start * d..rows.end * d];
            message_passing_forward(rows, &links, &s, &r, &w, out);
        }
        assert_close(&out, &plain(&links, &s64, &r64, &w64), 1e-5);

        let (mut dr, mut dw) = (vec![0.0; r.len()], vec![0.0; w.len()]);
        let mut scratch = vec![0.0; d];
        for rows in chunks {
            let narrow = rows.start * d..rows.end * d;
            let (d_out, dr) = (&d_out[narrow.clone()], &mut dr[narrow]);
            message_passing_backward_receiver(
                rows,
                &links,
                &s,
                &r,
                &w,
                d_out,
                dr,
                &mut dw,
                &mut scratch,
            );
        }
        let mut ds = vec![0.0; s.len()];
        for rows in [0..5, 5..n_senders] {
            let ds = &mut ds[rows.start * d..rows.end * d];
            message_passing_backward_sender(rows, &links, &s, &r, &w, &d_out, ds);
        }
        assert_gradient(&ds, &s, &d_out, |s| plain(&links, s, &r64, &w64));
        assert_gradient(&dr, &r, &d_out, |r| plain(&links, &s64, r, &w64));
        assert_gradient(&dw, &w, &d_out, |w| plain(&links, &s64, &r64, w));
    }
}
