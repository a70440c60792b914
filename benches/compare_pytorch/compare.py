"""Forecloud against PyTorch on the CPU: the same model, weights and cloud, alternating run by run.

Started by `benches/compare_pytorch/run`. Each side is a process of its own (`peer.rs`,
`torch_peer.py`) that answers one command at a time and sleeps between; so times are taken in
turns, in one session. Both are held against PyTorch in float64 first: ends with status 1 when
Forecloud's outputs or gradients differ from that by more than the bounds.
"""

from __future__ import annotations

import argparse
import ctypes.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEER = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/examples/compare_pytorch"
# Largest difference of an output; of a tensor's gradient, by norm, relative; of a loss, relative.
# No ReLU input of the problem is so near to 0 that float32 carries it over (`keep_kinks_apart`): then
# one side would pass on a token's gradient and the other not, and where a tensor's gradient nearly
# cancels (the hop logits'), a single token's share is several times the bound, on any two machines.
OUTPUT_BOUND, GRADIENT_BOUND, LOSS_BOUND = 1e-4, 1e-4, 1e-4
N_LOSSES = 5
# What PyTorch's tuning guide recommends with jemalloc: freed memory is kept for the next pass.
JEMALLOC = "background_thread:true,metadata_thp:auto,dirty_decay_ms:9000000000,muzzy_decay_ms:9000000000"
# What OpenMP's threads need to fall asleep after a run (libgomp spins for a few ms), so that they
# take no time from the next one's.
PAUSE_SECS = 0.05
FORECLOUD = "forecloud"
# Training that computes activations again in the backward pass.
RECOMPUTE = "forecloud recompute"
EXACT = "pytorch exact"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = lambda text: [int(n) for n in text.split(",")]
    parser.add_argument("--tokens", type=numbers, default=[4096, 32768], help="e.g. 4096,32768")
    parser.add_argument("--widths", type=numbers, default=[128], help="widths d, e.g. 64,128")
    parser.add_argument(
        "--peers", type=lambda text: text.split(","), default=["eager", "compiled"],
        help="of PyTorch, by commas: eager, compiled (takes minutes), plain (what one writes first)",
    )
    parser.add_argument(
        "--recompute", action="store_true",
        help="also training in Forecloud that computes activations again in the backward pass",
    )
    parser.add_argument("--runs", type=int, default=15, help="timed runs of each peer")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--jemalloc", help="libjemalloc.so.2 (default: where the system has it)")
    parser.add_argument("--json", type=Path, help="also write all figures, with every run, here")
    args = parser.parse_args()
    if not set(args.peers) <= {"eager", "compiled", "plain"}:
        parser.error(f"--peers {','.join(args.peers)}: known are eager, compiled and plain")
    return args


def find_jemalloc(given):
    """Path or name to preload, or None with a word about it."""
    found = given or ctypes.util.find_library("jemalloc")
    if found is None:
        print(
            "no libjemalloc: PyTorch runs without, which is slower at large sizes "
            "(apt install libjemalloc2, or --jemalloc FILE)"
        )
    elif given and not Path(given).is_file():
        sys.exit(f"--jemalloc {given}: no such file")
    return found


