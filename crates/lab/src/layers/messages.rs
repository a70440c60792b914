//! Message passing: to the anchors from their neighbours, to the rest from their nearest anchor. Rows of
//! senders and of receivers lie densely, so that no work is done for others.

use std::ops::Range;
use std::sync::Arc;

use super::super::ops::message_passing::{
    Links, TransposedLinks, message_passing_backward_receiver, message_passing_backward_sender,
    message_passing_forward,
};
use super::Anchors;
use forecloud::Result;
use forecloud::base::geometry::Vec3;
use forecloud::base::scratch::with_scratch;
use forecloud::base::simd::vectorize;
use forecloud::engine::graph::KnnGraph;
use forecloud::engine::model::interlacer::{Affine, InterlacerConfig, Span, TensorTable};
use forecloud::engine::ops::layer_norm::{
    Saved, layer_norm_backward, layer_norm_forward, layer_norm_output,
};
use forecloud::engine::ops::linear::{
    Mat, linear_backward_input, linear_backward_weights, linear_forward, matmul,
};
use forecloud::engine::ops::rows::SharedRows;
use forecloud::engine::registry::{
    Gradients, Layer, LayerPass, LayerSpec, MixerBuffers, Place, Reads, StepData, StepTokens,
    chunks,
};

/// How it is made.
#[derive(Debug)]
pub(super) struct Spec;

impl LayerSpec for Spec {
    fn name(&self) -> &'static str {
        "message_passing"
    }

    fn place(&self) -> Place {
        Place::Local
    }

    fn reads(&self) -> Reads {
        Reads { anchor_stride: true, ..Reads::NOTHING }
    }

    fn layers(
        &self,
        name: &str,
        table: &mut TensorTable,
        config: &InterlacerConfig,
    ) -> Vec<Arc<dyn Layer>> {
        let steps = [("anchors", Receivers::Anchors), ("rest", Receivers::Rest)];
        let layer = |(step, to)| -> Arc<dyn Layer> {
            Arc::new(Messages::new(&format!("{name}.{step}"), table, config.width, to))
        };
        steps.map(layer).into()
    }

    fn step_data(&self) -> Option<Box<dyn StepData>> {
        Some(Box::<OfStep>::default())
    }
}

/// A step's anchors.
#[derive(Debug, Default)]
struct OfStep(Anchors);

impl StepData for OfStep {
    fn n_nodes(&self) -> usize {
        self.0.len()
    }

    fn rebuild(&mut self, tokens: &StepTokens<'_>) -> Result<()> {
        self.0.rebuild(tokens.positions, tokens.config.layers.anchor_stride)?;
        if tokens.training {
            self.0.transpose(tokens.knn);
        }
        Ok(())
    }
}

/// The two steps, which are two layers: the second reads what the first wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receivers {
    /// Each anchor hears its k neighbours.
    Anchors,
    /// Every other token hears its nearest anchor.
    Rest,
}

/// One of the two steps, with its tensors.
#[derive(Debug)]
struct Messages {
    to: Receivers,
    /// LayerNorm before it.
    norm: Affine,
    /// W_s: what senders tell, `[d, d]`.
    senders: Span,
    /// W_r and b: what receivers add, `[d, d]`.
    receivers: Affine,
    /// W_p: what their relative place adds, `[3, d]`.
    positions: Span,
    /// Projection back, `[d, d]`.
    out: Affine,
}

/// What senders and receivers bring into their messages, a row for each of either.
#[derive(Debug, Default)]
struct Brought {
    senders: Vec<f32>,
    receivers: Vec<f32>,
}

