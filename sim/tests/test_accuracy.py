"""The tables of docs/src/notebook/accuracy.md: whose errors, ratios to the better baseline, which recordings."""

import math
from pathlib import Path

import pytest

from sim import accuracy


def row(method, task, errors):
    return {"method": method, "class": "object_moving", "task": task, "mean_mm": errors}


@pytest.fixture
def report():
    """Two tasks and, as the tool pools them, both; two steps. The second task has no points in the second one."""
    errors = [
        row("model", "push", [1.0, 4.0]),
        row("model", "can", [4.0, None]),
        row("model", None, [3.25, 4.0]),
        row("nothing_moves", "push", [2.0, 8.0]),
        row("nothing_moves", None, [8.0, 8.0]),
        row("velocity_true", "push", [5.0, 5.0]),
        row("velocity_true", None, [5.0, 5.0]),
    ]
    return {"errors": errors, "horizon": 2}


def test_means_are_the_tools(report):
    assert accuracy.mean(report, "model", "object_moving") == [3.25, 4.0]
    assert accuracy.mean(report, "model", "object_moving", "push") == [1.0, 4.0]
    of_none = accuracy.mean(report, "model", "object_moving", "can")
    assert of_none[0] == 4.0 and math.isnan(of_none[1])
    assert accuracy.tasks(report) == ["can", "push"]


def test_ratios_are_to_the_better_baseline_of_each_step(report):
    assert accuracy.ratio(report, "object_moving") == [3.25 / 5.0, 4.0 / 5.0]
    assert accuracy.ratio(report, "object_moving", "push") == [1.0 / 2.0, 4.0 / 5.0]


def test_recordings_are_chosen_by_their_seeds():
    names = ["push_200000", "can_200004", "push_200005", "push_100000", "rope_400001", "belt_400001", "generate.json", "x"]
    paths = [Path(name) for name in names]
    assert [path.name for path in accuracy.chosen(accuracy.GROUPS["noise"], paths)] == names[:2]
    assert [path.name for path in accuracy.chosen(accuracy.GROUPS["test"], paths)] == names[:3]
    assert [path.name for path in accuracy.chosen(accuracy.GROUPS["soft"], paths)] == names[4:5]
    assert [path.name for path in accuracy.chosen(accuracy.GROUPS["strange"], paths)] == names[5:6]


def test_what_there_is_none_of_is_a_dash(report):
    report["horizon"] = 10
    for of_class in report["errors"]:
        of_class["mean_mm"] += [None] * 8
    assert accuracy.told(accuracy.ratio(report, "object_moving"), accuracy.two) == "0.65 / – / –"
    assert accuracy.told(accuracy.mean(report, "model", "object_sudden"), accuracy.mm) == "– / – / –"


def test_all_tables_are_made_of_any_report(report):
    report["horizon"] = 10
    for of_class in report["errors"]:
        of_class["mean_mm"] += [None] * 8
    shares = {"within_50": [0.514] * 10, "within_90": [None] * 10, "rank_correlation": [0.25] * 10}
    sigmas = {"sigma_mm": [0.0123] * 10, "sigma_90_mm": [12.34] * 10}
    report |= {"bags": [1, 2], "n_evaluated": 9, "confidence": [{"situation": "moving", **shares, **sigmas}]}
    text = "\n".join(accuracy.tables({"test": report}))
    assert "### test: 2 recordings, 9 frames" in text
    assert "| push | 1.00 / – / – | 0.50 / – / – |" in text
    assert (
        "| test, 2 | moving | 51 / 51 / 51 | – / – / – | 0.012 / 0.012 / 0.012 | 12.3 / 12.3 / 12.3 | 0.25 / 0.25 / 0.25 |"
        in text
    )
    text = "\n".join(accuracy.compared(["a", "b"], [{"test": report}] * 2))
    assert "| test | object moving | 1.00 / – / – |" in text


def test_digits():
    assert [accuracy.mm(value) for value in (0.234, 9.994, 9.996, 99.94, 99.96, 234.5)] == [
        "0.23", "9.99", "10.0", "99.9", "100", "234",
    ]
