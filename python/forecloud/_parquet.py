"""Results of many recordings as a table: a row for each recording, step and class of points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .errors import MissingExtra

METHODS = ("model", "node", "nothing_moves", "velocity_estimated", "velocity_true", "observed")
"""In the order of `crates/eval/src/method.rs`."""
CLASSES = ("object_moving", "object_resting", "robot", "static", "object_sudden")
"""In the order of `crates/eval/src/metrics.rs`."""
REGIONS = ("moving", "static", "robot", "hidden")
"""In the order of `crates/eval/src/region.rs`."""
TOLD = ("model", "nothing_moves", "velocity_estimated", "velocity_true")


def rows(recording: str, outcome: dict[str, Any], step_secs: float) -> list[dict[str, Any]]:
    """Rows of one recording, from what `forecloud replay --shard` keeps of it.

    Columns: `recording`, `task`, `measure` (`error`: mean distance from the true positions;
    `chamfer`: from what was seen later, where there is no truth), `class` (of points, or of regions),
    `step` (from 1), `time_s`, `n_points`, a column in mm for each method, and `skipped` (why there is none).
    """
    empty = {"task": None, "measure": None, "class": None, "step": None, "time_s": None, "n_points": 0,
             **{f"{method}_mm": None for method in TOLD}, "skipped": None}
    if "skipped" in outcome:
        return [{"recording": recording, **empty, "skipped": outcome["skipped"]}]
    part = outcome["result"]
    table: dict[tuple[Any, ...], dict[str, Any]] = {}

    def put(key: tuple[Any, ...], method: str, n_points: int, value: float | None) -> None:
        task, measure, name, step = key
        row = table.setdefault(key, {"recording": recording, **empty, "task": task, "measure": measure,
                                     "class": name, "step": step + 1, "time_s": (step + 1) * step_secs})
        row[f"{method}_mm"] = value
        if method == "model":
            row["n_points"] = n_points

    mean = lambda value: value["sum"] / value["n"] if value["n"] else None
    for method, scores in zip(METHODS, part["scores"]):
        if method in TOLD:
            for task, steps in scores["by_task"].items():
                for step, means in steps.items():
                    for name, value in zip(CLASSES, means):
                        if value["n"]:
                            put((task, "error", name, int(step)), method, value["n"], mean(value))
    for step, methods in enumerate((part["findings"] or {"tallies": {"steps": []}})["tallies"]["steps"]):
        for method, regions in zip(METHODS, methods):
            for name, tally in zip(REGIONS, regions):
                if method in TOLD and tally["n_points"]:
                    ways = [mean(tally["to_observed_mm"]), mean(tally["to_predicted_mm"])]
                    value = None if None in ways else 0.5 * (ways[0] + ways[1])
                    put((None, "chamfer", name, step), method, tally["n_points"], value)
    return [table[key] for key in sorted(table, key=lambda key: tuple(map(str, key[:3])) + (key[3],))]


def write(path: Path, table: list[dict[str, Any]]) -> None:
    """Writes the rows as Parquet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("results as Parquet need pyarrow: pip install 'forecloud[ray]'") from None
    types = {"step": pyarrow.int32(), "time_s": pyarrow.float64(), "n_points": pyarrow.int64(),
             **{f"{method}_mm": pyarrow.float64() for method in TOLD}}
    names = ["recording", "task", "measure", "class", "step", "time_s", "n_points",
             *(f"{method}_mm" for method in TOLD), "skipped"]
    schema = pyarrow.schema([(name, types.get(name, pyarrow.string())) for name in names])
    unfinished = path.with_name(f".{path.name}.part")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table, schema=schema), unfinished)
    unfinished.replace(path)
