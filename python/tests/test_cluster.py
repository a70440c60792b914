"""`forecloud cluster` on a Ray cluster of several nodes on this machine, of which some are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from mcap import copy_of_split  # noqa: E402

from forecloud import _cluster_train, _stored, cluster  # noqa: E402
from forecloud.errors import ConfigError, MissingExtra  # noqa: E402

ROOT = Path(__file__).parents[2]
BAG = ROOT / "tests/data/tiny_push"
MODEL = ROOT / "models/small.safetensors"
REPLAY = ["--horizon", "2", "--sensor-noise", "1", "--particles", "256"]
SIZES = {"n_blocks": 1, "n_particles": 256, "n_history": 64, "n_kinematic": 32}
RARE = {"curriculum": [[0, 1]], "checkpoint_secs": 0, "validation_windows": 4}


def model_config(folder: Path, **parts: Any) -> list[str]:
    """`--model-config` and a file of these parts."""
    file = folder / "settings.json"
    file.write_text(json.dumps(parts))
    return ["--model-config", str(file)]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options of a short training."""
    folder = tmp_path_factory.mktemp("settings")
    return ["--steps", "6", "--batch", "4", "--width", "16", "--teacher", "hindsight", "--validate-every", "3",
            *model_config(folder, model=SIZES, train=RARE)]


