"""The Interlacer with its motion head and loss, in stock PyTorch.

Written to be fast: one matrix product for q, k and v, heads without copies, and the local
attention by sparse kernels, forward and backward, over the merged rows that Forecloud writes.

Tried for the local attention: processor time of one thread in ms at N = 4,096, d = 128.

| layer alone | forward | and backward |
| --- | --- | --- |
| index_select, index_add over all entries | 54 | 129 |
| padded rows, gathered, with bmm | 70 | 166 |
| sampled_addmm and sparse products, by autograd | 2.7 | 128 |
| the same, differentiated by hand (taken) | 2.6 | 12 |

| whole forward pass, compiled | |
| --- | --- |
| gathers left to torch.compile: padded, entries | 293, 152 |
| sparse products as an opaque operator (taken); with inductor's `freezing` | 108 to 144, 142 |
| not compiled, for comparison | 92 to 102 |
"""

from __future__ import annotations

import json
from functools import cached_property

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

# Least distance of a ReLU's input from 0, in which float32's error (some 1e-6) cannot carry it over.
KINK_MARGIN = 2e-5


class Graph:
    """Merged loads as sparse matrices by row and by column; 32-bit indices, which MKL takes."""

    def __init__(self, starts: Tensor, nodes: Tensor, loads: Tensor):
        n, n_entries = len(starts) - 1, len(nodes)
        self.starts, self.nodes, self.loads, self.n = starts, nodes, loads, n
        self.zeros = torch.zeros(n_entries, device=starts.device)
        self.ones = torch.ones(n, 1, device=starts.device)

    # What only the backward pass and the plain attention take, on first use.

    @cached_property
    def rows(self) -> Tensor:
        counting = torch.arange(self.n, dtype=torch.int32, device=self.starts.device)
        return torch.repeat_interleave(counting, self.starts.diff())

    @cached_property
    def by_column(self) -> Tensor:
        """The entries in the order of their columns: the transposed matrix."""
        return torch.argsort(self.nodes, stable=True)

    @cached_property
    def column_starts(self) -> Tensor:
        starts = torch.zeros(self.n + 1, dtype=torch.int32, device=self.starts.device)
        starts[1:] = torch.bincount(self.nodes, minlength=self.n).cumsum(0)
        return starts

    @cached_property
    def column_rows(self) -> Tensor:
        return self.rows[self.by_column].contiguous()

    def matrix(self, values: Tensor) -> Tensor:
        """[n, n] with `values` in row order."""
        size = (self.n, self.n)
        return torch.sparse_csr_tensor(self.starts, self.nodes, values, size, check_invariants=False)

    def transposed(self, values: Tensor) -> Tensor:
        """The transposed matrix; `values` in row order."""
        size, values = (self.n, self.n), values[self.by_column]
        return torch.sparse_csr_tensor(
            self.column_starts, self.column_rows, values, size, check_invariants=False
        )

    def products(self, a: Tensor, b: Tensor, added: Tensor | None = None) -> Tensor:
        """a_i · b_j (+ added) of all entries (i, j)."""
        pattern = self.matrix(self.zeros if added is None else added)
        beta = 0.0 if added is None else 1.0
        return torch.sparse.sampled_addmm(pattern, a, b.t(), beta=beta).values()


def grf_forward(graph: Graph, epsilon: float, q: Tensor, k: Tensor, v: Tensor, mask: Tensor):
    """Attention outputs [n, d], and what the backward pass needs: scores and denominators."""
    scores = graph.products(q, k)
    matrix = graph.matrix(mask * scores)
    denominators = matrix @ graph.ones + epsilon
    return matrix @ v / denominators, scores, denominators


def grf_backward(graph: Graph, d_out, q, k, v, mask, scores, denominators, out):
    """Gradients of q, k, v and mask."""
    d_out = d_out / denominators
    d_total = -torch.linalg.vecdot(d_out, out)
    d_weights = graph.products(d_out, v, d_total[graph.rows])
    d_scores = d_weights * mask
    d_q = graph.matrix(d_scores) @ k
    d_k = graph.transposed(d_scores) @ q
    d_v = graph.transposed(mask * scores) @ d_out
    return d_q, d_k, d_v, d_weights * scores


class GrfAttention(torch.autograd.Function):
    """For eager passes. By autograd, sparse products' gradients take several times as long."""

    @staticmethod
    def forward(ctx, graph, epsilon, q, k, v, mask):
        out, scores, denominators = grf_forward(graph, epsilon, q, k, v, mask)
        ctx.graph = graph
        ctx.save_for_backward(q, k, v, mask, scores, denominators, out)
        return out

    @staticmethod
    def backward(ctx, d_out):
        return None, None, *grf_backward(ctx.graph, d_out, *ctx.saved_tensors)


