"""The tool's commands from Python: each runs in a process of its own, so that Ctrl-C ends it as it ends the
command (training with a checkpoint), and its results are the command's."""

from __future__ import annotations

import html
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from . import _arrays
from .errors import ConfigError, InputError, MissingExtra, ToolError

@dataclass
class Result:
    """What a command of the tool came to."""

    exit_code: int
    """0: all was done; 3: a result, but not of all that was asked for, or something in it is suspicious."""
    stdout: str
    """What it printed."""
    messages: list[str] = field(default_factory=list)
    """What it said on stderr, line by line."""


def run(command: str, *arguments: Any, progress: bool = True, **options: Any) -> Result:
    """Runs `forecloud COMMAND ARGUMENTS… --OPTIONS…`.

    Options are the command's: `learning_rate=1e-4` is `--learning-rate=1e-4`, True is a flag, None and False
    leave an option out, a list repeats it. What the command says goes to `sys.stderr` while it runs unless
    `progress` is false.

    Raises `ToolError` with the tool's words if it fails, `ConfigError` if its options are wrong.
    KeyboardInterrupt ends the command first: `train` writes a checkpoint, and the same call goes on.
    """
    line = [sys.executable, "-m", "forecloud", command, *_line(arguments, options)]
    return _run(line, progress)


def _line(arguments: Sequence[Any], options: Mapping[str, Any]) -> list[str]:
    def text(name: str, value: Any) -> str:
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, (str, int, float, os.PathLike)):
            raise ConfigError(f"{name}: {value!r} is no setting")
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)

    line = []
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            line.append(option)
        elif name == "workspace":
            corners = _arrays.box(name, value) or []
            line += [option, *(",".join(repr(x) for x in corner) for corner in corners)]
        elif isinstance(value, Mapping):
            line += [f"{option}={old}:={new}" for old, new in value.items()]
        elif isinstance(value, (list, tuple)):
            line += [f"{option}={text(name, item)}" for item in value]
        else:
            line.append(f"{option}={text(name, value)}")
    given = [text("argument", argument) for argument in arguments]
    # What begins with a dash is a path, too.
    return [*line, "--", *given] if given else line


