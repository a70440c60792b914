//! Message passing in the engine: to the anchors from their neighbours, to the rest from their
//! nearest anchor. Rows of senders and of receivers lie densely, so that no work is done for others.

use std::ops::Range;

use super::forward::{self, normalize};
use super::slots::Slot;
use super::views::MixerView;
use super::{MixerBuffers, backward};
use crate::base::geometry::Vec3;
use crate::base::scratch::with_scratch;
use crate::base::simd::vectorize;
use crate::engine::graph::{Anchors, KnnGraph};
use crate::engine::model::interlacer::{Messages, Receivers};
use crate::engine::ops::layer_norm::{layer_norm_backward, layer_norm_output};
use crate::engine::ops::linear::{
    Mat, linear_backward_input, linear_backward_weights, linear_forward, matmul,
};
use crate::engine::ops::message_passing::{
    Links, TransposedLinks, message_passing_backward_receiver, message_passing_backward_sender,
    message_passing_forward,
};

/// Which tokens send and which receive.
trait Roles: TransposedLinks {
    fn senders_in(&self, tokens: &Range<usize>) -> Range<usize>;
    fn sender_token(&self, j: usize) -> usize;
    fn receivers_in(&self, tokens: &Range<usize>) -> Range<usize>;
    fn receiver_token(&self, i: usize) -> usize;
}

/// Every token sends, anchors receive.
struct ToAnchors<'a> {
    knn: &'a KnnGraph,
    anchors: &'a Anchors,
}

/// Anchors send, the rest receives.
struct ToRest<'a>(&'a Anchors);

impl Links for ToAnchors<'_> {
    #[inline(always)]
    fn senders(&self, i: usize) -> &[u32] {
        self.knn.neighbors(self.anchors.anchor_node(i))
    }
    #[inline(always)]
    fn receiver_position(&self, i: usize) -> Vec3 {
        self.anchors.anchor_position(i)
    }
    #[inline(always)]
    fn sender_position(&self, j: usize) -> Vec3 {
        self.anchors.position(j)
    }
}

impl TransposedLinks for ToAnchors<'_> {
    #[inline(always)]
    fn receivers(&self, j: usize) -> &[u32] {
        self.anchors.anchors_that_hear(j)
    }
}

impl Roles for ToAnchors<'_> {
    fn senders_in(&self, tokens: &Range<usize>) -> Range<usize> {
        tokens.clone()
    }
    fn sender_token(&self, j: usize) -> usize {
        j
    }
    fn receivers_in(&self, tokens: &Range<usize>) -> Range<usize> {
        self.anchors.anchors_in(tokens)
    }
    fn receiver_token(&self, i: usize) -> usize {
        self.anchors.anchor_node(i)
    }
}

impl Links for ToRest<'_> {
    #[inline(always)]
    fn senders(&self, i: usize) -> &[u32] {
        self.0.nearest(i)
    }
    #[inline(always)]
    fn receiver_position(&self, i: usize) -> Vec3 {
        self.0.rest_position(i)
    }
    #[inline(always)]
    fn sender_position(&self, j: usize) -> Vec3 {
        self.0.anchor_position(j)
    }
}

impl TransposedLinks for ToRest<'_> {
    #[inline(always)]
    fn receivers(&self, j: usize) -> &[u32] {
        self.0.rest_that_hears(j)
    }
}

impl Roles for ToRest<'_> {
    fn senders_in(&self, tokens: &Range<usize>) -> Range<usize> {
        self.0.anchors_in(tokens)
    }
    fn sender_token(&self, j: usize) -> usize {
        self.0.anchor_node(j)
    }
    fn receivers_in(&self, tokens: &Range<usize>) -> Range<usize> {
        self.0.rest_in(tokens)
    }
    fn receiver_token(&self, i: usize) -> usize {
        self.0.rest_node(i)
    }
}

/// Evaluates `$body` with `$roles` the step's.
macro_rules! with_roles {
    ($graph:expr, $to:expr, |$roles:ident| $body:expr) => {
        match $to {
            Receivers::Anchors => {
                let $roles = ToAnchors { knn: &$graph.knn, anchors: &$graph.anchors };
                $body
            }
            Receivers::Rest => {
                let $roles = ToRest(&$graph.anchors);
                $body
            }
        }
    };
}

