"""What `forecloud view` writes for rerun, read back."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import forecloud as fc
from conftest import TINY
from forecloud import view


def test_what_lacks_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(fc.errors.MissingExtra, match=r"pip install 'forecloud\[rerun\]'"):
        fc.show(TINY, save=tmp_path / "a.rrd")
    old = type(sys)("rerun")
    old.__version__, old.__path__, old.blueprint = "0.20.1", [], None
    monkeypatch.setitem(sys.modules, "rerun", old)
    monkeypatch.setitem(sys.modules, "rerun.blueprint", old)
    with pytest.raises(fc.errors.MissingExtra, match="0.41 or newer is needed"):
        fc.show(TINY)


def test_the_command_tells_what_is_wrong(capsys):
    assert view.command([]) == 2
    assert view.command(["--help"]) == 0
    capsys.readouterr()
    pytest.importorskip("rerun")
    assert view.command(["nowhere", "--save", "/tmp/a.rrd"]) == 1
    assert "error: nowhere" in capsys.readouterr().err
    assert view.command([str(TINY), "--save", "/nowhere/a.rrd"]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert view.command([str(TINY), "--remap", "x", "--save", "/tmp/a.rrd"]) == 1


def test_all_is_in_the_file(tmp_path, recording, predictions):
    pytest.importorskip("rerun")
    reader = pytest.importorskip("rerun.chunk").RrdReader
    path = tmp_path / "tiny.rrd"
    assert view.command([str(TINY), "--save", str(path)]) == 0
    file = reader(path)
    assert len(file.blueprints()) == 1
    rows: dict[str, int] = {}
    values: dict[str, list[float]] = {}
    for chunk in file.stream():
        entity = str(chunk.entity_path).strip("/")
        batch = chunk.to_record_batch()
        rows[entity] = rows.get(entity, 0) + batch.num_rows
        for name in batch.schema.names:
            if name.endswith("scalars"):
                values.setdefault(entity, []).extend(np.concatenate(batch.column(name).to_pylist()))
    n_frames, n_predicted = 6, len(predictions)
    for camera in recording.cameras:
        assert rows[f"world/{camera}/color"] == rows[f"depth/{camera}"] == n_frames
    assert rows["world/cloud"] == n_frames
    assert rows["world/prediction"] == rows["world/sigma"] == n_predicted
    assert rows["world/truth"] > 0
    # The errors are those of the predictions.
    frame = next(f for f in recording if f.stamp_ns == predictions[0].stamp_ns)
    truth = recording.true_motion(frame, predictions[0].positions, predictions[0].sources)
    if len(truth.positions) == 5:
        moving = truth.classes[-1] == fc.CLASSES.index("moving")
        apart = np.linalg.norm(predictions[0].paths()[-1] - truth.positions[-1], axis=1)[moving].mean()
        assert values["errors/prediction"][0] == pytest.approx(1e3 * apart, rel=1e-4)
    assert len(values["sigma/sigma"]) > 0 and min(values["sigma/sigma"]) > 0


def test_the_viewer_verifies_it(tmp_path):
    pytest.importorskip("rerun")
    path = tmp_path / "two.rrd"
    fc.show(TINY, save=path, max_frames=3, horizon=2)
    done = subprocess.run([sys.executable, "-m", "rerun", "rrd", "verify", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 file verified" in done.stdout + done.stderr
