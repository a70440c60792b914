"""PyTorch's forward pass on the same GPU: `torch_step.py FILE [--device cuda] [--runs 50]`.

FILE is a problem of `benches/compare_pytorch/problem.rs` with the outputs that are expected. Eager in
float32 (TF32 off) and compiled with bfloat16 are held to those, then timed; graph and merged loads are
given, which Forecloud's step makes itself. Prints a line of JSON: p50 and p99 (ms), largest difference
from what is expected relative to the largest output, and peak device memory (MB) of each, or the error.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare_pytorch"))
from model import Problem  # noqa: E402
from safetensors import safe_open  # noqa: E402

# Largest difference, relative: f32 sums in another order; 8 bits of bfloat16, over four blocks.
BOUNDS = {"eager fp32": 1e-3, "compiled bf16": 0.2}


def passes(file, device, name):
    """The forward pass, ready to be timed; compiled where the name says so."""
    problem = Problem(file, name.split()[0], device, torch.bfloat16 if "bf16" in name else torch.float32)
    # What only training takes counts as no memory of this.
    problem.candidates = problem.targets = problem.point_weights = problem.initial = None
    infer = problem.model
    if name.startswith("compiled"):
        infer = torch.compile(infer, dynamic=False)
    return lambda: infer(problem.features)


def milliseconds(run, device):
    """Of one pass; the device's own clock where it has one."""
    if device != "cuda":
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def measure(file, device, name, runs, expected):
    with torch.inference_mode():
        run = passes(file, device, name)
        off = (run().float().cpu() - expected).abs().max().item() / expected.abs().max().item()
        # Not `off > bound`: what is no number is above it, too.
        if not off <= BOUNDS[name]:
            raise ValueError(f"off by {off:.1e}, relative")
        for _ in range(5):
            run()
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        times = sorted(milliseconds(run, device) for _ in range(runs))
    peak = torch.cuda.max_memory_allocated() / 1e6 if device == "cuda" else 0.0
    p99 = times[min(len(times) - 1, -(-99 * len(times) // 100) - 1)]
    return {"p50_ms": statistics.median(times), "p99_ms": p99, "off": off, "peak_mb": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--runs", type=int, default=50)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("this PyTorch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    with safe_open(args.file, "pt") as file:
        expected = file.get_tensor("expected")
    found = {}
    for name in BOUNDS:
        try:
            found[name] = measure(args.file, args.device, name, args.runs, expected)
        except Exception as error:  # one that does not run here leaves the other
            found[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    print(json.dumps({"torch": torch.__version__, **found}))


main()
