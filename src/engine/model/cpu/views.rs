//! Buffers as the chunks of a phase share them.

use std::ops::Range;

use super::buffers::{MixerBuffers, MlpBuffers, mlp_rows};
use crate::engine::model::InterlacerConfig;
use crate::engine::ops::layer_norm::Saved;
use crate::engine::ops::rows::SharedRows;

/// What a LayerNorm keeps for the backward pass; empty in inference.
pub(super) struct NormView<'a> {
    normalized: SharedRows<'a>,
    inverse_deviation: SharedRows<'a>,
    keep: bool,
}

impl<'a> NormView<'a> {
    pub(super) fn new(
        normalized: &'a mut [f32],
        inverse_deviation: &'a mut [f32],
        d: usize,
    ) -> Self {
        let keep = !normalized.is_empty();
        Self {
            normalized: SharedRows::new(normalized, d),
            inverse_deviation: SharedRows::new(inverse_deviation, 1),
            keep,
        }
    }

    /// # Safety
    /// As [`SharedRows::rows_mut`].
    pub(super) unsafe fn saved(&self, rows: &Range<usize>) -> Option<Saved<'a>> {
        // SAFETY: the caller's.
        self.keep.then(|| unsafe {
            Saved {
                normalized: self.normalized.rows_mut(rows.clone()),
                inverse_deviation: self.inverse_deviation.rows_mut(rows.clone()),
            }
        })
    }
}

/// One mixer's buffers.
pub(super) struct MixerView<'a> {
    /// Whether activations are kept for the backward pass.
    pub keep: bool,
    norm: NormView<'a>,
    pub qkv: SharedRows<'a>,
    /// Empty where the feature map needs none.
    unmapped: SharedRows<'a>,
    pub out: SharedRows<'a>,
    pub denominators: SharedRows<'a>,
    pub partial_states: SharedRows<'a>,
    /// Final when its mixer's outputs are computed.
    pub state: &'a [f32],
    /// As the state.
    pub folded: &'a [f32],
}

impl<'a> MixerView<'a> {
    /// Shares the buffers of `n` tokens, of width `d` and with rows `[q | k | v]` of `row_len` numbers.
    pub(super) fn new(
        buffers: &'a mut MixerBuffers,
        (d, row_len): (usize, usize),
        n: usize,
        keep: bool,
    ) -> Self {
        let per_token = |data: &'a mut Vec<f32>| {
            let width = data.len() / n.max(1);
            SharedRows::new(data, width)
        };
        Self {
            keep,
            norm: NormView::new(&mut buffers.normalized, &mut buffers.inverse_deviation, d),
            // Rows that are not kept may be shorter.
            qkv: SharedRows::new(&mut buffers.qkv[..n * row_len], row_len),
            unmapped: per_token(&mut buffers.unmapped),
            out: SharedRows::new(&mut buffers.out, d),
            denominators: per_token(&mut buffers.denominators),
            partial_states: SharedRows::new(&mut buffers.partial_states, buffers.state.len()),
            state: &buffers.state,
            folded: &buffers.folded,
        }
    }
}

impl<'a> MixerView<'a> {
    /// Where the LayerNorm's rows are kept, if they are.
    ///
    /// # Safety
    /// As [`SharedRows::rows_mut`].
    pub(super) unsafe fn saved(&self, rows: &Range<usize>) -> Option<Saved<'a>> {
        // SAFETY: the caller's.
        self.keep.then(|| unsafe { self.norm.saved(rows) }).flatten()
    }

    /// Where the rows before the feature map are kept, if they are.
    ///
    /// # Safety
    /// As [`SharedRows::rows_mut`].
    pub(super) unsafe fn unmapped(&self, rows: Range<usize>) -> Option<&'a mut [f32]> {
        let keep = self.keep && !self.unmapped.is_empty();
        // SAFETY: the caller's.
        keep.then(|| unsafe { self.unmapped.rows_mut(rows) })
    }
}

/// What the MLPs keep.
pub(super) struct MlpView<'a> {
    n_slots: usize,
    n_tokens: usize,
    norm: NormView<'a>,
    hidden: SharedRows<'a>,
}

impl<'a> MlpView<'a> {
    pub(super) fn new(buffers: &'a mut MlpBuffers, config: &InterlacerConfig, n: usize) -> Self {
        let d = config.width;
        Self {
            n_slots: buffers.n_slots,
            n_tokens: n,
            norm: NormView::new(&mut buffers.normalized, &mut buffers.inverse_deviation, d),
            hidden: SharedRows::new(&mut buffers.hidden, config.mlp_width()),
        }
    }

    /// Where the LayerNorm's rows are kept; none in inference.
    ///
    /// # Safety
    /// As [`SharedRows::rows_mut`].
    pub(super) unsafe fn saved(&self, block: usize, rows: &Range<usize>) -> Option<Saved<'a>> {
        let places = mlp_rows(self.n_slots, self.n_tokens, block, rows);
        // SAFETY: the caller's.
        unsafe { self.norm.saved(&places) }
    }

    /// Where the hidden rows are kept, if they are.
    ///
    /// # Safety
    /// As [`SharedRows::rows_mut`].
    pub(super) unsafe fn hidden(&self, block: usize, rows: &Range<usize>) -> Option<&'a mut [f32]> {
        let places = mlp_rows(self.n_slots, self.n_tokens, block, rows);
        // SAFETY: the caller's.
        (!self.hidden.is_empty()).then(|| unsafe { self.hidden.rows_mut(places) })
    }
}
/// What a LayerNorm of the forward pass kept, to read.
#[derive(Clone, Copy)]
pub(super) struct SavedNorm<'a> {
    pub normalized: &'a [f32],
    pub inverse_deviation: &'a [f32],
}

impl SavedNorm<'_> {
    pub(super) fn rows(self, rows: &Range<usize>, d: usize) -> Self {
        Self {
            normalized: &self.normalized[rows.start * d..rows.end * d],
            inverse_deviation: &self.inverse_deviation[rows.clone()],
        }
    }
}
