"""scripts/needs on machines that lack things: a PATH of few programs, some of them made up."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What every Debian has.
BASICS = ["bash", "cat", "dirname", "env", "grep", "head", "id", "sed", "sort"]
RUST = re.search(r'rust-version = "(.*)"', (ROOT / "Cargo.toml").read_text())[1]


class Machine:
    def __init__(self, folder: Path):
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        for name in BASICS:
            (self.bin / name).symlink_to(shutil.which(name))

    def add(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/bash\n{script}\n")
        (self.bin / name).chmod(0o755)

    def add_rust(self, version: str) -> None:
        self.add("cargo", f"echo cargo {version}")
        self.add("rustc", f"echo rustc '{version} (abc 2026-01-01)'")

    def add_compilers(self) -> None:
        for name in ("cc", "c++"):
            self.add(name, "")

    def add_python(self, name: str, version: str, lacks: str = "") -> None:
        """One that says of itself what the script's Python lines would."""
        self.add(name, f'[[ $1 != --version ]] && echo /usr/bin/{name} {version} {lacks} || echo "Python {version}"')

    def add_whole(self) -> None:
        self.add_rust(f"{RUST}.0")
        self.add_compilers()
        self.add_python("python3", "3.12")

    def needs(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.bin), "HOME": str(self.folder), **variables}
        command = [ROOT / "scripts/needs", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_that_has_all_gives_no_word(machine: Machine):
    machine.add_whole()
    done = machine.needs()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_that_is_missing_is_named_at_once_with_the_line_that_brings_it(machine: Machine):
    done = machine.needs()
    assert done.returncode == 1
    for what in (f"Rust {RUST} or newer", "a C compiler", "a C++ compiler", "a CPython 3.11 to 3.14"):
        assert f"missing: {what}" in done.stderr
    assert "apt install g++ python3-dev python3-venv\n" in done.stderr
    assert "https://sh.rustup.rs" in done.stderr


@pytest.mark.parametrize(
    "version, is_right", [("1.9.0", False), ("1.88.1", False), (f"{RUST}.0", True), ("1.100.0", True), ("2.0.0", True)]
)
def test_a_rust_that_is_too_old_is_named_with_its_version(machine: Machine, version: str, is_right: bool):
    machine.add_whole()
    machine.add_rust(version)
    machine.add("rustup", "")
    done = machine.needs()
    assert done.returncode == (0 if is_right else 1)
    if not is_right:
        assert f"Rust {RUST} or newer (this is {version})" in done.stderr
        assert "rustup update stable" in done.stderr


def test_a_rustup_without_a_toolchain_and_a_rust_out_of_path_are_told_apart(machine: Machine):
    machine.add_whole()
    machine.add("cargo", "echo 'no default toolchain' >&2; exit 1")
    machine.add("rustup", "")
    assert "rustup default stable" in machine.needs().stderr
    (machine.bin / "cargo").unlink()
    (machine.folder / ".cargo/bin").mkdir(parents=True)
    machine.add("../.cargo/bin/cargo", "")
    assert '. "$HOME/.cargo/env"' in machine.needs().stderr


@pytest.mark.parametrize(
    "lacks, install", [("venv", "python3.12-venv"), ("headers", "python3.12-dev"), ("venv headers", "python3.12-dev python3.12-venv")]
)
def test_headers_and_venv_are_those_of_the_python_that_is_taken(machine: Machine, lacks: str, install: str):
    machine.add_whole()
    machine.add("python3", "exit 1")
    machine.add_python("python3.12", "3.12", lacks)
    done = machine.needs()
    assert done.returncode == 1 and f"apt install {install}\n" in done.stderr
    # Another that lacks nothing is taken instead.
    machine.add_python("python3.11", "3.11")
    assert machine.needs().returncode == 0
    assert machine.needs("--python").stdout == "/usr/bin/python3.11\n"
    # But not where one was named.
    assert machine.needs(PYTHON="python3.12").returncode == 1


def test_where_python_is_too_old_a_package_that_there_is_gets_named(machine: Machine):
    machine.add_whole()
    machine.add("python3", '[[ $1 == --version ]] && echo "Python 3.10.12"')
    # Ubuntu 22.04.
    machine.add("apt-cache", 'case "$*" in *" python3") echo "Version: 3.10.6-1" ;; *python3.11-venv) echo yes ;; esac')
    done = machine.needs()
    assert done.returncode == 1 and "python3 is Python 3.10.12" in done.stderr
    assert "apt install python3.11-dev python3.11-venv\n" in done.stderr


def test_where_no_ros_can_be_had_the_reason_is_printed_with_an_exit_code_of_its_own(machine: Machine):
    machine.add_whole()
    machine.add("python3", '[[ $1 == --version ]] && echo "Python 3.9.2"')
    machine.add("apt-cache", "")
    done = machine.needs()
    assert done.returncode == 3 and "no CPython 3.11 to 3.14" in done.stdout and not done.stderr
    machine.add_python("python3", "3.12")
    assert machine.needs(WITHOUT_ROS="1").returncode == 3
    # What is missing besides comes first.
    (machine.bin / "cc").unlink()
    assert machine.needs(WITHOUT_ROS="1").returncode == 1


def test_a_sourced_ros_is_taken_with_its_own_python(machine: Machine):
    machine.add_whole()
    # Of a version that no wheels are for.
    machine.add("python3", '[[ $2 == any ]] && echo "/usr/bin/python3 3.10" || exit 1')
    assert machine.needs(ROS_DISTRO="humble", AMENT_PREFIX_PATH="/opt/ros/humble").returncode == 0


def test_the_lists_of_packages_are_words(machine: Machine):
    for option in ("--apt", "--tests"):
        assert re.fullmatch(r"[a-z0-9+.-]+( [a-z0-9+.-]+)+\n", machine.needs(option).stdout)
    assert machine.needs("--nonsense").returncode == 2
