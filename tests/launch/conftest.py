"""The launch file, run without starting anything: what it would start, with which arguments."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from stand_in import Made, install  # noqa: E402

if importlib.util.find_spec("launch") is None or importlib.util.find_spec("launch_ros") is None:
    install()


def load() -> types.ModuleType:
    path = ROOT / "launch" / "forecloud.launch.py"
    spec = importlib.util.spec_from_file_location("forecloud_launch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Start:
    """Calls the launch file's `start` with arguments as a user gives them."""

    def __init__(self, module: types.ModuleType):
        self.module = module
        self.packages = {"forecloud"}
        """Packages that are installed."""

    def __call__(self, **arguments: str) -> dict[str, Made]:
        """What would be started, by its executable."""
        given = dict.fromkeys(self.module.ARGUMENTS, "") | {"rviz": "false"} | arguments
        assert given.keys() == self.module.ARGUMENTS.keys()
        actions = self.module.start(types.SimpleNamespace(launch_configurations=given))
        return {a.named.get("executable") or a.named["cmd"][0]: a for a in actions}

    def node(self, **arguments: str) -> dict:
        """What the node is started with."""
        return self(**arguments)["forecloud_node"].named


@pytest.fixture
def start(monkeypatch) -> Start:
    module = load()
    start = Start(module)

    def prefix(package: str) -> str:
        if package not in start.packages:
            raise module.PackageNotFoundError(package)
        return str(ROOT)

    # The package's share folder has the same folders as the repository.
    monkeypatch.setattr(module, "get_package_share_directory", prefix)
    monkeypatch.setattr(module, "get_package_prefix", prefix)
    # Recorded instead of made, also where the real classes are installed.
    for name in ("Node", "ExecuteProcess", "Shutdown"):
        monkeypatch.setattr(module, name, Made)
    for name in (*module.PROFILE_VARIABLES, "RUST_LOG"):
        monkeypatch.delenv(name, raising=False)
    return start
