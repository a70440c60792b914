"""The launch file under the real `launch`, where it is installed: the command line of the node."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT

launch = pytest.importorskip("launch.launch_service", reason="`launch` is not installed")
pytest.importorskip("launch_ros", reason="`launch_ros` is not installed")

SCRIPT = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
service = LaunchService()
given = [tuple(word.split(":=", 1)) for word in sys.argv[2:]] + [("launch-prefix", "echo RAN")]
source = PythonLaunchDescriptionSource(sys.argv[1])
included = IncludeLaunchDescription(source, launch_arguments=given)
service.include_launch_description(LaunchDescription([included]))
sys.exit(service.run())
"""


def run(*given: str) -> subprocess.CompletedProcess:
    file = str(ROOT / "launch" / "forecloud.launch.py")
    env = os.environ | {"OVERRIDE_LAUNCH_PROCESS_OUTPUT": "screen"}
    command = [sys.executable, "-c", SCRIPT, file, *given]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


def node_words(*given: str) -> list[str]:
    done = run(*given)
    line = next((line for line in done.stdout.splitlines() if "RAN" in line), None)
    assert line, done.stdout + done.stderr
    assert done.returncode == 0
    return shlex.split(line)


def test_defaults():
    words = node_words()
    assert words.count("--params-file") == 1
    assert "__node:=forecloud" in words and "__ns:=/" in words


def test_overrides_and_remaps():
    words = node_words("cameras:=a/b", "driver:=realsense", "namespace:=robot1", "input:=points")
    assert words.count("--params-file") == 2
    assert "__ns:=/robot1" in words
    assert "a/b/depth/image_raw:=a/b/aligned_depth_to_color/image_raw" in words


def test_relay_is_started_too():
    done = run("relay:=arm,hand", "namespace:=robot1")
    words = [shlex.split(line) for line in done.stdout.splitlines() if "RAN" in line]
    assert len(words) == 2, done.stdout + done.stderr
    assert any("__node:=forecloud_plan_relay" in line and "__ns:=/robot1" in line for line in words)


def test_a_wrong_argument_ends_it_with_the_cause():
    done = run("driver:=zed")
    assert done.returncode == 1
    assert "`driver` needs `cameras`" in done.stdout + done.stderr