@pytest.fixture(scope="module")
def nodes() -> Any:
    """A head that works on nothing, and room for two."""
    here = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    search = os.pathsep.join(filter(None, [str(Path(cluster.__file__).parent.parent), os.environ.get("PYTHONPATH")]))
    here.add_node(num_cpus=1)
    here.add_node(num_cpus=1)
    ray.init(address=here.address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": search}})
    yield here
    ray.shutdown()
    here.shutdown()


def tool(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(cluster.tool(*arguments), capture_output=True)


def recordings(folder: Path, *names: str) -> Path:
    """Recordings of one content, which noise and so results tell apart by their names; `torn` is damaged."""
    for name in names:
        (folder / name).mkdir(parents=True)
        for file in BAG.iterdir():
            content = b"torn" if name == "torn" else file.read_bytes()
            (folder / name / file.name).write_bytes(content)
    return folder


def timeless(report: dict[str, Any]) -> dict[str, Any]:
    return {**report, "time": None, "device": None}


def kill(nodes: Cluster) -> None:
    """One of the working nodes, in the middle of its work; another takes its place."""
    nodes.remove_node(nodes.worker_nodes.copy().pop(), allow_graceful=False)
    nodes.add_node(num_cpus=1)


def wait_for_a_death(crew: Any) -> None:
    """Until a worker answers no more. A killed node's workers end only once they notice that it is gone, and on
    a fast machine a whole run of six steps is done by then."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        for worker in crew.at_work:
            try:
                ray.get(worker.step.remote())
            except ray.exceptions.RayError:
                return
        time.sleep(0.05)
    raise AssertionError("no worker died, although its node was killed")


def test_a_replay_in_which_a_node_dies_is_one_replay_to_the_last_digit(nodes: Cluster, tmp_path: Path) -> None:
    names = ["a", "b", "c", "d", "torn"]
    bags, out = recordings(tmp_path / "bags", *names), tmp_path / "out"
    done: list[str] = []

    def on_done(path: str) -> None:
        done.append(path)
        if len(done) == 1:
            kill(nodes)

    told = cluster.spread("replay", [bags], out, model=str(MODEL), options=REPLAY, on_done=on_done)
    assert sorted(done) == sorted(str(bags / name) for name in names), "nothing lost, nothing twice"
    assert list(told["skipped"]) == [str(bags / "torn")]
    whole = tool("replay", "--json", "--model", str(MODEL), "--threads", "1", *REPLAY, *(str(bags / n) for n in names))
    assert whole.returncode == 3, whole.stderr
    merged = tool("merge", "--json", str(out))
    assert timeless(json.loads(merged.stdout)) == {**timeless(json.loads(whole.stdout)), "model_path": str(MODEL)}

    import pyarrow.parquet

    table = pyarrow.parquet.read_table(out / "results.parquet").to_pylist()
    keys = [(row["recording"], row["measure"], row["class"], row["step"]) for row in table]
    assert len(set(keys)) == len(keys) and {Path(row["recording"]).name for row in table} == set(names)
    report = json.loads(whole.stdout)
    of = lambda name: next(row for row in report["errors"] if row["class"] == "robot" and row["method"] == name)
    rows = [row for row in table if row["class"] == "robot" and row["step"] == 2]
    mean = sum(row["model_mm"] * row["n_points"] for row in rows) / sum(row["n_points"] for row in rows)
    assert mean == pytest.approx(of("model")["mean_mm"][1], rel=1e-12)
    assert [row["skipped"] is not None for row in table if row["recording"].endswith("torn")] == [True]

    # A second run does what is missing: the damaged one, and one that was lost.
    (out / _stored.saved_name(str(bags / "b"))).unlink()
    done.clear()
    again = cluster.spread("replay", [bags], out, model=str(MODEL), options=REPLAY, on_done=done.append)
    assert sorted(Path(path).name for path in done) == ["b", "torn"] and again["n_before"] == 3
    assert timeless(json.loads(tool("merge", "--json", str(out)).stdout)) == timeless(json.loads(merged.stdout))


def test_labels_are_those_of_one_machine_though_a_node_dies(nodes: Cluster, tmp_path: Path) -> None:
    bags = recordings(tmp_path / "bags", "torn")
    for name in ["a", "b"]:
        copy_of_split(BAG, bags / name, b"train")
    options = ["--teacher", "hindsight", *model_config(tmp_path, model={"n_particles": 256})]
    killed: list[str] = []

    def on_done(path: str) -> None:
        if not killed:
            kill(nodes)
        killed.append(path)

    told = cluster.label([bags], tmp_path / "out", options=options, on_done=on_done)
    assert len(killed) == told["n"] == 3 and len(told["skipped"]) == 1
    one = tool("label", str(bags), "--labels", str(tmp_path / "one"), *options)
    assert one.returncode == 3, one.stderr
    labels = lambda folder: {file.name: file.read_bytes() for file in (tmp_path / folder).glob("*.labels")}
    assert labels("one") == labels("out")
    assert cluster.label([bags], tmp_path / "out", options=options)["n_before"] == 2
    assert tool("merge", str(tmp_path / "out")).returncode == 3


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, train: list[str]) -> tuple[Path, dict[str, bytes]]:
    """What `forecloud train` leaves of the same recordings."""
    folder = tmp_path_factory.mktemp("alone")
    bags = folder / "bags"
    for name, split in [("a", b"train"), ("b", b"train"), ("v", b"val")]:
        copy_of_split(BAG, bags / name, split)
    done = tool("train", str(bags), "--out", str(folder / "run"), "--threads", "1", *train)
    assert done.returncode == 0, done.stderr
    return bags, left(folder / "run")


def left(run: Path) -> dict[str, Any]:
    """Model and checkpoint, and the log without its times."""
    lines = [json.loads(line) for line in (run / "train.jsonl").read_text().splitlines()]
    log = [{"step": line["step"], "report": line["report"], "validation": line["validation"]} for line in lines]
    return {"log": log, **{name: (run / f"{name}.safetensors").read_bytes() for name in ("model", "checkpoint")}}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_model_is_that_of_one_machine_to_the_bit(nodes: Cluster, tmp_path: Path, alone: Any, train: list[str], workers: int) -> None:
    bags, want = alone
    code = _cluster_train.train(str(bags), tmp_path / "run", options=train, workers=workers)
    assert code == 0 and left(tmp_path / "run") == want


def test_a_node_dies_others_join_the_head_dies_and_the_model_is_the_same(
    nodes: Cluster, tmp_path: Path, alone: Any, train: list[str]
) -> None:
    bags, want = alone
    crews: list[set[Any]] = []

    def on_step(step: int, crew: Any) -> None:
        crews.append(set(crew.at_work))
        if step == 1:
            # Where two were at work, one of them has died.
            kill(nodes)
            if len(crews[0]) == 2:
                wait_for_a_death(crew)
        if step == 4:
            raise RuntimeError("the head dies")

    with pytest.raises(RuntimeError, match="the head dies"):
        _cluster_train.train(str(bags), tmp_path / "run", options=train, on_step=on_step)
    code = _cluster_train.train(str(bags), tmp_path / "run", options=train)
    assert code == 0 and left(tmp_path / "run") == want
    # Who takes a dead worker's place may be at work before the next step: the crew has changed, whatever its size.
    assert any(len(crew) == 1 or crew != crews[0] for crew in crews), crews


def test_ray_that_is_absent_or_of_another_version_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "1.13.0")
    with pytest.raises(MissingExtra, match=r"Ray 1.13.0 is not one .*pip install 'forecloud\[ray\]'"):
        cluster.connect(None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"needs Ray.*pip install 'forecloud\[ray\]'"):
        cluster.connect(None)


def test_wrong_arguments_are_told_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bags = recordings(tmp_path / "bags", "a")
    assert cluster.command(["replay", str(bags)]) == 2
    assert cluster.command(["replay", str(bags), "--out", str(tmp_path / "o"), "--", "--nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err
    assert cluster.command(["replay", str(tmp_path / "none"), "--out", str(tmp_path / "o")]) == 1
    assert "no recording there" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="--threads"):
        _cluster_train.train(str(bags), tmp_path / "o", options=["--threads", "2"])
