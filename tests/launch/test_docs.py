"""Command lines in the documentation are ones that the launch file takes."""

from __future__ import annotations

import re
import shlex

import pytest
from conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def launch_lines() -> list[tuple[str, dict[str, str]]]:
    """Page, and arguments by name, of each `ros2 launch forecloud` in a code block."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            for line in block.replace("\\\n", " ").splitlines():
                if not line.startswith("ros2 launch "):
                    continue  # other commands may go over several lines, as SQL does
                words = shlex.split(line, comments=True)
                if words[:4] == ["ros2", "launch", "forecloud", "forecloud.launch.py"]:
                    given = [word for word in words[4:] if word != "--show-args"]
                    found.append((page.name, dict(word.split(":=", 1) for word in given)))
    return found


def test_the_lines_are_found():
    assert len(launch_lines()) > 15


@pytest.mark.parametrize("page, given", launch_lines())
def test_the_launch_file_takes_the_line(start, page, given):
    start.packages |= {"ros2bag", "rviz2"}
    # Files that the reader has.
    here = {
        "params": "config/forecloud.yaml",
        "relay_params": "config/plan_relay.yaml",
        "bag": "tests/data/tiny_push",
        "model": "models/small.safetensors",
    }
    given |= {name: str(ROOT / here[name]) for name in given.keys() & here.keys()}
    start(**given)


def test_links_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name}: {link}"
