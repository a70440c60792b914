"""A computer without Rust gets messages, services and actions, and is told that there is no node."""

from __future__ import annotations

import os
import subprocess

from conftest import ROOT


def configure(build, *options, **environment):
    command = ["cmake", "-S", str(ROOT), "-B", str(build), f"-DCMAKE_INSTALL_PREFIX={build}/install"]
    done = subprocess.run(
        [*command, *options], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    targets = subprocess.run(
        ["cmake", "--build", str(build), "--target", "help"], capture_output=True, text=True, check=True
    )
    names = {line.split(":")[0].removeprefix("... ").strip() for line in targets.stdout.splitlines()}
    return " ".join(done.stderr.split()), names


def test_without_cargo_the_interfaces_are_built_alone(tmp_path):
    without_rust = os.pathsep.join(
        folder for folder in os.environ["PATH"].split(os.pathsep) if not os.access(f"{folder}/cargo", os.X_OK)
    )
    home = {"HOME": str(tmp_path), "CARGO_HOME": str(tmp_path), "PATH": without_rust}
    said, targets = configure(tmp_path / "build", **home)
    assert "Only the interfaces of forecloud are built, as cargo was not found." in said
    assert "forecloud__rosidl_generator_py" in targets and "node" not in targets


def test_where_rust_is_a_flag_leaves_the_node_out(tmp_path):
    said, targets = configure(tmp_path, "-DFORECLOUD_INTERFACES_ONLY=ON")
    assert "FORECLOUD_INTERFACES_ONLY is set" in said
    assert "forecloud__rosidl_generator_py" in targets and "node" not in targets
