"""`forecloud cluster`: replay, label and train on many machines, by Ray. The work itself is the tool's.

A recording is one task, which may be done twice without harm: what comes of it depends on nothing else, and
is kept as one file. See docs/src/guide/cluster.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import _parquet, _stored
from .errors import ConfigError, ForecloudError, MissingExtra, ToolError

OLDEST, NEXT = (2, 9), (3, 0)
"""Versions of Ray that this is written for: from the first on, before the second."""


def connect(address: str | None) -> Any:
    """Ray, connected to the cluster at `address`; without one, to one that is started on this machine.

    Raises `MissingExtra` if Ray is not installed or of another version, `ConfigError` if it can't be reached.
    """
    remedy = "pip install 'forecloud[ray]'"
    try:
        import ray
    except ImportError as error:
        raise MissingExtra(f"`forecloud cluster` needs Ray, which can't be imported ({error}): {remedy}") from None
    try:
        version = tuple(int(part) for part in str(ray.__version__).split(".")[:2])
    except (AttributeError, ValueError):
        version = (0, 0)
    if not OLDEST <= version < NEXT:
        told = getattr(ray, "__version__", "of no version")
        span = "from {}.{} on, before {}.{}".format(*OLDEST, *NEXT)
        raise MissingExtra(f"Ray {told} is not one that this works with ({span}): {remedy}")
    if not ray.is_initialized():
        here = str(Path(__file__).parent.parent)
        search = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
        try:
            ray.init(address=address, log_to_driver=False, logging_level="warning",
                     runtime_env={"env_vars": {"PYTHONPATH": search}})
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            raise ConfigError(f"--address {address}: no Ray cluster can be reached ({error}); start one with "
                              "`ray start --head`, or leave --address out for one on this machine") from None
    return ray


def tool(*arguments: str) -> list[str]:
    """The command line of the tool."""
    return [sys.executable, "-m", "forecloud", *arguments]


def _run(arguments: list[str], **settings: Any) -> "subprocess.CompletedProcess[bytes]":
    search = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]))
    return subprocess.run(tool(*arguments), env={**os.environ, "PYTHONPATH": search}, **settings)


def said(done: "subprocess.CompletedProcess[bytes]") -> str:
    """The error that the tool ended with."""
    text = (done.stderr or b"").decode(errors="replace").strip()
    return text[text.rfind("error: ") + 7 :] if "error: " in text else text or f"ended with {done.returncode}"


def _one(command: str, path: str, options: list[str], model: bytes | None) -> dict[str, Any]:
    """Works on one recording, on whatever machine this runs: what it left, as `--shard` leaves it."""
    begun, before = time.monotonic(), os.times()
    with _stored.fetched(path) as place, tempfile.TemporaryDirectory(prefix="forecloud-") as folder:
        out = Path(folder) / "out"
        arguments = [command, "--shard", "1/1", "--labels" if command == "label" else "--out", str(out), *options]
        if model is not None:
            (Path(folder) / "model.safetensors").write_bytes(model)
            arguments += ["--from" if command == "label" else "--model", str(Path(folder) / "model.safetensors")]
        done = _run([*arguments, "--", place], stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode not in (0, 3):
            raise RuntimeError(said(done))
        manifest = json.loads((out / "shard_1_of_1.json").read_text())
        saved = json.loads((out / _stored.saved_name(place)).read_text())
        saved["recording"] = path
        outcome = saved["outcome"]
        if "skipped" in outcome:
            outcome["skipped"] = outcome["skipped"].replace(place, path)
        elif command == "replay":
            outcome["result"]["bag"]["path"] = path
        labels = {file.name: file.read_bytes() for file in out.glob("*.labels")}
    after = os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    return {"saved": saved, "terms": manifest["terms"], "labels": labels, "secs": time.monotonic() - begun,
            "cpu_secs": cpu}


def _terms(command: str, options: list[str], model: str | None) -> dict[str, Any]:
    """All that results depend on, beside the recordings: of a share that has none of them."""
    with tempfile.TemporaryDirectory(prefix="forecloud-") as folder:
        out = str(Path(folder) / "out")
        arguments = [command, "--shard", "2/2", "--labels" if command == "label" else "--out", out, *options]
        if model is not None:
            arguments += ["--from" if command == "label" else "--model", model]
        # It is another share's, and not opened.
        place = Path(folder) / "none.mcap"
        place.touch()
        done = _run([*arguments, "--", str(place)], stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode == 2:
            raise ConfigError(said(done).split("\n\nUsage:")[0])
        if done.returncode != 0:
            raise ToolError(said(done), done.returncode)
        return json.loads((Path(out) / "shard_2_of_2.json").read_text())


class Progress:
    """Tells how far work is, on stderr."""

    def __init__(self, what: str, n: int) -> None:
        self.what, self.n, self.begun = what, n, time.monotonic()
        self.is_terminal = sys.stderr.isatty()

    def tell(self, n_done: int, n_now: int) -> None:
        """`n_done` of all are done, `n_now` of them in this run."""
        rate = (time.monotonic() - self.begun) / max(n_now, 1)
        left = f", {rate * (self.n - n_done):.0f} s left" if n_now else ""
        line = f"{self.what} {n_done} of {self.n} recordings{left}"
        print(f"\r{line}\033[K" if self.is_terminal else line, end="" if self.is_terminal else "\n",
              file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """A line of its own."""
        print(f"\r{line}\033[K" if self.is_terminal else line, file=sys.stderr, flush=True)


def spread(command: str, paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str], *,
           address: str | None = None, options: list[str] | None = None, model: str | None = None,
           cpus: int = 1, retries: int = 3, on_done: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Runs `forecloud replay` or `label` on each recording, wherever there is room in the cluster.

    Results are kept in the folder `out` (of labels: the labels, too), which is then that of a `--shard 1/1`
    of the same recordings: `forecloud merge` reads it. Recordings whose result is there are not done again.
    Returns `n` (recordings), `n_before`, `skipped` (path to reason), `cpu_secs`, `secs` (of all tasks).
    `on_done` is called with each recording that was done.

    Raises what `connect` does, `RecordingError` for paths without recordings, `ConfigError` and `ToolError`
    where the tool refuses the options, `ForecloudError` where a machine runs another version or model.
    """
    options = [*(options or []), "--threads", str(cpus)]
    recordings = _stored.recordings_below([os.fspath(path) for path in paths])
    manifest = _terms(command, options, model)
    manifest.update(shard="1/1", recordings=recordings)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    compact = lambda value: json.dumps(value, separators=(",", ":")).encode()
    _stored.write(folder / "shard_1_of_1.json", compact(manifest))
    waiting = [path for path in recordings if not _is_done(folder, path, manifest["terms"])]
    told = {"n": len(recordings), "n_before": len(recordings) - len(waiting), "skipped": {}, "cpu_secs": 0.0,
            "secs": 0.0}
    progress = Progress({"replay": "replayed", "label": "labelled"}[command], len(recordings))
    if waiting:
        ray = connect(address)
        content = ray.put(Path(model).read_bytes()) if model else None
        task = ray.remote(num_cpus=cpus, max_retries=0)(_one)
        start = lambda path: task.remote(command, path, options, content)
        most = max(4, 4 * int(ray.cluster_resources().get("CPU", 1)) // cpus)
        under_way: dict[Any, str] = {}
        tries = dict.fromkeys(waiting, 0)
        n_now = 0
        waiting.reverse()
        while waiting or under_way:
            while waiting and len(under_way) < most:
                path = waiting.pop()
                tries[path] += 1
                under_way[start(path)] = path
            for ready in ray.wait(list(under_way), timeout=1.0)[0]:
                path = under_way.pop(ready)
                try:
                    came = ray.get(ready)
                except ray.exceptions.RayError as error:
                    cause = getattr(error, "cause", None) or error
                    reason = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
                    if tries[path] <= retries:
                        progress.say(f"again: {path}: {reason}")
                        waiting.append(path)
                        continue
                    reason = f"failed {tries[path]} times, the last: {reason}"
                    saved = {"generator": "forecloud shard", "recording": path, "fingerprint": "",
                             "terms": manifest["terms"], "outcome": {"skipped": reason}}
                    came = {"saved": saved, "terms": manifest["terms"], "labels": {}, "secs": 0, "cpu_secs": 0}
                _must_be(came["terms"], manifest["terms"])
                for name, labels in came["labels"].items():
                    _stored.write(folder / name, labels)
                _stored.write(folder / _stored.saved_name(path), compact(came["saved"]))
                if "skipped" in came["saved"]["outcome"]:
                    told["skipped"][path] = came["saved"]["outcome"]["skipped"]
                    progress.say(f"skipped: {path}: {told['skipped'][path]}")
                told["cpu_secs"] += came["cpu_secs"]
                told["secs"] += came["secs"]
                n_now += 1
                progress.tell(told["n_before"] + n_now, n_now)
                if on_done:
                    on_done(path)
        if progress.is_terminal:
            print(file=sys.stderr)
    if command == "replay":
        table = []
        for path in recordings:
            saved = json.loads((folder / _stored.saved_name(path)).read_text())
            table += _parquet.rows(path, saved["outcome"], manifest["terms"]["step_secs"])
        _parquet.write(folder / "results.parquet", table)
    return told


def _must_be(terms: dict[str, Any], own: dict[str, Any]) -> None:
    for key, value in own.items():
        if terms.get(key) != value:
            raise ForecloudError(f"a machine of the cluster works with another {key} ({terms.get(key)}, here "
                                 f"{value}): install the same version of forecloud on all of them")


def _is_done(folder: Path, path: str, terms: dict[str, Any]) -> bool:
    """Whether the result of a recording is there, of these terms and this content. Skipped ones are not."""
    try:
        saved = json.loads((folder / _stored.saved_name(path)).read_text())
        result = saved["outcome"]["result"]
        names = result.get("labels", []) if isinstance(result, dict) else []
        return (saved["recording"] == path and saved["terms"] == terms
                and saved["fingerprint"] == _stored.fingerprint(path)
                and all((folder / name).is_file() for name in names))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def replay(paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str], **settings: Any) -> dict[str, Any]:
    """`forecloud replay` of many recordings on a cluster; returns the report that one `forecloud replay --json`
    of all of them prints, equal to the last digit but for what measures time.

    `settings` as of `spread`. The folder `out` also gets `results.parquet`: a row for each recording, step and
    class of points.
    """
    spread("replay", paths, out, **settings)
    done = _run(["merge", "--json", "--", os.fspath(out)], stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode not in (0, 3):
        raise ToolError(said(done), done.returncode)
    return json.loads(done.stdout)


def label(paths: Iterable[str | os.PathLike[str]], labels: str | os.PathLike[str], **settings: Any) -> dict[str, Any]:
    """`forecloud label` of many recordings on a cluster; `settings` and what is returned as of `spread`."""
    return spread("label", paths, labels, **settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forecloud cluster", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Replay, label and train on many machines, by Ray (pip install 'forecloud[ray]').",
        epilog="Options behind a lone -- are those of `forecloud replay`, `label` or `train`:\n"
               "  forecloud cluster replay s3://bucket/bags --out results --address auto -- --horizon 10\n"
               "  forecloud cluster label my_bags --out labels --address auto\n"
               "  forecloud cluster train my_bags --out runs/mine --address auto -- --steps 2000 --batch 8\n\n"
               "Exit codes as of the tool: 0 all was done, 1 an error, 2 wrong arguments, 3 recordings were skipped.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in [
        ("replay", "how good predictions of recordings are; a second run does what is missing"),
        ("label", "labels for training by hindsight; a second run does what is missing"),
        ("train", "one model, of which each worker computes a share of each step"),
    ]:
        of = commands.add_parser(name, help=what, description=what)
        of.add_argument("paths", nargs=1 if name == "train" else "+", metavar="PATH",
                        help="recordings, or folders of such: local, shared, or URLs (s3://…)")
        of.add_argument("--out", required=True, metavar="DIR", help="folder of the results")
        of.add_argument("--address", metavar="ADDRESS",
                        help="the cluster: auto, HOST:PORT or ray://HOST:PORT; none: one on this machine")
        of.add_argument("--cpus", type=int, default=1, metavar="N", help="cores of a task or worker [1]")
        if name == "train":
            of.add_argument("--workers", type=int, metavar="N",
                            help="at most so many workers [as the cluster has room for, one for each window]")
        else:
            of.add_argument("--model", metavar="FILE", help="the model, on this machine [the shipped one]")
            of.add_argument("--retries", type=int, default=3, metavar="N",
                            help="times that a recording is tried again after a worker died [3]")
    return parser


def command(arguments: list[str]) -> int:
    """Runs `forecloud cluster` with these arguments; returns its exit code."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    try:
        args = _parser().parse_args(arguments[:at])
    except SystemExit as ended:
        return int(ended.code or 0)
    options = arguments[at + 1 :]
    try:
        if args.cpus < 1 or getattr(args, "retries", 0) < 0 or (getattr(args, "workers", 1) or 1) < 1:
            raise ConfigError("--cpus and --workers are at least 1, --retries at least 0")
        if args.command == "train":
            from ._cluster_train import train

            return train(args.paths[0], args.out, address=args.address, options=options, cpus=args.cpus,
                         workers=args.workers)
        spread(args.command, args.paths, args.out, address=args.address, options=options, model=args.model,
               cpus=args.cpus, retries=args.retries)
        return _run(["merge", "--", args.out]).returncode
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ForecloudError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