class Peer:
    """A process that runs passes on command."""

    def __init__(self, name: str, problem: Path, args, jemalloc):
        environment = {**os.environ, "RAYON_NUM_THREADS": str(args.threads)}
        if name in (FORECLOUD, RECOMPUTE):
            command = [PEER, "serve", problem, *(["--recompute"] if name == RECOMPUTE else [])]
        else:
            command = [sys.executable, "-W", "ignore", HERE / "torch_peer.py", problem]
            command += [name.removeprefix("pytorch "), str(args.threads)]
            environment["OMP_NUM_THREADS"] = str(args.threads)
            if jemalloc:
                environment |= {"LD_PRELOAD": jemalloc, "MALLOC_CONF": JEMALLOC}
        self.name = name
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.expect("ready")
        self.start_mb = self.memory_mb("VmRSS")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def ask(self, command: str) -> str:
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> str:
        line = self.process.stdout.readline().strip()
        if not line:
            sys.exit(f"{self.name} ended with status {self.process.wait()}: see above")
        return line

    def expect(self, answer: str):
        got = self.answer()
        if got != answer:
            sys.exit(f"{self.name} answered '{got}' instead of '{answer}'")

    def milliseconds(self, command: str) -> float:
        return float(self.ask(command).split()[0])

    def check(self, folder: str) -> dict:
        """Output, loss and gradients at the first weights, and the losses of some steps."""
        path = Path(folder) / f"{self.name.replace(' ', '_')}.safetensors"
        self.ask(f"check {path}")
        tensors = load_file(path)
        self.ask("reset")
        losses = [float(self.ask("train").split()[1]) for _ in range(N_LOSSES)]
        self.ask("reset")
        return {**tensors, "losses": np.array(losses)}

    def memory_mb(self, key: str) -> float:
        """VmRSS or VmHWM (the peak) of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(key + ":"))
        return int(line.split()[1]) / 1024

    def forget_peak(self):
        """Sets the peak back to what is resident now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def differences(exact: dict, found: dict) -> dict:
    """Largest differences of outputs, gradients (by tensor, relative) and losses (relative)."""
    outputs = [found[name] for name in ("output", "inferred") if name in found]
    output = max(np.abs(exact["output"] - output).max() for output in outputs)
    gradients, entries = {}, []
    for name in filter(lambda name: name.startswith("gradient."), exact):
        a, b = found[name].astype(np.float64), exact[name].astype(np.float64)
        if a.shape != b.shape or not b.any():
            sys.exit(f"{name}: shapes {a.shape} and {b.shape}, or all zero")
        gradients[name] = np.linalg.norm(a - b) / np.linalg.norm(b)
        entries.append(np.abs(a - b).max() / np.abs(b).max())
    worst = max(gradients, key=lambda name: np.nan_to_num(gradients[name], nan=np.inf))
    losses = np.abs(found["losses"] / exact["losses"] - 1).max()
    result = {
        "output": float(output),
        "gradient": float(gradients[worst]),
        "gradient_entry": float(max(entries)),
        "worst_tensor": worst.removeprefix("gradient."),
        "loss": float(losses),
        "largest_output": float(np.abs(exact["output"]).max()),
    }
    # Not `any(x > bound)`: what is no number is above the bound, too.
    passes = output <= OUTPUT_BOUND and gradients[worst] <= GRADIENT_BOUND and losses <= LOSS_BOUND
    return {**result, "passes": bool(passes)}


def same_bits(a: dict, b: dict) -> bool:
    """Whether two checks found the same numbers, all of them."""
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def times(peers: list[Peer], command: str, runs: int) -> dict[str, list[float]]:
    """Milliseconds of each run; the peers take turns, in another order each round."""
    found = {peer.name: [] for peer in peers}
    for peer in peers:
        for _ in range(3):
            peer.milliseconds(command)
    for run in range(runs):
        turn = run % len(peers)
        for peer in peers[turn:] + peers[:turn]:
            time.sleep(PAUSE_SECS)
            found[peer.name].append(peer.milliseconds(command))
    return found