/// Rows of `tokens` (ascending, of those in `chunk`) of `u`, densely: `u` itself if it is all.
fn pick<'a>(
    u: &'a [f32],
    d: usize,
    chunk: &Range<usize>,
    tokens: impl ExactSizeIterator<Item = usize>,
    picked: &'a mut [f32],
) -> &'a [f32] {
    let n = tokens.len();
    if n == chunk.len() {
        return u;
    }
    for (row, token) in picked.chunks_exact_mut(d).zip(tokens) {
        let at = token - chunk.start;
        row.copy_from_slice(&u[at * d..(at + 1) * d]);
    }
    &picked[..n * d]
}

/// Adds dense `rows` to those of `tokens` in `x`, the rows of `chunk`.
fn add_at(
    rows: &[f32],
    d: usize,
    chunk: &Range<usize>,
    tokens: impl Iterator<Item = usize>,
    x: &mut [f32],
) {
    for (row, token) in rows.chunks_exact(d).zip(tokens) {
        let at = token - chunk.start;
        x[at * d..(at + 1) * d].iter_mut().zip(row).for_each(|(x, y)| *x += y);
    }
}

impl forward::Pass<'_> {
    /// What a chunk's senders tell and its receivers add.
    pub(super) fn prepare_messages(
        &self,
        tensors: &Messages,
        to: Receivers,
        view: &MixerView<'_>,
        rows: Range<usize>,
        x: &[f32],
    ) {
        with_roles!(self.graph, to, |roles| self.prepare_roles(tensors, &roles, view, rows, x));
    }

    fn prepare_roles(
        &self,
        tensors: &Messages,
        roles: &impl Roles,
        view: &MixerView<'_>,
        rows: Range<usize>,
        x: &[f32],
    ) {
        let (weights, d) = (self.weights, self.layout.config.width);
        let (senders, receivers) = (roles.senders_in(&rows), roles.receivers_in(&rows));
        // SAFETY: each task has rows of its own, and so senders and receivers of its own.
        let (s, r, saved) = unsafe {
            (
                view.senders.rows_mut(senders.clone()),
                view.receivers.rows_mut(receivers.clone()),
                view.saved(&rows),
            )
        };
        with_scratch(2 * x.len(), |scratch| {
            let (u, picked) = scratch.split_at_mut(x.len());
            normalize(weights, tensors.norm, x, u, saved);
            let sending = pick(u, d, &rows, senders.map(|j| roles.sender_token(j)), picked);
            let weight = Mat::new(tensors.senders.of(weights), d);
            matmul(s, d, Mat::new(sending, d), weight, false);
            let hearing = pick(u, d, &rows, receivers.map(|i| roles.receiver_token(i)), picked);
            let to = tensors.receivers;
            linear_forward(hearing, to.weight.of(weights), to.bias.of(weights), r);
        });
    }

    /// x += out(mean message), at a chunk's receivers.
    pub(super) fn hear_messages(
        &self,
        tensors: &Messages,
        to: Receivers,
        view: &MixerView<'_>,
        rows: Range<usize>,
        x: &mut [f32],
    ) {
        with_roles!(self.graph, to, |roles| self.hear_roles(tensors, &roles, view, rows, x));
    }

    fn hear_roles(
        &self,
        tensors: &Messages,
        roles: &impl Roles,
        view: &MixerView<'_>,
        rows: Range<usize>,
        x: &mut [f32],
    ) {
        let (weights, d) = (self.weights, self.layout.config.width);
        let receivers = roles.receivers_in(&rows);
        // SAFETY: each task has receivers of its own; nobody writes what is sent in this phase.
        let (out, s, r) = unsafe {
            (view.out.rows_mut(receivers.clone()), view.senders.all(), view.receivers.all())
        };
        let positions = tensors.positions.of(weights);
        vectorize(|| {
            message_passing_forward(receivers.clone(), roles, s, r, positions, out);
        });
        with_scratch(out.len(), |y| {
            linear_forward(out, tensors.out.weight.of(weights), tensors.out.bias.of(weights), y);
            add_at(y, d, &rows, receivers.map(|i| roles.receiver_token(i)), x);
        });
    }
}