def opaque_attention(graph: Graph, epsilon: float):
    """The same as an operator that torch.compile leaves as it is: it can't compile sparse ones."""

    @torch.library.custom_op("forecloud::grf", mutates_args=())
    def grf(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return grf_forward(graph, epsilon, q, k, v, mask)

    @grf.register_fake
    def _(q, k, v, mask):
        return q.new_empty(q.shape), torch.empty_like(mask), q.new_empty(len(q), 1)

    @torch.library.custom_op("forecloud::grf_backward", mutates_args=())
    def backward(
        d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scores: Tensor,
        denominators: Tensor, out: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return grf_backward(graph, d_out, q, k, v, mask, scores, denominators, out)

    @backward.register_fake
    def _(d_out, q, k, v, mask, scores, denominators, out):
        dense = [q.new_empty(q.shape) for _ in range(3)]
        return (*dense, torch.empty_like(mask))

    def setup(ctx, inputs, output):
        out, scores, denominators = output
        ctx.save_for_backward(*inputs, scores, denominators, out)

    def differentiate(ctx, d_out, d_scores, d_denominators):
        return backward(d_out.contiguous(), *ctx.saved_tensors)

    grf.register_autograd(differentiate, setup_context=setup)
    return lambda q, k, v, mask: grf(q, k, v, mask)[0]


def plain_attention(graph: Graph, epsilon: float, q, k, v, mask):
    """What one writes first, left to autograd: keys and values gathered for every entry."""
    rows, nodes = graph.rows, graph.nodes
    weights = mask * (q.index_select(0, rows) * k.index_select(0, nodes)).sum(1)
    values = weights[:, None] * v.index_select(0, nodes)
    sums = torch.zeros_like(q).index_add(0, rows, values)
    return sums / (torch.zeros(graph.n).index_add(0, rows, weights) + epsilon)[:, None]


class Dense(nn.Module):
    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_out))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


class Attention(nn.Module):
    def __init__(self, d: int, epsilon: float, norm_epsilon: float):
        super().__init__()
        self.d, self.epsilon = d, epsilon
        self.norm = nn.LayerNorm(d, norm_epsilon)
        self.qkv, self.out = Dense(d, 3 * d), Dense(d, d)

    def rows(self, x):
        qkv = self.qkv(self.norm(x))
        if torch.is_grad_enabled():
            return *F.relu(qkv[:, : 2 * self.d]).split(self.d, 1), qkv[:, 2 * self.d :]
        qkv[:, : 2 * self.d].relu_()
        return qkv.split(self.d, 1)


class GlobalAttention(Attention):
    def __init__(self, d, n_heads, epsilon, norm_epsilon):
        super().__init__(d, epsilon, norm_epsilon)
        self.n_heads = n_heads

    def forward(self, x):
        n = len(x)
        q, k, v = (part.unflatten(1, (self.n_heads, -1)).transpose(0, 1) for part in self.rows(x))
        state = torch.bmm(k.transpose(1, 2), v)
        denominators = torch.bmm(q, k.sum(1)[:, :, None]) + self.epsilon
        heads = torch.bmm(q, state) / denominators
        return x + self.out(heads.transpose(0, 1).reshape(n, self.d))


class LocalAttention(Attention):
    def __init__(self, d, n_hops, epsilon, norm_epsilon):
        super().__init__(d, epsilon, norm_epsilon)
        self.hop_logits = nn.Parameter(torch.empty(n_hops + 1))
        self.attend = self.loads = None

    def forward(self, x):
        mask = self.loads @ F.softplus(self.hop_logits)
        return x + self.out(self.attend(*self.rows(x), mask))


class Mlp(nn.Module):
    def __init__(self, d, norm_epsilon):
        super().__init__()
        self.norm = nn.LayerNorm(d, norm_epsilon)
        self.up, self.down = Dense(d, 4 * d), Dense(4 * d, d)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu_())


class Interlacer(nn.Module):
    def __init__(self, settings: dict):
        super().__init__()
        config, norm_epsilon = settings["interlacer"], settings["layer_norm_epsilon"]
        d, epsilon = config["width"], settings["attention_epsilon"]
        self.embed = Dense(config["n_features"], d)
        layers = lambda: {
            "global": GlobalAttention(d, config["n_heads"], epsilon, norm_epsilon),
            "local": LocalAttention(d, config["n_hops"], epsilon, norm_epsilon),
            "mlp": Mlp(d, norm_epsilon),
        }
        self.blocks = nn.ModuleList(nn.ModuleDict(layers()) for _ in range(config["n_blocks"]))
        self.head = Dense(d, config["n_outputs"])
        self.head.norm = nn.LayerNorm(d, norm_epsilon)

    def forward(self, features):
        x = self.embed(features)
        for block in self.blocks:
            for layer in block.values():
                x = layer(x)
        return self.head(self.head.norm(x))


