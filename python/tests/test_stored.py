"""Recordings where they are stored, and the table of results: without a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from forecloud import _stored
from forecloud.errors import InputError, MissingExtra, RecordingError

ROOT = Path(__file__).parents[2]
BAG = ROOT / "tests/data/tiny_push"


def link(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(BAG, folder / name)


def test_recordings_are_found_once_below_folders_and_patterns(tmp_path: Path) -> None:
    link(tmp_path, "b", "a", "deep/er/c", ".hidden/d")
    found = _stored.recordings_below([str(tmp_path), str(tmp_path / "a"), str(tmp_path / "[ab]*")])
    assert [os.path.relpath(path, tmp_path) for path in found] == ["a", "b", "deep/er/c"]
    for nothing in ["none", "*.none"]:
        with pytest.raises(RecordingError, match="none"):
            _stored.recordings_below([str(tmp_path / nothing)])


def test_urls_are_read_through_fsspec(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(BAG), "/bucket/push_1", recursive=True)
    assert _stored.recordings_below(["memory://bucket"]) == ["memory://bucket/push_1"]
    assert _stored.recordings_below(["memory://bucket/push_*"]) == ["memory://bucket/push_1"]
    assert _stored.fingerprint("memory://bucket/push_1") == _stored.fingerprint(str(BAG))
    with _stored.fetched("memory://bucket/push_1") as place:
        assert Path(place).name == "push_1"
        assert sorted(os.listdir(place)) == sorted(os.listdir(BAG))
    assert not os.path.exists(place)
    with pytest.raises(MissingExtra, match="nonsense"):
        _stored.recordings_below(["nonsense://bucket"])


def test_what_others_wrote_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("mine")
    with pytest.raises(InputError, match="another's"):
        _stored.write(tmp_path / "a.json", b"{}")
    assert (tmp_path / "a.json").read_text() == "mine"
    _stored.write(tmp_path / "b.json", b'{"generator":"forecloud shard"}')
    _stored.write(tmp_path / "b.json", b'{"generator":"forecloud shard","x":1}')
    assert json.loads((tmp_path / "b.json").read_text())["x"] == 1
    assert sorted(os.listdir(tmp_path)) == ["a.json", "b.json"]
