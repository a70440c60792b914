"""Remakes the tables of docs/src/notebook/accuracy.md for any models, on the same recordings:

    .venv/bin/python -m sim.accuracy --out recordings --model models/small.safetensors --model mine.safetensors

Makes the recordings that are not there yet (some minutes), replays them with `forecloud replay`, and prints
Markdown. Ten steps ahead; figures are after 1 / 5 / 10 steps.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sim.splits import seeds

ROOT = Path(__file__).resolve().parents[1]
STEPS = 0, 4, 9
"""The steps that are shown, from 0 on."""
RIVALS = "nothing_moves", "velocity_true"
"""The baselines of which a ratio takes the better one, for each step."""


@dataclass(frozen=True)
class Group:
    """Recordings that stand together in the tables."""

    title: str
    variety: str
    split: str
    episodes: int
    """Of each task."""
    tasks: tuple[str, ...] = ()
    """All of the split, if empty."""
    options: tuple[str, ...] = ()
    """Further ones of `forecloud replay`."""
    folder: str = ""
    """Under --out."""


GROUPS = {
    "test": Group("test", "split", "test", 10, folder="split"),
    "unseen": Group("unseen", "split", "unseen", 10, folder="split"),
    "soft": Group("rope and cloth", "split", "materials", 10, ("cloth", "rope"), folder="split"),
    "strange": Group("grains and a belt", "split", "materials", 10, ("belt", "grains"), folder="split"),
    "noise": Group("test with noise", "split", "test", 5, options=("--sensor-noise", "1"), folder="split"),
    "real": Group("variety real", "real", "test", 4, folder="real"),
    "robots": Group("real arms", "real", "robots", 1, folder="robots"),
}


class NoRecordings(Exception):
    """The reason in words."""


def made(group: Group, out: Path) -> tuple[list[Path], bool]:
    """The group's recordings, made where they are not there; whether some could not be made."""
    folder = out / group.folder
    command = [sys.executable, "-m", "sim.generate", "--out", str(folder), "--variety", group.variety]
    command += ["--split", group.split, "--episodes", str(group.episodes)]
    command += ["--tasks", ",".join(group.tasks)] if group.tasks else []
    # What it says is not the tables'.
    done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
    found = chosen(group, sorted(folder.iterdir()) if folder.is_dir() else [])
    if not found:
        raise NoRecordings(f"sim.generate made none (status {done.returncode}): see above")
    return found, done.returncode != 0


def chosen(group: Group, paths: Iterable[Path]) -> list[Path]:
    """Those of a folder's recordings that are the group's."""
    wanted = set(seeds(group.split, 0, group.episodes))
    named = ((path, re.fullmatch(r"(.*)_(\d+)", path.name)) for path in paths)
    is_one = lambda name: int(name[2]) in wanted and (not group.tasks or name[1] in group.tasks)
    return [path for path, name in named if name and is_one(name)]


def replayed(tool: Path, model: Path, recordings: Iterable[Path], options: Iterable[str]) -> dict:
    """The report of `forecloud replay --json`."""
    command = [str(tool), "replay", "--horizon", "10", "--json", "--model", str(model), *options]
    done = subprocess.run([*command, *map(str, recordings)], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"forecloud replay ended with status {done.returncode}: see above")
    return json.loads(done.stdout)


def mean(report: dict, method: str, kind: str, task: str | None = None) -> list[float]:
    """Mean error (mm) after each step, over the points of a task or of all; not a number where there is none."""
    key = (method, kind, task)
    for row in report["errors"]:
        if (row["method"], row["class"], row["task"]) == key:
            return [math.nan if value is None else value for value in row["mean_mm"]]
    return [math.nan] * report["horizon"]


def ratio(report: dict, kind: str, task: str | None = None) -> list[float]:
    """The model's error over that of the better of two baselines, for each step."""
    model, *rivals = (mean(report, method, kind, task) for method in ("model", *RIVALS))
    return [over(error, min(better)) for error, *better in zip(model, *rivals, strict=True)]


def over(error: float, base: float) -> float:
    """Their ratio; not a number where there is none."""
    return error / base if base else math.nan


def told(values: list, form: Callable[[float], str]) -> str:
    """The steps that are shown; a dash for what there is none of."""
    is_none = lambda value: value is None or math.isnan(value)
    return " / ".join("–" if is_none(values[step]) else form(values[step]) for step in STEPS)


