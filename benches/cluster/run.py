"""What `forecloud cluster` costs on 1 to 4 workers of a Ray cluster on this machine: CPU seconds and bytes moved,
which do not depend on how many cores are free. docs/src/notebook/cluster.md has what it said.

    python benches/cluster/run.py RECORDINGS [--what replay,train] [--steps 10] [--batch 8] [--workers 1,2,4]

RECORDINGS: a folder of recordings, some of split `train`. Needs the package and its extra `ray`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOOL = [sys.executable, "-m", "forecloud"]


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[str]:
    """So many nodes of one core, and a head without any; gives the address."""
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(workers):
        nodes.add_node(num_cpus=1)
    try:
        yield nodes.address
    finally:
        ray.shutdown()
        nodes.shutdown()


def replay(recordings: str, workers: int, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """CPU seconds of all tasks, and the bytes of the model (to each node) and of the results."""
    from forecloud.cluster import spread

    out = folder / f"replay_{workers}"
    with cluster(workers) as address:
        begun = time.monotonic()
        told = spread("replay", [recordings], out, address=address, model=args.model)
        wall = time.monotonic() - begun
    results = sum(file.stat().st_size for file in out.glob("*.json"))
    moved = workers * Path(args.model).stat().st_size + results
    report = subprocess.run([*TOOL, "merge", "--json", "--", str(out)], check=True, capture_output=True).stdout
    return {"what": "replay", "workers": workers, "recordings": told["n"], "cpu_secs": told["cpu_secs"],
            "task_secs": told["secs"], "wall_secs": wall, "megabytes": moved / 1e6,
            "report": hashlib.sha256(json.dumps(json.loads(report)["errors"]).encode()).hexdigest()[:12]}


def train(recordings: str, workers: int, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """CPU seconds of all workers for each step, and bytes that gradients and states took on their way."""
    import ray

    from forecloud import Model, _cluster_train

    told: dict[str, Any] = {"what": "train", "workers": workers, "batch": args.batch}

    def costs(crew: Any) -> float:
        spent = ray.get([worker.cost.remote() for worker in crew.at_work], timeout=60)
        return sum(of["cpu_secs"] for of in spent)

    def on_step(step: int, crew: Any) -> None:
        if len(crew.at_work) < workers:
            # All at work before it counts.
            crew.join(None, wait=True)
            while crew.reading:
                time.sleep(0.1)
                crew.join(None, wait=False)
        if step == 2:
            told.update(cpu=costs(crew), begun=time.monotonic(), weights=crew.run["n_weights"])
        if step == args.steps:
            steps = args.steps - 2
            told.update(cpu_secs=(costs(crew) - told.pop("cpu")) / steps, at_work=len(crew.at_work),
                        wall_secs=(time.monotonic() - told.pop("begun")) / steps)

    settings = folder / "settings.json"
    settings.write_text('{"train": {"validation_windows": 1, "checkpoint_secs": 86400}}')
    options = ["--steps", str(args.steps), "--batch", str(args.batch), "--validate-every", "1000000",
               "--model-config", str(settings), "--from", args.model, "--keep", "new",
               "--labels", str(folder / "labels")]
    out = folder / f"run_{workers}"
    _cluster_train._run = lambda *_, **__: subprocess.CompletedProcess([], 0)  # Without the report.
    with cluster(workers) as address:
        _cluster_train.train(recordings, out, address=address, options=options, on_step=on_step)
    gradient = 4 * told["weights"]
    # Each sum goes to the next worker, and the last one to all.
    told["megabytes"] = (workers - 1 + workers) * gradient / 1e6
    told["model"] = Model(str(out / "model.safetensors")).hash
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings")
    parser.add_argument("--what", default="replay,train")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--model", default="models/small.safetensors")
    args = parser.parse_args()
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    with tempfile.TemporaryDirectory() as folder:
        for workers in map(int, args.workers.split(",")):
            for what in args.what.split(","):
                run = {"replay": replay, "train": train}[what]
                print(json.dumps(run(os.path.abspath(args.recordings), workers, args, Path(folder))), flush=True)


if __name__ == "__main__":
    sys.exit(main())