def _run(line: Sequence[str], progress: bool) -> Result:
    # A terminal's Ctrl-C shall reach this process alone: it ends the command, once.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            encoding="utf-8", errors="replace", env={**os.environ, "PYTHONPATH": _search_path()},
        )
    except OSError as error:
        raise ToolError(f"cannot start {line[0]}: {error}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    messages: list[str] = []
    printed: list[str] = []

    def listen() -> None:
        assert process.stderr is not None
        for message in process.stderr:
            messages.append(message.rstrip("\n"))
            if progress:
                print(message, end="", file=sys.stderr, flush=True)

    def read() -> None:
        assert process.stdout is not None
        printed.append(process.stdout.read())

    threads = [threading.Thread(target=work, daemon=True) for work in (listen, read)]
    for thread in threads:
        thread.start()
    try:
        process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        for thread in threads:
            thread.join()
    result = Result(process.returncode, "".join(printed), messages)
    if result.exit_code in (0, 3):
        return result
    said = "\n".join(messages)
    if result.exit_code == 2:
        words = said.split("\n\nUsage:")[0].split("\n\nFor more information")[0]
        raise ConfigError(words.removeprefix("error: ").strip())
    at = said.rfind("error: ")
    problem = said[at + 7 :] if at >= 0 else said or f"ended with {result.exit_code}"
    raise ToolError(problem.strip(), result.exit_code, said)


def _search_path() -> str:
    """So that the process finds this package, wherever it was imported from."""
    here = str(Path(__file__).parent.parent)
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


class Table(dict):
    """A table as a dictionary: the name of a column to its values, all equally many.

    `report` is all that `forecloud replay --json` tells.
    """

    report: dict[str, Any]

    def dataframe(self) -> Any:
        """As a pandas DataFrame; needs pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise MissingExtra("pandas is not installed: pip install pandas") from None
        return pandas.DataFrame(dict(self))

    def _repr_html_(self) -> str:
        """For notebooks."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self)
        rows = zip(*self.values())
        body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else html.escape(str(value))


def replay(bags: Any, *, model: Any = None, progress: bool = True, **options: Any) -> Table:
    """How good predictions of recordings are: a row for each method, class of points, task and step.

    `bags`: a recording or a list of them. Options are those of `forecloud replay` (`horizon=10`,
    `no_truth=True`, `out="results"`, `threads=1`, …).

    Columns (NumPy arrays): `method`, `class`, `task` (`"all"`: all of them pooled), `step` (from 1), `secs`,
    `mean_mm` (mean distance of predicted from true positions, mm; of static points the predicted motion;
    NaN where nothing was measured), `n_points`. Recordings without truth give no rows: see
    `table.report["hindsight"]`. `report["skipped"]` names recordings that could not be replayed.

    Raises `ToolError` if nothing could be predicted.
    """
    if isinstance(bags, (str, bytes, os.PathLike)):
        bags = [bags]
    bags = [os.fsdecode(bag) for bag in bags]
    if not bags:
        raise InputError("bags: no recording was named")
    model = getattr(model, "path", model)
    result = run("replay", *bags, progress=progress, model=model, json=True, **options)
    report = json.loads(result.stdout)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("method", "class", "task", "step", "secs", "mean_mm", "n_points")
    }
    for row in report["errors"]:
        for step, (mean, n) in enumerate(zip(row["mean_mm"], row["n_points"]), start=1):
            values = (row["method"], row["class"], row["task"] or "all", step, step * report["step_secs"],
                      float("nan") if mean is None else mean, n)
            for column, value in zip(columns.values(), values):
                column.append(value)
    types = {"step": np.int64, "secs": np.float64, "mean_mm": np.float64, "n_points": np.int64}
    table = Table({name: np.array(column, types.get(name, str)) for name, column in columns.items()})
    table.report = report
    return table


def check(bags: Any, *, progress: bool = False, **options: Any) -> list[dict[str, Any]]:
    """Whether the robot is where the cameras see it, and cameras, clocks and joints agree: `forecloud check`.

    `bags`: a recording or a list of them. Options are the command's (`cameras="front"`, `param="robot:=none"`,
    …).

    Returns a dictionary for each: `path`, `verdict` (`"ok"`, `"warn"` or `"fail"`, the worst of all),
    `n_frames`, `n_with_robot` and `items`, each with `what`, `verdict`, `evidence`, `values` (numbers, by names
    that end with their units), `cause` and `remedy` (None where nothing is wrong).

    Raises `ToolError` if one can't be read.
    """
    if isinstance(bags, (str, bytes, os.PathLike)):
        bags = [bags]
    bags = [os.fsdecode(bag) for bag in bags]
    if not bags:
        raise InputError("bags: no recording was named")
    return json.loads(run("check", *bags, progress=progress, json=True, **options).stdout)


def train(recordings: Any, out: Any, *, progress: bool = True, **options: Any) -> dict[str, Any]:
    """Trains a model on a folder of recordings: `forecloud train RECORDINGS --out OUT`.

    Options are the command's (`steps=2000`, `from_="models/small.safetensors"`, `teacher="hindsight"`, …;
    `from_` is `--from`). Ctrl-C writes a checkpoint and raises KeyboardInterrupt; the same call goes on from
    there, to the same model.

    Returns `model` (path), `log` (a list of dictionaries, one a validation), `curve` (path of the picture of
    the errors) and `checkpoint` (path).
    """
    folder = Path(os.fsdecode(out))
    run("train", os.fsdecode(recordings), out=folder, progress=progress, **options)
    log = folder / "train.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return {
        "model": str(folder / "model.safetensors"),
        "log": [json.loads(line) for line in lines],
        "curve": str(folder / "curve.svg"),
        "checkpoint": str(folder / "checkpoint.safetensors"),
    }
