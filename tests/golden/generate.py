"""Writes the golden values that the Rust engine is tested against.

An implementation of the Interlacer, of the motion head and of the optimiser step that
shares nothing with the Rust code: dense PyTorch in float64, gradients by autograd.
Inputs and weights are rounded to float32 first, then everything is computed in float64,
so a float32 engine is compared with exact values of the very inputs it reads.

    python generate.py [FOLDER]      (default: the folder of this script)
"""

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn.functional import softplus

M, N, F, D, HEADS, BLOCKS, HOPS, K, N_OUT = 37, 21, 11, 16, 4, 2, 3, 3, 7
NORM_EPS, ATTENTION_EPS = 1e-5, 1e-6
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


def random_weights(source):
    weights = {}

    def linear(name, fan_in, fan_out):
        weights[f"{name}.weight"] = source.normal(fan_in, fan_out, std=fan_in**-0.5)
        weights[f"{name}.bias"] = source.normal(fan_out, std=0.2)

    def norm(name):
        weights[f"{name}.weight"] = source.normal(D, std=0.2, mean=1.0)
        weights[f"{name}.bias"] = source.normal(D, std=0.2)

    linear("embed", F, D)
    for b in range(BLOCKS):
        for layer in ("global", "local"):
            norm(f"blocks.{b}.{layer}.norm")
            linear(f"blocks.{b}.{layer}.qkv", D, 3 * D)
            linear(f"blocks.{b}.{layer}.out", D, D)
        weights[f"blocks.{b}.local.hop_logits"] = source.normal(HOPS + 1)
        norm(f"blocks.{b}.mlp.norm")
        linear(f"blocks.{b}.mlp.up", D, 4 * D)
        linear(f"blocks.{b}.mlp.down", 4 * D, D)
    norm("head.norm")
    linear("head", D, N_OUT)
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
        q, k, v = self.linear(f"{name}.qkv", self.norm(f"{name}.norm", x)).split(D, dim=1)
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
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for make in (interlacer, head, adamw):
        tensors = {}
        for name, x in make().items():
            x = x.detach()
            assert torch.isfinite(x).all(), name
            tensors[name] = (x[None] if x.dim() == 0 else x).contiguous().clone()
        save_file(tensors, folder / f"{make.__name__}.safetensors")


if __name__ == "__main__":
    main()