/// Which tokens send and which receive.
trait Roles: TransposedLinks {
    /// Senders and receivers of `n` tokens.
    fn counts(&self, n: usize) -> [usize; 2] {
        [self.senders_in(&(0..n)).len(), self.receivers_in(&(0..n)).len()]
    }
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

/// Evaluates `$body` with `$roles` the step's; nothing without anchors, which the pass was held to have.
macro_rules! with_roles {
    ($pass:expr, $to:expr, |$roles:ident| $body:expr) => {
        match ($pass.graph.data::<OfStep>(), $to) {
            (Some(OfStep(anchors)), Receivers::Anchors) => {
                let $roles = ToAnchors { knn: &$pass.graph.knn, anchors };
                $body
            }
            (Some(OfStep(anchors)), Receivers::Rest) => {
                let $roles = ToRest(anchors);
                $body
            }
            (None, _) => {}
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

impl Messages {
    fn new(name: &str, table: &mut TensorTable, d: usize, to: Receivers) -> Self {
        Self {
            to,
            norm: table.norm(&format!("{name}.norm"), d),
            senders: table.tensor(format!("{name}.senders.weight"), vec![d, d]),
            receivers: table.dense(&format!("{name}.receivers"), d, d),
            positions: table.tensor(format!("{name}.positions.weight"), vec![3, d]),
            out: table.dense(&format!("{name}.out"), d, d),
        }
    }

    /// What senders tell and receivers add.
    fn bring(
        &self,
        pass: &LayerPass<'_>,
        roles: &impl Roles,
        kept: &mut MixerBuffers,
        brought: &mut Brought,
        x: &[f32],
    ) {
        let (weights, d) = (pass.weights, pass.config.width);
        let n = x.len() / d;
        let counts = roles.counts(n);
        brought.senders.resize(counts[0] * d, 0.0);
        brought.receivers.resize(counts[1] * d, 0.0);
        let saves = !kept.normalized.is_empty();
        let normalized = SharedRows::new(&mut kept.normalized, d);
        let inverse_deviation = SharedRows::new(&mut kept.inverse_deviation, 1);
        let all_s = SharedRows::new(&mut brought.senders, d);
        let all_r = SharedRows::new(&mut brought.receivers, d);
        let (norm_w, norm_b) = (self.norm.weight.of(weights), self.norm.bias.of(weights));
        chunks(n, |rows| {
            let (senders, receivers) = (roles.senders_in(&rows), roles.receivers_in(&rows));
            // SAFETY: each task has rows of its own, and so senders and receivers of its own.
            let (s, r, saved) = unsafe {
                let saved = saves.then(|| Saved {
                    normalized: normalized.rows_mut(rows.clone()),
                    inverse_deviation: inverse_deviation.rows_mut(rows.clone()),
                });
                (all_s.rows_mut(senders.clone()), all_r.rows_mut(receivers.clone()), saved)
            };
            let x = &x[rows.start * d..rows.end * d];
            with_scratch(2 * x.len(), |scratch| {
                let (u, picked) = scratch.split_at_mut(x.len());
                layer_norm_forward(x, norm_w, norm_b, u, saved);
                let sending = pick(u, d, &rows, senders.map(|j| roles.sender_token(j)), picked);
                let weight = Mat::new(self.senders.of(weights), d);
                matmul(s, d, Mat::new(sending, d), weight, false);
                let hearing = pick(u, d, &rows, receivers.map(|i| roles.receiver_token(i)), picked);
                let to = self.receivers;
                linear_forward(hearing, to.weight.of(weights), to.bias.of(weights), r);
            });
        });
    }

    /// x += out(mean message), at the receivers.
    fn hear(
        &self,
        pass: &LayerPass<'_>,
        roles: &impl Roles,
        brought: &Brought,
        out: &mut Vec<f32>,
        x: &mut [f32],
    ) {
        let (weights, d) = (pass.weights, pass.config.width);
        let positions = self.positions.of(weights);
        out.resize(brought.receivers.len(), 0.0);
        let n = x.len() / d;
        let (all_out, x) = (SharedRows::new(out, d), SharedRows::new(x, d));
        chunks(n, |rows| {
            let receivers = roles.receivers_in(&rows);
            // SAFETY: each task has rows of its own, and so receivers of its own.
            let (out, x) =
                unsafe { (all_out.rows_mut(receivers.clone()), x.rows_mut(rows.clone())) };
            let (s, r) = (&brought.senders, &brought.receivers);
            vectorize(|| {
                message_passing_forward(receivers.clone(), roles, s, r, positions, out);
            });
            with_scratch(out.len(), |y| {
                linear_forward(out, self.out.weight.of(weights), self.out.bias.of(weights), y);
                add_at(y, d, &rows, receivers.map(|i| roles.receiver_token(i)), x);
            });
        });
    }

    /// The gradient of what receivers add, and what the senders' pass needs.
    fn backward_receivers(
        &self,
        pass: &LayerPass<'_>,
        roles: &impl Roles,
        (brought, out): (&Brought, &[f32]),
        [d_out, d_receivers]: [&mut [f32]; 2],
        dx: &[f32],
        gradients: &mut Gradients,
    ) {
        let d = pass.config.width;
        let positions = self.positions.of(pass.weights);
        let (d_out, d_receivers) = (SharedRows::new(d_out, d), SharedRows::new(d_receivers, d));
        gradients.chunks(dx.len() / d, |rows, gradient| {
            let receivers = roles.receivers_in(&rows);
            // SAFETY: each task has rows of its own, and so receivers of its own.
            let (d_out, d_receivers) = unsafe {
                (d_out.rows_mut(receivers.clone()), d_receivers.rows_mut(receivers.clone()))
            };
            let dx = &dx[rows.start * d..rows.end * d];
            let out = &out[receivers.start * d..receivers.end * d];
            with_scratch(dx.len() + d, |scratch| {
                let (picked, scratch) = scratch.split_at_mut(dx.len());
                let tokens = receivers.clone().map(|i| roles.receiver_token(i));
                let dy = pick(dx, d, &rows, tokens, picked);
                pass.project_back(self.out, out, dy, d_out, gradient);
                let (s, r) = (&brought.senders, &brought.receivers);
                let d_positions = self.positions.of_mut(gradient);
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
        });
    }

    /// The gradient of what senders tell, and that of both on to dx.
    fn backward_senders(
        &self,
        pass: &LayerPass<'_>,
        roles: &impl Roles,
        (brought, kept): (&Brought, &MixerBuffers),
        [d_out, d_receivers]: [&[f32]; 2],
        dx: &mut [f32],
        gradients: &mut Gradients,
    ) {
        let (weights, d) = (pass.weights, pass.config.width);
        let positions = self.positions.of(weights);
        let (norm_w, norm_b) = (self.norm.weight.of(weights), self.norm.bias.of(weights));
        let (n, dx) = (dx.len() / d, SharedRows::new(dx, d));
        gradients.chunks(n, |rows, gradient| {
            let (senders, receivers) = (roles.senders_in(&rows), roles.receivers_in(&rows));
            // SAFETY: each task has rows of its own.
            let dx = unsafe { dx.rows_mut(rows.clone()) };
            let d_r = &d_receivers[receivers.start * d..receivers.end * d];
            let x_hat = &kept.normalized[rows.start * d..rows.end * d];
            with_scratch(4 * dx.len(), |scratch| {
                let (u, rest) = scratch.split_at_mut(dx.len());
                let (du, rest) = rest.split_at_mut(dx.len());
                let (picked, d_s) = rest.split_at_mut(dx.len());
                let d_s = &mut d_s[..senders.len() * d];
                layer_norm_output(x_hat, norm_w, norm_b, u);
                vectorize(|| {
                    let (s, r) = (&brought.senders, &brought.receivers);
                    let senders = senders.clone();
                    message_passing_backward_sender(senders, roles, s, r, positions, d_out, d_s);
                });
                let sending = || senders.clone().map(|j| roles.sender_token(j));
                let hearing = || receivers.clone().map(|i| roles.receiver_token(i));

                let input = Mat::new(pick(u, d, &rows, sending(), picked), d);
                let d_weight = self.senders.of_mut(gradient);
                matmul(d_weight, d, input.t(), Mat::new(d_s, d), true);
                let input = pick(u, d, &rows, hearing(), picked);
                let (dw, db) = self.receivers.weight.pair_mut(self.receivers.bias, gradient);
                linear_backward_weights(input, d_r, dw, db);

                du.fill(0.0);
                let part = &mut picked[..d_s.len()];
                linear_backward_input(d_s, self.senders.of(weights), d, part);
                add_at(part, d, &rows, sending(), du);
                let part = &mut picked[..d_r.len()];
                linear_backward_input(d_r, self.receivers.weight.of(weights), d, part);
                add_at(part, d, &rows, hearing(), du);
                let (dw, db) = self.norm.weight.pair_mut(self.norm.bias, gradient);
                let rstd = &kept.inverse_deviation[rows];
                layer_norm_backward(du, x_hat, rstd, norm_w, dx, dw, db);
            });
        });
    }
}

impl Layer for Messages {
    fn forward(&self, pass: &LayerPass<'_>, kept: &mut MixerBuffers, x: &mut [f32]) {
        let mut brought = kept.take_own::<Brought>();
        with_roles!(pass, self.to, |roles| {
            self.bring(pass, &roles, kept, &mut brought, x);
            self.hear(pass, &roles, &brought, &mut kept.out, x);
        });
        kept.keep_own(brought);
    }

    fn backward(
        &self,
        pass: &LayerPass<'_>,
        kept: &mut MixerBuffers,
        dx: &mut [f32],
        gradients: &mut Gradients,
    ) {
        let brought = kept.take_own::<Brought>();
        let n = brought.receivers.len();
        with_roles!(pass, self.to, |roles| with_scratch(2 * n, |scratch| {
            let (d_out, d_r) = scratch.split_at_mut(n);
            let saved = (&*brought, &*kept.out);
            self.backward_receivers(pass, &roles, saved, [d_out, d_r], dx, gradients);
            let saved = (&*brought, &*kept);
            self.backward_senders(pass, &roles, saved, [d_out, d_r], dx, gradients);
        }));
        kept.keep_own(brought);
    }

    fn flops(&self, config: &InterlacerConfig, n: f64) -> f64 {
        let (d, anchors) = (config.width as f64, n / config.layers.anchor_stride as f64);
        let (senders, receivers, links) = match self.to {
            Receivers::Anchors => (n, anchors, anchors * config.k as f64),
            Receivers::Rest => (anchors, n - anchors, n - anchors),
        };
        2.0 * d * d * (senders + 2.0 * receivers) + 9.0 * d * links
    }
}
