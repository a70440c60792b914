"""The closed loop over DDS: the simulator's topics, the real node, `~/plan`, and what is written of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from recording import read

# The simulator's wheels are not ROS's. What scripts/ros2_env exports it sets again for the ROS side; a
# ROS that was sourced otherwise stays.
PYTHON = Path(os.environ.get("SIM_PYTHON", ROOT / ".venv" / "bin" / "python"))
WHEELS = str(ROOT / ".ros2" / "venv") in os.environ.get("AMENT_PREFIX_PATH", "")
WITHOUT = ("PYTHONPATH", "LD_LIBRARY_PATH", "AMENT_PREFIX_PATH") if WHEELS else ()


def left_behind(before: set[str]) -> set[str]:
    """Large segments of shared memory that came since, and that no process holds."""
    come = segments() - before
    held = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text()
        except OSError:  # it has ended
            continue
        held |= {name for name in come if name in text}
    return come - held


def segments() -> set[str]:
    """Those of Fast DDS, by name."""
    found = set()
    for path in Path("/dev/shm").glob("fastrtps_*"):
        try:
            if path.stat().st_size > 10_000_000:
                found.add(path.name)
        except OSError:
            continue
    return found


@pytest.mark.skipif(
    not PYTHON.exists(), reason="no simulator: python -m venv .venv && .venv/bin/pip install -r sim/requirements.txt"
)
def test_a_decision_is_asked_for_carried_out_and_written(tmp_path):
    command = [str(PYTHON), "-m", "sim.closed_loop", "--out", str(tmp_path), "--tasks", "push", "--planners", "forecloud"]
    command += ["--episodes", "1", "--decisions", "1", "--max-plans", "16", "--budget", "60", "--no-film", "--pause"]
    before = segments()
    environment = {name: value for name, value in os.environ.items() if name not in WITHOUT}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    if "rendering needs OpenGL" in ended.stderr:
        pytest.skip(ended.stderr.strip())
    assert ended.returncode == 0, ended.stderr
    assert not left_behind(before), "a process was killed that should have ended"
    [row] = map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())
    [decision] = row["decisions"]
    assert decision["plans"] == 16, decision["message"]
    assert decision["idle"] > decision["cost"], "some push is better than none"
    # The node sees by its cameras what the simulator knows.
    assert abs(decision["idle_reach_m"] - decision["error_before_m"]) < 0.02
    if decision["acted"]:
        assert decision["error_after_m"] != pytest.approx(decision["error_before_m"], abs=1e-4)
    topics = {message.topic for message in read(tmp_path / "bags" / "push_seen_forecloud_0_0", with_truth=True)}
    assert {"/camera_left/depth/image_raw", "/planned_joints", "/tf", "/joint_states", "/truth/body_poses"} <= topics