def mm(value: float) -> str:
    """Millimetres with three digits."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def two(value: float) -> str:
    return f"{value:.2f}"


def tasks(report: dict) -> list[str]:
    return sorted({row["task"] for row in report["errors"] if row["task"] is not None})


def by_task(report: dict) -> list[str]:
    """Rows of errors and ratios."""
    lines = ["| task | error, mm | over the better baseline | *nothing moves* | *constant velocity, estimated* |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    parts = [(task, "object_moving", task) for task in tasks(report)]
    for title, kind, task in [*parts, ("all", "object_moving", None), ("falls and impacts", "object_sudden", None)]:
        errors = [mean(report, m, kind, task) for m in ("model", "nothing_moves", "velocity_estimated")]
        model, nothing, velocity = (told(error, mm) for error in errors)
        lines.append(f"| {title} | {model} | {told(ratio(report, kind, task), two)} | {nothing} | {velocity} |")
    return lines


def others(report: dict) -> str:
    """What does not move, or is the robot's."""
    robot, static, rest, still = (
        told(mean(report, method, kind), two)
        for method, kind in [
            ("model", "robot"),
            ("model", "static"),
            ("model", "object_resting"),
            ("nothing_moves", "object_resting"),
        ]
    )
    return (
        f"Robot points {robot} mm; false motion of static points {static} mm in the step; objects at rest {rest} mm "
        f"(*nothing moves* {still})."
    )


def confidence(title: str, report: dict) -> list[str]:
    """Rows of what the intervals hold."""
    percent = lambda share: f"{100 * share:.0f}"
    digits = lambda value: f"{value:.2g}" if value < 10 else mm(value)
    forms = {
        "within_50": percent,
        "within_90": percent,
        "sigma_mm": digits,
        "sigma_90_mm": digits,
        "rank_correlation": two,
    }
    return [
        f"| {title} | {row['situation']} | " + " | ".join(told(row[key], form) for key, form in forms.items()) + " |"
        for row in report["confidence"]
    ]


def tables(reports: dict[str, dict]) -> list[str]:
    """All tables of one model; `reports` by the groups' titles."""
    lines = []
    for title, report in reports.items():
        n = len(report["bags"])
        lines += ["", f"### {title}: {n} recordings, {report['n_evaluated']} frames", "", *by_task(report), "", others(report)]
    rows = [row for title, report in reports.items() for row in confidence(f"{title}, {len(report['bags'])}", report)]
    if rows:
        lines += ["", "### How sure it says it is", ""]
        lines += ["| recordings | particles | within sigma, % | within sigma_90, % | sigma, mm | sigma_90, mm | rank correlation |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- |", *rows]
    return lines


def compared(names: list[str], reports: list[dict[str, dict]]) -> list[str]:
    """Each further model's error over the first one's."""
    lines = ["", f"## Errors over those of {names[0]}", "", "| recordings | points | " + " | ".join(names[1:]) + " |"]
    lines += ["| --- | --- | " + " | ".join("---" for _ in names[1:]) + " |"]
    for title, first in reports[0].items():
        for kind in ("object_moving", "object_sudden", "object_resting", "robot"):
            base = mean(first, "model", kind)
            shares = []
            for further in reports[1:]:
                errors = zip(mean(further[title], "model", kind), base, strict=True)
                shares.append(told([over(*pair) for pair in errors], two))
            lines.append(f"| {title} | {kind.replace('_', ' ')} | " + " | ".join(shares) + " |")
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sim.accuracy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the recordings")
    parser.add_argument(
        "--model", type=Path, action="append", metavar="FILE",
        help="a model; may be given several times: further ones are compared with the first [default: the shipped one]",
    )
    parser.add_argument(
        "--only", default=",".join(GROUPS), metavar="GROUPS",
        help="by commas, some of " + ", ".join(GROUPS) + " [default: all]",
    )
    parser.add_argument("--tool", type=Path, default=ROOT / "target/release/forecloud", metavar="FILE")
    given = parser.parse_args()
    given.model = given.model or [ROOT / "models/small.safetensors"]
    given.only = given.only.split(",")
    given.out = given.out.resolve()
    for name in given.only:
        if name not in GROUPS:
            parser.error(f"--only: {name!r} is none of {', '.join(GROUPS)}")
    for path in (*given.model, given.tool):
        if not path.is_file():
            parser.error(f"{path} is not there")
    return given


def main() -> int:
    given = arguments()
    reports: list[dict[str, dict]] = [{} for _ in given.model]
    left_out = []
    for name in given.only:
        group = GROUPS[name]
        try:
            recordings, some_lack = made(group, given.out)
        except NoRecordings as reason:
            left_out.append(f"{group.title}: {reason}")
            continue
        if some_lack:
            left_out.append(f"{group.title}: some recordings: sim.generate says which, above")
        for model, of_model in zip(given.model, reports, strict=True):
            of_model[group.title] = replayed(given.tool, model, recordings, group.options)
    names = [os.path.relpath(model) for model in given.model]
    for name, of_model in zip(names, reports, strict=True):
        if not of_model:
            continue
        hashes = {report["model_hash"] for report in of_model.values()}
        print(f"## {name} ({', '.join(sorted(hashes))})", *tables(of_model), "", sep="\n")
    if len(names) > 1 and reports[0]:
        print(*compared(names, reports), sep="\n")
    for reason in left_out:
        print(f"left out: {reason}", file=sys.stderr)
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
