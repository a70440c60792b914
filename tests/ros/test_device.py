"""Parameter `device`: what the node says where a GPU can't be used."""

from __future__ import annotations

import subprocess

import pytest
from conftest import NodeProcess
from test_diagnostics import ERROR, OK, WARN, Diagnostics

DRIVER = """
// A card answers, but the driver lacks all else.
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
"""


@pytest.fixture
def poor_driver(tmp_path, monkeypatch):
    """A libcuda of one card for the nodes that the test starts."""
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / "libcuda.so"],
        input=DRIVER, text=True, check=True,
    )  # fmt: skip
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path), prepend=":")


@pytest.mark.parametrize(("device", "level"), [("auto", WARN), ("cpu", OK)])
def test_a_gpu_that_is_not_used_is_a_warning(ros, poor_driver, device, level):
    diagnostics = Diagnostics(ros, f"on_{device}")
    node = NodeProcess("-r", f"__node:=on_{device}", "-p", f"device:={device}")
    told = ("predictions run on the CPU", "cuda:0: libcuda lacks cu") if level == WARN else ()
    status = diagnostics.wait_for("model", level, *told)
    assert {"device": "cpu"}.items() <= {v.key: v.value for v in status.values}.items()
    if told:
        node.wait_for_log("WARN", *told)
    assert node.stop() == 0


def test_a_gpu_that_is_asked_for_and_not_there_ends_the_node(ros, poor_driver):
    diagnostics = Diagnostics(ros, "on_cuda")
    node = NodeProcess("-r", "__node:=on_cuda", "-p", "device:=cuda:0")
    diagnostics.wait_for("start", ERROR, "cuda:0: libcuda lacks cu")
    assert node.wait_for_end() == 1