impl backward::Pass<'_> {
    /// The gradient of what receivers add, and what the senders' pass needs.
    pub(super) fn message_receivers(
        &self,
        tensors: &Messages,
        to: Receivers,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        with_roles!(self.graph, to, |roles| {
            self.roles_receivers(tensors, &roles, saved, slot, rows, gradient)
        });
    }

    fn roles_receivers(
        &self,
        tensors: &Messages,
        roles: &impl Roles,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let d = self.layout.config.width;
        let receivers = roles.receivers_in(&rows);
        // SAFETY: each task has rows of its own, and so receivers of its own.
        let (dx, d_out, d_receivers) = unsafe {
            (
                self.dx.rows(rows.clone()),
                slot.d_out.rows_mut(receivers.clone()),
                slot.d_receivers.rows_mut(receivers.clone()),
            )
        };
        let out = &saved.out[receivers.start * d..receivers.end * d];
        with_scratch(dx.len() + d, |scratch| {
            let (picked, scratch) = scratch.split_at_mut(dx.len());
            let tokens = receivers.clone().map(|i| roles.receiver_token(i));
            let dy = pick(dx, d, &rows, tokens, picked);
            self.project_back(tensors.out, out, dy, d_out, gradient);
            let (s, r) = (&saved.senders[..], &saved.receivers[..]);
            let positions = tensors.positions.of(self.weights);
            let d_positions = tensors.positions.of_mut(gradient);
            vectorize(|| {
                message_passing_backward_receiver(
                    receivers,
                    roles,
                    s,
                    r,
                    positions,
                    d_out,
                    d_receivers,
                    d_positions,
                    scratch,
                )
            });
        });
    }

    /// The gradient of what senders tell, and that of both on to dx.
    pub(super) fn message_senders(
        &self,
        tensors: &Messages,
        to: Receivers,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        with_roles!(self.graph, to, |roles| {
            self.roles_senders(tensors, &roles, saved, slot, rows, gradient)
        });
    }

    fn roles_senders(
        &self,
        tensors: &Messages,
        roles: &impl Roles,
        saved: &MixerBuffers,
        slot: &Slot<'_>,
        rows: Range<usize>,
        gradient: &mut [f32],
    ) {
        let (weights, d) = (self.weights, self.layout.config.width);
        let (senders, receivers) = (roles.senders_in(&rows), roles.receivers_in(&rows));
        // SAFETY: nobody writes the messages' gradients in this phase; each task has rows of its own.
        let (dx, d_out, d_r) = unsafe {
            (
                self.dx.rows_mut(rows.clone()),
                slot.d_out.all(),
                slot.d_receivers.rows(receivers.clone()),
            )
        };
        let norm = saved.norm().rows(&rows, d);
        let norm_weight = tensors.norm.weight.of(weights);
        with_scratch(4 * dx.len(), |scratch| {
            let (u, rest) = scratch.split_at_mut(dx.len());
            let (du, rest) = rest.split_at_mut(dx.len());
            let (picked, d_s) = rest.split_at_mut(dx.len());
            let d_s = &mut d_s[..senders.len() * d];
            let positions = tensors.positions.of(weights);
            vectorize(|| {
                layer_norm_output(norm.normalized, norm_weight, tensors.norm.bias.of(weights), u);
                let (s, r) = (&saved.senders[..], &saved.receivers[..]);
                let senders = senders.clone();
                message_passing_backward_sender(senders, roles, s, r, positions, d_out, d_s);
            });
            let sending = || senders.clone().map(|j| roles.sender_token(j));
            let hearing = || receivers.clone().map(|i| roles.receiver_token(i));

            let input = Mat::new(pick(u, d, &rows, sending(), picked), d);
            let d_weight = tensors.senders.of_mut(gradient);
            matmul(d_weight, d, input.t(), Mat::new(d_s, d), true);
            let input = pick(u, d, &rows, hearing(), picked);
            let (dw, db) = tensors.receivers.weight.pair_mut(tensors.receivers.bias, gradient);
            linear_backward_weights(input, d_r, dw, db);

            du.fill(0.0);
            let part = &mut picked[..d_s.len()];
            linear_backward_input(d_s, tensors.senders.of(weights), d, part);
            add_at(part, d, &rows, sending(), du);
            let part = &mut picked[..d_r.len()];
            linear_backward_input(d_r, tensors.receivers.weight.of(weights), d, part);
            add_at(part, d, &rows, hearing(), du);
            let (dw, db) = tensors.norm.weight.pair_mut(tensors.norm.bias, gradient);
            let (x_hat, rstd) = (norm.normalized, norm.inverse_deviation);
            layer_norm_backward(du, x_hat, rstd, norm_weight, dx, dw, db);
        });
    }
}
