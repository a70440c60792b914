//! Buffers as the chunks of a phase share them.

use std::ops::Range;

use super::{MixerBuffers, MlpBuffers};
use crate::ops::layer_norm::Saved;
use crate::ops::rows::SharedRows;

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
    pub norm: NormView<'a>,
    pub qkv: SharedRows<'a>,
    /// Empty where nothing is kept.
    pub unmapped: SharedRows<'a>,
    pub keeps_input: bool,
    pub senders: SharedRows<'a>,
    pub receivers: SharedRows<'a>,
    pub out: SharedRows<'a>,
    pub denominators: SharedRows<'a>,
    pub partial_states: SharedRows<'a>,
    /// Final when its mixer's outputs are computed.
    pub state: &'a [f32],
}

impl<'a> MixerView<'a> {
    /// Shares the buffers of `n` tokens.
    pub(super) fn new(buffers: &'a mut MixerBuffers, n: usize, d: usize) -> Self {
        let per_token = |data: &'a mut Vec<f32>| {
            let width = data.len() / n.max(1);
            SharedRows::new(data, width)
        };
        Self {
            norm: NormView::new(&mut buffers.normalized, &mut buffers.inverse_deviation, d),
            qkv: per_token(&mut buffers.qkv),
            keeps_input: !buffers.unmapped.is_empty(),
            unmapped: per_token(&mut buffers.unmapped),
            senders: SharedRows::new(&mut buffers.senders, d),
            receivers: SharedRows::new(&mut buffers.receivers, d),
            out: SharedRows::new(&mut buffers.out, d),
            denominators: per_token(&mut buffers.denominators),
            partial_states: SharedRows::new(&mut buffers.partial_states, buffers.state.len()),
            state: &buffers.state,
        }
    }
}

/// What the MLPs keep: row `block · n + token`.
pub(super) struct MlpView<'a> {
    pub norm: NormView<'a>,
    pub hidden: SharedRows<'a>,
}

impl<'a> MlpView<'a> {
    pub(super) fn new(buffers: &'a mut MlpBuffers, d: usize, hidden_width: usize) -> Self {
        Self {
            norm: NormView::new(&mut buffers.normalized, &mut buffers.inverse_deviation, d),
            hidden: SharedRows::new(&mut buffers.hidden, hidden_width),
        }
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