def keep_apart(z: Tensor, margin: float) -> Tensor:
    """Shifts [c] of the columns of `z` [n, c], small ones, that bring no number within `margin` of 0."""
    shifts = torch.zeros(z.shape[1], dtype=z.dtype)
    for c in (z.abs() < margin).any(0).nonzero().flatten().tolist():
        column = z[:, c].sort().values
        gaps, middles = column.diff(), (column[1:] + column[:-1]) / 2
        wide = middles[gaps > 2.5 * margin]
        shifts[c] = -wide[wide.abs().argmin()]
    return shifts


class Problem:
    """Model, inputs and loss of a file that Forecloud's peer wrote."""

    def __init__(self, path: str, mode: str, device: str = "cpu", dtype: torch.dtype = torch.float32):
        with safe_open(path, "pt", device=device) as file:
            self.settings = json.loads(file.metadata()["settings"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        tensors.pop("expected", None)
        if mode == "exact":  # what all others are held against: the eager model in float64
            mode = "eager"
            torch.set_default_dtype(torch.float64)
            tensors = {name: x.double() if x.is_floating_point() else x for name, x in tensors.items()}
        take = tensors.pop
        self.features, self.candidates, self.targets = map(take, ("features", "candidates", "targets"))
        self.point_weights = take("point_weights")
        self.total_weight = self.point_weights.sum()
        take("positions")
        graph = Graph(take("loads.starts"), take("loads.nodes"), take("loads.values"))
        epsilon = self.settings["attention_epsilon"]
        self.model, self.initial = Interlacer(self.settings).to(device), tensors
        attend = {
            "eager": lambda: lambda *qkvm: GrfAttention.apply(graph, epsilon, *qkvm),
            "compiled": lambda: opaque_attention(graph, epsilon),
            "plain": lambda: lambda *qkvm: plain_attention(graph, epsilon, *qkvm),
        }[mode]()
        if dtype != torch.float32:
            # Sparse products are those of f32.
            in_f32, self.features = attend, self.features.to(dtype)
            attend = lambda q, k, v, mask: in_f32(q.float(), k.float(), v.float(), mask.float()).to(dtype)
            self.model.to(dtype)
            graph.loads = graph.loads.to(dtype)
        for block in self.model.blocks:
            local = block["local"]
            local.loads = graph.loads
            local.attend = attend
        self.reset()

    def reset(self):
        """The weights as read, and a fresh optimiser."""
        self.model.load_state_dict(self.initial, strict=True)
        adamw = self.settings["adamw"]
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=self.settings["learning_rate"],
            betas=(adamw["beta1"], adamw["beta2"]),
            eps=adamw["epsilon"],
            weight_decay=adamw["weight_decay"],
            fused=True,
        )

    def keep_kinks_apart(self, path: str):
        """Moves biases a little, here and in the file, so that no ReLU's input is as near to 0 as
        float32 rounds: there one side's gradient may pass and the other's not, and both be right.
        """

        def hook(layer, _, z):
            n_relu = z.shape[1] * 2 // 3 if layer in attentions else z.shape[1]
            old = layer.bias.data[:n_relu].clone()
            layer.bias.data[:n_relu] = (old + keep_apart(z[:, :n_relu], KINK_MARGIN)).float()
            z[:, :n_relu] += layer.bias.data[:n_relu] - old
            return z

        attentions = [block[name].qkv for block in self.model.blocks for name in ("global", "local")]
        layers = attentions + [block["mlp"].up for block in self.model.blocks]
        hooks = [layer.register_forward_hook(hook) for layer in layers]
        with torch.inference_mode():
            self.model(self.features)
        for each in hooks:
            each.remove()
        self.initial = {name: x.clone() for name, x in self.model.state_dict().items()}
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        tensors.update({name: x.float().contiguous() for name, x in self.initial.items()})
        save_file(tensors, path, metadata)

    def loss(self):
        """Weighted Charbonnier distance of the motion head's displacements to the targets (m)."""
        outputs, n = self.model(self.features), self.candidates.shape[1]
        y = outputs.view(len(self.candidates), -1)  # of each point in each step of the pass
        shares = torch.softmax(y[:, :n], 1)
        moved = torch.linalg.vecdot(shares[:, :, None], self.candidates, dim=1)
        moved = moved + self.settings["max_residual_m"] * torch.tanh(y[:, n : n + 3])
        delta = self.settings["charbonnier_delta_m"]
        root = torch.sqrt((moved - self.targets).square().sum(1) + delta**2)
        return (self.point_weights * (root - delta)).sum() / self.total_weight, outputs
