"""Writes the golden values that the Rust engine is tested against.

An implementation of the Interlacer, of the motion head and of the optimiser step that
shares nothing with the Rust code: dense PyTorch in float64, gradients by autograd.
Inputs and weights are rounded to float32 first, then everything is computed in float64,
so a float32 engine is compared with exact values of the very inputs it reads.

    python generate.py [FOLDER] [--only NAME]      (default: all, in the folder of this script)
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn.functional import softplus

M, N, F, D, HEADS, BLOCKS, HOPS, K, N_OUT = 37, 21, 11, 16, 4, 2, 3, 3, 7
NORM_EPS, ATTENTION_EPS = 1e-5, 1e-6
VARIANT_D, VARIANT_HEADS, FEATURES, STRIDE = 8, 2, 10, 3  # of the other layers' models
TOP_K = 5  # keys that a query of the k-MIP attention hears
PLACE_SCALE, EXPONENT_BOUND = 0.05, 32.0  # relative places in metres; cut of FAVOR+'s exponents
CANDIDATES, RESIDUAL_REACH, DELTA = 4, 0.25, 1e-3  # motion head; lengths in metres


class Source:
    """Seeded random tensors: float64 tensors whose values are exact in float32.

    Drawn with NumPy, because torch.randn gives other values on CPUs with other vector units.
    """

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def normal(self, *shape, std=1.0, mean=0.0):
        return rounded(torch.from_numpy(mean + std * self.generator.standard_normal(shape)))

    def uniform(self, *shape, low=0.0, high=1.0):
        return rounded(torch.from_numpy(low + (high - low) * self.generator.random(shape)))


def rounded(x):
    return x.float().double()


# ---------------------------------------------------------------- Interlacer


def nearest(positions):
    """Indices [M, K] of the K nearest other points, nearest first, ties to the lower index."""
    squared = (positions[:, None] - positions[None]).square().sum(-1)
    squared.fill_diagonal_(float("inf"))
    ordered, index = torch.sort(squared, dim=1, stable=True)
    gaps = ordered[:, 1 : K + 1] / ordered[:, :K]
    assert gaps.min() > 1 + 1e-4, "the neighbour order must not hang on rounding"
    return index[:, :K]


def hop_matrices(neighbours):
    """[T+1, M, M]: powers 0..T of the row-normalised directed k-NN adjacency."""
    adjacency = torch.zeros(M, M, dtype=torch.float64)
    adjacency.scatter_(1, neighbours, 1.0)
    return torch.stack([torch.linalg.matrix_power(adjacency / K, t) for t in range(HOPS + 1)])


def random_weights(source, d=D, layers=("linear", "grf")):
    weights = {}

    def linear(name, fan_in, fan_out):
        weights[f"{name}.weight"] = source.normal(fan_in, fan_out, std=fan_in**-0.5)
        weights[f"{name}.bias"] = source.normal(fan_out, std=0.2)

    def norm(name):
        weights[f"{name}.weight"] = source.normal(d, std=0.2, mean=1.0)
        weights[f"{name}.bias"] = source.normal(d, std=0.2)

    def attention(name):
        norm(f"{name}.norm")
        linear(f"{name}.qkv", d, 3 * d)
        linear(f"{name}.out", d, d)

    def messages(name):
        norm(f"{name}.norm")
        weights[f"{name}.senders.weight"] = source.normal(d, d, std=d**-0.5)
        linear(f"{name}.receivers", d, d)
        weights[f"{name}.positions.weight"] = source.normal(3, d, std=0.1)
        linear(f"{name}.out", d, d)

    linear("embed", F, d)
    for b in range(BLOCKS):
        for place, layer in zip(("global", "local"), layers):
            name = f"blocks.{b}.{place}"
            match layer:
                case "message_passing":
                    messages(f"{name}.anchors")
                    messages(f"{name}.rest")
                case "grf":
                    attention(name)
                    weights[f"{name}.hop_logits"] = source.normal(HOPS + 1)
                case "linear" | "softmax" | "k_mip":
                    attention(name)
                case "series" | "diffusion":
                    attention(name)
                    n_params = {"series": HOPS + 1, "diffusion": 1}[layer]
                    weights[f"{name}.mask"] = source.normal(n_params)
                case "none":
                    pass
                case other:
                    raise ValueError(f"no layer '{other}': add it to random_weights")
        norm(f"blocks.{b}.mlp.norm")
        linear(f"blocks.{b}.mlp.up", d, 4 * d)
        linear(f"blocks.{b}.mlp.down", 4 * d, d)
    norm("head.norm")
    linear("head", d, N_OUT)
    return weights


class Interlacer:
    """One forward pass; `tape` keeps the named intermediates, the rest guards the test's footing."""

    def __init__(self, weights, hops):
        self.weights, self.hops = weights, hops
        self.tape, self.kinks, self.denominators = {}, [], []

    def keep(self, name, x):
        self.tape[f"act.{name}"] = x
        return x

    def relu(self, x):
        self.kinks.append(x.detach().abs().min())
        return torch.where(x > 0, x, 0.0)

    def linear(self, name, x):
        return x @ self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def norm(self, name, x):
        centred = x - x.mean(1, keepdim=True)
        variance = centred.square().mean(1, keepdim=True)
        unit = centred / torch.sqrt(variance + NORM_EPS)
        return unit * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def qkv(self, name, x):
        q, k, v = self.linear(f"{name}.qkv", self.norm(f"{name}.norm", x)).chunk(3, dim=1)
        return self.relu(q), self.relu(k), v

    def divided(self, numerator, denominator):
        self.denominators.append(denominator.detach().flatten())
        return numerator / (denominator + ATTENTION_EPS)[..., None]

    def global_attention(self, name, x):
        q, k, v = (part.reshape(M, HEADS, D // HEADS) for part in self.qkv(name, x))
        state = torch.einsum("jhc,jhe->hce", k, v)
        numerator = torch.einsum("ihc,hce->ihe", q, state)
        denominator = torch.einsum("ihc,hc->ih", q, k.sum(0))
        return self.divided(numerator, denominator).reshape(M, D)

    def local_attention(self, name, x):
        q, k, v = self.qkv(name, x)
        mask = torch.einsum("t,tij->ij", softplus(self.weights[f"{name}.hop_logits"]), self.hops)
        scores = mask * (q @ k.T)
        return self.divided(scores @ v, scores.sum(1))

    def forward(self, features):
        x = self.keep("embed", self.linear("embed", features))
        for b in range(BLOCKS):
            for layer, attend in (("global", self.global_attention), ("local", self.local_attention)):
                name = f"blocks.{b}.{layer}"
                a = self.keep(f"{name}.attention", attend(name, x))
                x = self.keep(name, x + self.linear(f"{name}.out", a))
            name = f"blocks.{b}.mlp"
            hidden = self.relu(self.linear(f"{name}.up", self.norm(f"{name}.norm", x)))
            x = self.keep(name, x + self.linear(f"{name}.down", hidden))
        return self.keep("head", self.linear("head", self.norm("head.norm", x[:N])))


def interlacer():
    source = Source(20)
    positions = source.uniform(M, 3, low=-1.0)
    features = source.normal(M, F)
    weights = random_weights(source)
    loss_weight = source.normal(N, N_OUT)
    neighbours = nearest(positions)
    hops = hop_matrices(neighbours)

    leaves = {"features": features, **weights}

    def loss_of(values):
        model = Interlacer({n: v for n, v in values.items() if n != "features"}, hops)
        return (model.forward(values["features"]) * loss_weight).sum(), model

    grads, loss, model = gradients(loss_of, leaves)
    assert min(model.kinks) > 1e-5, "no ReLU input may sit where float32 could flip it"
    denominators = torch.cat(model.denominators)
    assert denominators[denominators != 0].min() > 1e-3, "no nearly empty attention row"
    assert (denominators == 0).any(), "some row must be empty: its attention is 0, not NaN"

    return {
        **single({"positions": positions, "loss_weight": loss_weight, **leaves}),
        "neighbours": neighbours.int(),
        "hop_matrices": hops,
        "loss": loss,
        **model.tape,
        **grads,
    }


# ---------------------------------------------------------------- other layers


class Variant(Interlacer):
    """The same with other layers; every mixer's output before its projection is on the tape."""

    def __init__(self, weights, hops, layers, feature_map, positions, neighbours, projections):
        super().__init__(weights, hops)
        self.layers, self.feature_map, self.projections = layers, feature_map, projections
        self.positions, self.neighbours = positions, neighbours

    def mapped(self, name, x):
        """Features [..., m] of x [..., d_h]."""
        match self.feature_map:
            case "relu":
                return self.relu(x)
            case "elu":
                return torch.where(x > 0, x + 1, torch.exp(x.clamp(max=0)))
            case "squared":
                return x.square()
            case "favor":
                x = x / x.shape[-1] ** 0.25
                exponent = x @ self.projections[name].T - x.square().sum(-1, keepdim=True) / 2
                assert exponent.abs().max() < EXPONENT_BOUND - 1
                return torch.exp(exponent) / FEATURES**0.5
            case other:
                raise ValueError(f"no feature map '{other}': add it to Variant.mapped")

    def heads(self, name, x, heads, is_mapped=True):
        """q and k [M, heads, features], v [M, heads, d_h]."""
        parts = self.linear(f"{name}.qkv", self.norm(f"{name}.norm", x)).chunk(3, dim=1)
        q, k, v = (part.reshape(M, heads, -1) for part in parts)
        return (self.mapped(name, q), self.mapped(name, k), v) if is_mapped else (q, k, v)

    def mixed(self, name, x, scores, v):
        """x plus the projected mean of v by scores [heads, M, M], and the mean kept."""
        total = scores.sum(-1)
        self.denominators.append(total.detach().flatten())
        a = torch.einsum("hij,jhc->ihc", scores, v) / (total.T + ATTENTION_EPS)[..., None]
        a = self.keep(f"{name}.attention", a.reshape(M, -1))
        return self.keep(name, x + self.linear(f"{name}.out", a))

    def linear_layer(self, name, x, heads):
        q, k, v = self.heads(name, x, heads)
        return self.mixed(name, x, torch.einsum("ihc,jhc->hij", q, k), v)

    def grf_layer(self, name, x):
        q, k, v = self.heads(name, x, 1)
        mask = torch.einsum("t,tij->ij", softplus(self.weights[f"{name}.hop_logits"]), self.hops)
        return self.mixed(name, x, mask * torch.einsum("ihc,jhc->hij", q, k), v)

    def softmax_layer(self, name, x, heads):
        q, k, v = self.heads(name, x, heads, is_mapped=False)
        scores = torch.softmax(torch.einsum("ihc,jhc->hij", q, k) / q.shape[-1] ** 0.5, dim=-1)
        a = torch.einsum("hij,jhc->ihc", scores, v).reshape(M, -1)
        a = self.keep(f"{name}.attention", a)
        return self.keep(name, x + self.linear(f"{name}.out", a))

    def masked_layer(self, kind, name, x, heads):
        """Attention under a mask, written out [M, M], which all heads share."""
        parameters = softplus(self.weights[f"{name}.mask"])
        match kind:
            case "series":
                mask = torch.einsum("t,tij->ij", parameters, self.hops)
            case "diffusion":
                both = (self.hops[1] + self.hops[1].T) / 2
                root = both.sum(1) ** 0.5
                laplacian = torch.eye(M) - both / (root[:, None] * root[None])
                mask = torch.matrix_exp(-parameters / math.log(2) * laplacian)
        q, k, v = self.heads(name, x, heads)
        return self.mixed(name, x, mask * torch.einsum("ihc,jhc->hij", q, k), v)

    def k_mip_layer(self, name, x, heads):
        """Softmax attention to the keys of largest inner product."""
        q, k, v = self.heads(name, x, heads, is_mapped=False)
        scores = torch.einsum("ihc,jhc->hij", q, k) / q.shape[-1] ** 0.5
        best = torch.topk(scores, TOP_K + 1, dim=-1)
        gap = (best.values[..., TOP_K - 1] - best.values[..., TOP_K]).min()
        assert gap > 1e-5, "no near tie of keys"
        chosen = torch.zeros_like(scores).scatter(-1, best.indices[..., :TOP_K], 1.0).bool()
        weights = torch.softmax(scores.masked_fill(~chosen, -math.inf), dim=-1)
        a = torch.einsum("hij,jhc->ihc", weights, v).reshape(M, -1)
        a = self.keep(f"{name}.attention", a)
        return self.keep(name, x + self.linear(f"{name}.out", a))

    def messages(self, name, x, receivers, senders):
        """Mean message to each of `receivers` [R] from `senders` [R, S]."""
        h = self.norm(f"{name}.norm", x)
        told = (h @ self.weights[f"{name}.senders.weight"])[senders]
        added = self.linear(f"{name}.receivers", h)[receivers]
        offset = (self.positions[senders] - self.positions[receivers][:, None]) / PLACE_SCALE
        place = offset @ self.weights[f"{name}.positions.weight"]
        a = self.keep(f"{name}.attention", self.relu(told + added[:, None] + place).mean(1))
        update = torch.zeros_like(x).index_add(0, receivers, self.linear(f"{name}.out", a))
        return self.keep(name, x + update)

    def message_passing_layer(self, name, x):
        anchors = torch.arange(0, M, STRIDE)
        rest = torch.tensor([i for i in range(M) if i % STRIDE != 0])
        x = self.messages(f"{name}.anchors", x, anchors, self.neighbours[anchors])
        squared = (self.positions[rest][:, None] - self.positions[anchors][None]).square().sum(-1)
        ordered, index = torch.sort(squared, dim=1, stable=True)
        assert (ordered[:, 1] / ordered[:, 0]).min() > 1 + 1e-4, "no near tie of anchors"
        return self.messages(f"{name}.rest", x, rest, anchors[index[:, :1]])

    def layer(self, kind, name, x, heads):
        match kind:
            case "linear":
                return self.linear_layer(name, x, heads)
            case "softmax":
                return self.softmax_layer(name, x, heads)
            case "k_mip":
                return self.k_mip_layer(name, x, heads)
            case "series" | "diffusion":
                return self.masked_layer(kind, name, x, VARIANT_HEADS)
            case "grf":
                return self.grf_layer(name, x)
            case "message_passing":
                return self.message_passing_layer(name, x)
            case "none":
                return x
            case other:
                raise ValueError(f"no layer '{other}': add it to Variant.layer")

    def forward(self, features):
        x = self.keep("embed", self.linear("embed", features))
        for b in range(BLOCKS):
            x = self.layer(self.layers[0], f"blocks.{b}.global", x, VARIANT_HEADS)
            x = self.layer(self.layers[1], f"blocks.{b}.local", x, 1)
            name = f"blocks.{b}.mlp"
            hidden = self.relu(self.linear(f"{name}.up", self.norm(f"{name}.norm", x)))
            x = self.keep(name, x + self.linear(f"{name}.down", hidden))
        return self.keep("head", self.linear("head", self.norm("head.norm", x[:N])))


VARIANTS = {  # name: seed, (global, local), feature map
    "message_passing": (30, ("linear", "message_passing"), "relu"),
    "local_linear": (31, ("linear", "linear"), "relu"),
    "local_none": (32, ("linear", "none"), "relu"),
    "global_none": (33, ("none", "grf"), "relu"),
    "neither": (34, ("none", "none"), "relu"),
    "softmax": (35, ("softmax", "grf"), "relu"),
    "elu": (36, ("linear", "grf"), "elu"),
    "squared": (37, ("linear", "grf"), "squared"),
    "favor": (38, ("linear", "grf"), "favor"),
    "k_mip": (39, ("k_mip", "grf"), "relu"),
    "series": (40, ("linear", "series"), "relu"),
    "diffusion": (41, ("linear", "diffusion"), "elu"),
}


def layers_config(name):
    """The layers of a variant as model files have them: the tests read from it what to build."""
    _, (global_layer, local_layer), feature_map = VARIANTS[name]
    if feature_map == "favor":
        feature_map = {"favor": {"n_features": FEATURES, "seed": 0}}
    layers = {"global": global_layer, "local": local_layer, "feature_map": feature_map}
    settings = {"message_passing": {"anchor_stride": STRIDE}, "k_mip": {"top_k": TOP_K}}
    return layers | settings.get(local_layer, {}) | settings.get(global_layer, {})


def variant(name):
    seed, layers, feature_map = VARIANTS[name]
    source = Source(seed)
    positions = source.uniform(M, 3, low=-1.0)
    features = source.normal(M, F)
    weights = random_weights(source, VARIANT_D, layers)
    loss_weight = source.normal(N, N_OUT)
    neighbours = nearest(positions)
    hops = hop_matrices(neighbours)
    projections = {}
    if feature_map == "favor":  # of any distribution: the engine is given the same
        for b in range(BLOCKS):
            head_width = VARIANT_D // VARIANT_HEADS
            projections[f"blocks.{b}.global"] = source.normal(FEATURES, head_width)
            projections[f"blocks.{b}.local"] = source.normal(FEATURES, VARIANT_D)

    leaves = {"features": features, **weights}

    def loss_of(values):
        held = {n: v for n, v in values.items() if n != "features"}
        model = Variant(held, hops, layers, feature_map, positions, neighbours, projections)
        return (model.forward(values["features"]) * loss_weight).sum(), model

    grads, loss, model = gradients(loss_of, leaves)
    assert min(model.kinks) > 1e-5, "no ReLU input may sit where float32 could flip it"
    if model.denominators:
        denominators = torch.cat(model.denominators)
        assert denominators[denominators != 0].min() > 1e-3, "no nearly empty attention row"
    given = {f"projection.{n}": w for n, w in projections.items()}
    return {
        **single({"positions": positions, "loss_weight": loss_weight, **leaves, **given}),
        "loss": loss,
        **model.tape,
        **{n: g for n, g in grads.items() if not n.startswith("grad.act.")},
    }


# ---------------------------------------------------------------- motion head


def head():
    source = Source(21)
    logits = source.normal(N, CANDIDATES, std=1.5)
    offsets = source.normal(N, 3, std=0.1)
    y = torch.cat([logits, offsets], dim=1)
    cand = source.normal(N, CANDIDATES, 3, std=0.03)
    weight = source.uniform(N)
    weight[[4, 13]] = 0.0  # points that do not count

    def motion(values):
        y, cand = values["y"], values["cand"]
        odds = torch.exp(y[:, :CANDIDATES] - y[:, :CANDIDATES].amax(1, keepdim=True).detach())
        share = odds / odds.sum(1, keepdim=True)
        dx = torch.einsum("nc,nca->na", share, cand) + RESIDUAL_REACH * torch.tanh(y[:, CANDIDATES:])
        return share, dx

    leaves = {"y": y, "cand": cand}
    # Most targets are centimetres off; the first six lie within about DELTA, in the loss's bowl.
    error = source.normal(N, 3, std=0.03)
    error[:6] = error[:6] * 0.02
    target = rounded(motion(leaves)[1] + error)

    def loss_of(values):
        share, dx = motion(values)
        penalty = torch.sqrt((dx - target).square().sum(1) + DELTA**2) - DELTA
        outputs = {"softmax": share, "dx": dx, "penalty": penalty}
        return (weight * penalty).sum() / weight.sum(), outputs

    grads, loss, outputs = gradients(loss_of, leaves)
    return {
        **single({"target": target, "weight": weight, **leaves}),
        "softmax": outputs["softmax"],
        "dx": outputs["dx"],
        "penalty": outputs["penalty"],
        "loss": loss,
        "grad.y": grads["grad.y"],
        "grad.cand": grads["grad.cand"],
        "grad.dx": torch.autograd.grad(loss, outputs["dx"])[0],
    }


# ---------------------------------------------------------------- AdamW


def adamw():
    steps, size = 7, 33
    source = Source(22)
    initial = source.normal(size, std=0.5)
    scale = torch.tensor([0.3, 5.0, 0.9, 1.6, 0.02, 40.0, 0.6], dtype=torch.float64)
    given = source.normal(steps, size)
    given[:, 0] = 0.0  # a parameter that never gets a gradient still decays
    given = rounded(given / given.norm(dim=1, keepdim=True) * scale[:, None])

    parameter = torch.nn.Parameter(initial.clone())
    optimiser = torch.optim.AdamW(
        [parameter], lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=1e-3, foreach=False
    )
    norms, clipped, parameters, first, second = [], [], [], [], []
    for gradient in given:
        parameter.grad = gradient.clone()
        norms.append(torch.nn.utils.clip_grad_norm_([parameter], 1.0, foreach=False))
        clipped.append(parameter.grad.clone())
        optimiser.step()
        state = optimiser.state[parameter]
        parameters.append(parameter.detach().clone())
        first.append(state["exp_avg"].clone())
        second.append(state["exp_avg_sq"].clone())
    return {
        **single({"initial": initial, "gradients": given}),
        "norms": torch.stack(norms),
        "clipped": torch.stack(clipped),
        "parameters": torch.stack(parameters),
        "first_moment": torch.stack(first),
        "second_moment": torch.stack(second),
    }


# ---------------------------------------------------------------- video


def video_encoder():
    """The U-Net: two 3x3 convolutions at each of three sizes, mean pooling, skips."""
    channels, n_features, width, height = [3, 4, 6], 5, 10, 7
    source = Source(31)
    narrow, middle, wide = channels
    widths = [
        (3, narrow), (narrow, narrow), (narrow, middle), (middle, middle), (middle, wide),
        (wide, wide), (wide + middle, middle), (middle, middle), (middle + narrow, narrow),
        (narrow, n_features),
    ]
    leaves = {}
    for i, (n_in, n_out) in enumerate(widths):
        leaves[f"encoder.{i}.weight"] = source.normal(9 * n_in, n_out, std=(4.5 * n_in) ** -0.5)
        leaves[f"encoder.{i}.bias"] = source.normal(n_out, std=0.3)
    picture = source.uniform(height, width, 3)
    full = torch.zeros(-(-height // 4) * 4, -(-width // 4) * 4, 3, dtype=torch.float64)
    full[:height, :width] = picture - 0.5
    kinks = []

    def features_of(values):
        def convolve(i, x):
            weight = values[f"encoder.{i}.weight"].view(3, 3, x.shape[1], -1).permute(3, 2, 0, 1)
            y = torch.nn.functional.conv2d(x, weight, values[f"encoder.{i}.bias"], padding=1)
            if i == 9:
                return y
            kinks.append(y.detach().abs().min())
            return y.relu()

        def two(i, x):
            return convolve(i + 1, convolve(i, x))

        def double(x):
            return torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")

        halve = torch.nn.AvgPool2d(2)
        a = two(0, full.permute(2, 0, 1)[None])
        b = two(2, halve(a))
        c = two(4, halve(b))
        d = two(6, torch.cat([double(c), b], 1))
        return two(8, torch.cat([double(d), a], 1))[0].permute(1, 2, 0)

    d_features = source.normal(*features_of(leaves).shape)
    grads, _, features = gradients(
        lambda values: ((features_of(values) * d_features).sum(), features_of(values)), leaves
    )
    assert min(kinks) > 1e-6, "a ReLU's input too near 0: another seed"
    settings = {"channels": json.dumps(channels), "size": json.dumps([width, height])}
    inputs = single({"picture": picture, "d_features": d_features, **leaves})
    return {**inputs, "features": features, **grads}, settings


RADII, BANDWIDTHS, NEIGHBORS = (0.0, 0.01, 0.02, 0.05), (0.01, 0.01, 0.01, 0.05), 16
REACH, EMPTY, STEP, NEAR, FAR = 0.05, 0.025, 0.01, 0.1, 2.0  # metres


def renderer():
    """Rays through particles: annular kernels over the nearest ones, two hidden layers, compositing."""
    n, n_features, hidden, n_rays = 220, 5, 12, 17
    source = Source(32)
    x, y = source.uniform(2, n, low=-0.1, high=0.1)
    bump = rounded(0.02 * torch.sin(40 * x) + 0.01 * source.normal(n))
    far = source.uniform(n) < 0.3  # a second surface behind the first
    positions = torch.stack([x, y, rounded(bump - 0.2 * far)], 1)
    widths = [(4 * (n_features + 1), hidden), (hidden, hidden), (hidden, 4)]
    leaves = {"positions": positions, "features": source.normal(n, n_features)}
    for i, (n_in, n_out) in enumerate(widths):
        leaves[f"renderer.{i}.weight"] = source.normal(n_in, n_out, std=1.4 * n_in**-0.5)
        leaves[f"renderer.{i}.bias"] = source.normal(n_out, std=0.5)
    origins = rounded(torch.tensor([0.03, -0.02, 0.6], dtype=torch.float64)).expand(n_rays, 3)
    slopes = source.uniform(n_rays, 2, low=-0.2, high=0.2)
    directions = torch.cat([slopes, -torch.ones(n_rays, 1, dtype=torch.float64)], 1)
    shifts = source.uniform(n_rays)
    d_seen = source.normal(n_rays, 4)
    ties = []

    def network(values, place, near):
        ways = values["positions"][near] - place
        distances = (ways.square().sum(1) + 1e-8).sqrt()
        means, sums = [], []
        for radius, width in zip(RADII, BANDWIDTHS):
            weights = torch.exp(-0.5 * ((distances - radius) / width) ** 2)
            means.append(weights @ values["features"][near] / (weights.sum() + 1e-2))
            sums.append(0.25 * weights.sum())
        rows = torch.cat([*means, torch.stack(sums)])
        for i in range(3):
            rows = rows @ values[f"renderer.{i}.weight"] + values[f"renderer.{i}.bias"]
            if i < 2:
                ties.append(rows.detach().abs().min())
                rows = rows.relu()
        return rows

    def see(values, origin, direction, shift):
        light, color, depth = torch.ones(()).double(), torch.zeros(3).double(), 0.0
        step = STEP / direction.norm()
        for k in range(int((FAR - NEAR) / step) + 2):
            at = NEAR + (k + shift) * step
            if at >= FAR:
                break
            place = origin + at * direction
            with torch.no_grad():
                distances = (positions - place).norm(dim=1)
                ordered, near = distances.sort()
                ties.append((ordered[0] - EMPTY).abs())
                if ordered[0] > EMPTY:
                    continue
                ties.append((ordered[:40] - REACH).abs().min())
                ties.append(ordered[NEIGHBORS] - ordered[NEIGHBORS - 1])
                near = near[:NEIGHBORS][ordered[:NEIGHBORS] <= REACH]
            out = network(values, place, near)
            left = light * torch.exp(-softplus(out[0]))
            color = color + (light - left) * torch.sigmoid(out[1:])
            depth, light = depth + (light - left) * at, left
        return torch.cat([color + light, (depth + light * FAR)[None]])

    def loss_of(values):
        rays = zip(origins, directions, shifts)
        seen = torch.stack([see(values, *ray) for ray in rays])
        return (seen * d_seen).sum(), seen

    grads, _, seen = gradients(loss_of, leaves)
    assert min(ties) > 1e-6, f"{min(ties)}: too near a tie: another seed"
    rays = {"origins": origins, "directions": directions, "shifts": shifts}
    return {**single({**leaves, **rays, "d_seen": d_seen}), "seen": seen, **grads}


def similarity():
    """SSIM and PSNR of pictures, by scikit-image."""
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity

    width, height = 31, 23
    source = Source(33)
    u, v = np.meshgrid(np.arange(width), np.arange(height))
    waves = np.stack([np.sin(0.3 * u), np.cos(0.4 * v), np.sin(0.2 * (u + v))], 2)
    truth = rounded(torch.from_numpy(0.5 + 0.4 * waves))
    pictures = [
        rounded((truth + source.normal(height, width, 3, std=std)).clamp(0, 1))
        for std in (0.01, 0.1, 1.0)
    ]
    pictures.append(rounded(truth * 0.5))
    pictures.append(rounded(1 - truth))
    settings = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    ssim = [
        structural_similarity(truth.numpy(), x.numpy(), data_range=1, channel_axis=2, **settings)
        for x in pictures
    ]
    psnr = [peak_signal_noise_ratio(truth.numpy(), x.numpy(), data_range=1) for x in pictures]
    named = {f"picture.{i}": x for i, x in enumerate(pictures)}
    found = {"ssim": torch.tensor(ssim).double(), "psnr": torch.tensor(psnr).double()}
    return {**single({"truth": truth, **named}), **found}, {"size": json.dumps([width, height])}


# ---------------------------------------------------------------- shared


def single(tensors):
    """Inputs as float32; they are exact in it."""
    for name, x in tensors.items():
        assert torch.equal(x.float().double(), x), name
    return {name: x.float() for name, x in tensors.items()}


def gradients(loss_of, leaves):
    """Gradients of the leaves, and of the intermediates on a tape, checked by finite differences."""
    inputs = {name: x.clone().requires_grad_() for name, x in leaves.items()}
    loss, extra = loss_of(inputs)
    wanted = {**inputs, **getattr(extra, "tape", {})}
    found = torch.autograd.grad(loss, list(wanted.values()), retain_graph=True)
    grads = {f"grad.{name}": g for name, g in zip(wanted, found)}

    # Two entries of every leaf: the steepest one and the middle one.
    for name, x in leaves.items():
        grad = grads[f"grad.{name}"].flatten()
        assert grad.abs().max() > 0, name
        for entry in (int(grad.abs().argmax()), grad.numel() // 2):
            step = torch.zeros_like(x)
            step.view(-1)[entry] = 1e-6
            with torch.no_grad():
                rise = loss_of({**leaves, name: x + step})[0] - loss_of({**leaves, name: x - step})[0]
            error = abs(rise / 2e-6 - grad[entry])
            assert error <= 1e-6 * grad.abs().max(), f"{name}[{entry}]: off by {error:.1e}"
    return grads, loss, extra


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent)
    makes = {make.__name__: make for make in (interlacer, head, adamw, video_encoder, renderer, similarity)}
    parser.add_argument("--only", metavar="NAME", choices=[*makes, *VARIANTS], help="one file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in [args.only] if args.only else [*makes, *VARIANTS]:
        if name in makes:
            made = makes[name]()
            values, settings = made if isinstance(made, tuple) else (made, None)
            save(values, args.folder / f"{name}.safetensors", settings)
        else:
            path = args.folder / f"layers_{name}.safetensors"
            save(variant(name), path, {"layers": json.dumps(layers_config(name))})


def save(values, path, settings=None):
    tensors = {}
    for name, x in values.items():
        x = x.detach()
        assert torch.isfinite(x).all(), name
        tensors[name] = (x[None] if x.dim() == 0 else x).contiguous().clone()
    save_file(tensors, path, settings)
    print(path)


if __name__ == "__main__":
    main()
