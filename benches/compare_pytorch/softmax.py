#!/usr/bin/env python3
"""PyTorch's softmax attention over N tokens on this machine's CPU, beside `cargo bench --bench k_mip`.

    ATEN_CPU_CAPABILITY=avx2 PYTHON benches/compare_pytorch/softmax.py [--tokens 32768]

Random rows, width 64 in 4 heads, forward, in f32; medians in ms of `scaled_dot_product_attention`, which keeps no
N × N, and of one head after the other with N × N weights in memory (4 GB at 32,768). Both are checked against
each other first.
"""

import argparse
import time

import torch
from torch.nn.functional import scaled_dot_product_attention


def by_weights(q, k, v):
    """One head after the other, with all its weights."""
    return torch.stack([torch.softmax(a @ b.T / a.shape[-1] ** 0.5, -1) @ c for a, b, c in zip(q, k, v)])


def median_ms(run, runs):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times)[runs // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    q, k, v = (torch.randn(4, args.tokens, 16) for _ in range(3))
    fused = lambda: scaled_dot_product_attention(q[None], k[None], v[None])[0]
    with torch.inference_mode():
        off = (fused() - by_weights(q, k, v)).abs().max().item()
        assert off < 1e-4, f"they differ by {off}"
        print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {args.threads} threads, {args.tokens} tokens")
        print(f"scaled_dot_product_attention {median_ms(fused, args.runs):.0f} ms")
        print(f"with N × N weights           {median_ms(lambda: by_weights(q, k, v), args.runs):.0f} ms")


if __name__ == "__main__":
    main()