def memory(name: str, problem: Path, command: str, args, jemalloc) -> dict[str, float]:
    """Peak resident memory of a fresh process that does only `command`, and its rise above what was
    resident before the first pass, MB. The first pass, in which torch.compile compiles, is left out.
    """
    with Peer(name, problem, args, jemalloc) as peer:
        peer.milliseconds(command)
        peer.forget_peak()
        for _ in range(3):
            peer.milliseconds(command)
        peak = peer.memory_mb("VmHWM")
        return {"peak": peak, "above_start": peak - peer.start_mb}


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Median of the ratios of runs that followed each other."""
    return statistics.median(theirs / ours for ours, theirs in zip(ours, theirs))


def compare(n: int, width: int, args, jemalloc) -> dict:
    result = {"tokens": n, "width": width, "differences": {}, "passes": {}}
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder) / "problem.safetensors"
        size = ["--tokens", str(n), "--width", str(width)]
        subprocess.run([PEER, "write", problem, *size], check=True)
        names = [FORECLOUD, *(f"pytorch {peer}" for peer in args.peers)]
        names[1:1] = [RECOMPUTE] if args.recompute else []
        with Peer(EXACT, problem, args, jemalloc) as peer:
            peer.ask("keep_kinks_apart")
            exact = peer.check(folder)
        peers = [Peer(name, problem, args, jemalloc) for name in names]
        checks = {peer.name: peer.check(folder) for peer in peers}
        for name, found in checks.items():
            result["differences"][name] = differences(exact, found)
        if args.recompute and not same_bits(checks[FORECLOUD], checks[RECOMPUTE]):
            sys.exit("FAILED: activations that are computed again give other bits")
        # The forward pass in inference mode is the same with and without.
        taking_part = {"forward": [name for name in names if name != RECOMPUTE], "train": names}
        for command, names in taking_part.items():
            timed = [peer for peer in peers if peer.name in names]
            result["passes"][command] = times(timed, command, args.runs)
        for peer in peers:
            peer.__exit__()
        result["memory_mb"] = {
            command: {name: memory(name, problem, command, args, jemalloc) for name in names}
            for command, names in taking_part.items()
        }
    report(result)
    return result


def layers(n: int, width: int, args) -> list[dict]:
    """Steps of training in Forecloud with the GRF attention and with other layers in its place."""
    command = [PEER, "layers", "--tokens", str(n), "--width", str(width), "--runs", str(args.runs)]
    environment = {**os.environ, "RAYON_NUM_THREADS": str(args.threads)}
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    grf = next(row["milliseconds"] for row in rows if row["local"] == "grf")
    print(f"\nlocal layers, N = {n}, d = {width}: training in Forecloud, graph included")
    print(f"  {'local layer':17}{'weights':>11}{'median ms':>11}{'steps/s':>11}{'grf faster':>11}")
    for row in rows:
        ms = row["milliseconds"]
        median, faster = statistics.median(ms), ratio(grf, ms)
        print(f"  {row['local']:17}{row['n_params']:>11}{median:>11.1f}{1e3 / median:>11.2f}{faster:>11.2f}")
    return rows


def report(result: dict):
    print(f"\nN = {result['tokens']}, d = {result['width']}")
    for name, found in result["differences"].items():
        print(
            f"  {'' if found['passes'] else 'ABOVE THE BOUNDS '}{name} against float64: outputs to "
            f"{found['output']:.1e} (largest {found['largest_output']:.2f}), gradients to "
            f"{found['gradient']:.1e} by norm ({found['worst_tensor']}; entries to "
            f"{found['gradient_entry']:.1e}), {N_LOSSES} losses to {found['loss']:.1e}"
        )
    columns = ("median ms", "least", "ratio", "peak MB", "ratio", "rise MB", "ratio")
    print(f"  {'':8} {'':19}" + "".join(f"{column:>11}" for column in columns))
    for command, found in result["passes"].items():
        ours, memory_mb = found[FORECLOUD], result["memory_mb"][command]
        for name, runs in found.items():
            row = [f"{statistics.median(runs):.1f}", f"{min(runs):.1f}", f"{ratio(ours, runs):.2f}"]
            for key in ("peak", "above_start"):
                mb = memory_mb[name][key]
                row += [f"{mb:.0f}", f"{mb / memory_mb[FORECLOUD][key]:.2f}"]
            print(f"  {command:8} {name:19}" + "".join(f"{cell:>11}" for cell in row))
    memory_mb = {name: mb["peak"] for name, mb in result["memory_mb"]["train"].items()}
    for ours in (name for name in memory_mb if name in (FORECLOUD, RECOMPUTE)):
        theirs = {name: mb for name, mb in memory_mb.items() if name.startswith("pytorch")}
        shares = (f"{memory_mb[ours] / mb:.2f} of {name}'s" for name, mb in theirs.items())
        print(f"  peak memory in training, {ours}: {', '.join(shares)}")


def main():
    args = arguments()
    jemalloc = find_jemalloc(args.jemalloc)
    results = [compare(n, width, args, jemalloc) for width in args.widths for n in args.tokens]
    print("\nratio: the row's over that of forecloud, times as the median over paired runs")
    for result in results:
        result["layers"] = layers(result["tokens"], result["width"], args)
    print("\ngrf faster: the layer's time over the GRF attention's, median over paired runs")
    if args.json:
        import torch

        about = {
            "torch": torch.__version__, "threads": args.threads, "runs": args.runs,
            "jemalloc": jemalloc, "commit": commit(), "simd": os.environ.get("FORECLOUD_SIMD"),
        }
        args.json.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
    ours = [found for result in results for found in result["differences"].items()]
    if not all(found["passes"] for name, found in ours if name in (FORECLOUD, RECOMPUTE)):
        sys.exit("FAILED: Forecloud's outputs, gradients or losses are above the bounds: see above")


def commit() -> str:
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
