"""Recordings wherever they are stored: local and shared folders, and what fsspec reaches (`s3://…`)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import InputError, MissingExtra, RecordingError

ENDINGS = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd")
ENDS = 1 << 16
"""Bytes of a file's beginning and end that count for its fingerprint; as `crates/bag/src/shards/fingerprint.rs`."""
MAX_DEPTH = 8


def is_url(path: str) -> bool:
    """Whether a path is a URL."""
    return "://" in path


def _filesystem(path: str) -> tuple[Any, str]:
    """What reads a path, and the path in it."""
    if not is_url(path):
        return _Local(), path
    try:
        import fsspec
    except ImportError:
        raise MissingExtra(f"{path}: URLs need fsspec: pip install 'forecloud[ray]'") from None
    try:
        return fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise MissingExtra(f"{path}: {error}") from None


class _Local:
    """As much of fsspec as is used here, of local files: they need no fsspec."""

    open = staticmethod(open)
    isdir = staticmethod(os.path.isdir)
    exists = staticmethod(os.path.exists)
    size = staticmethod(os.path.getsize)

    @staticmethod
    def glob(pattern: str) -> list[str]:
        import glob

        return glob.glob(pattern)

    @staticmethod
    def ls(path: str, detail: bool = False) -> list[str]:
        return [os.path.join(path, name) for name in os.listdir(path)]


def recordings_below(paths: list[str]) -> list[str]:
    """The recordings at and below these places, which may hold `*`; each once, those of a folder by name.

    Raises `RecordingError` where there is none.
    """
    found: list[str] = []
    for path in paths:
        files, inner = _filesystem(path)
        scheme = path[: path.index("://") + 3] if is_url(path) else ""
        whole = lambda place: place if "://" in place or not scheme else scheme + place.lstrip("/")
        if scheme == "file://":
            whole = lambda place: place
        places = sorted(files.glob(inner)) if "*" in inner else [inner]
        below = [whole(place) for start in places for place in _below(files, start, 0)]
        if not below:
            raise RecordingError(f"{path}: no recording there or below: check the path")
        found += below
    return list(dict.fromkeys(found))


def _below(files: Any, path: str, depth: int) -> list[str]:
    if not files.isdir(path):
        return [path.rstrip("/")] if files.exists(path) else []
    names = sorted(entry.rstrip("/") for entry in files.ls(path, detail=False))
    base = [posixpath.basename(name) for name in names]
    if "metadata.yaml" in base or any(name.endswith(ENDINGS) for name in base):
        return [path.rstrip("/")]
    inside = [name for name, short in zip(names, base) if not short.startswith(".") and files.isdir(name)]
    if depth == MAX_DEPTH:
        return []
    return [found for name in inside for found in _below(files, name, depth + 1)]


def fingerprint(path: str) -> str:
    """That of `forecloud replay --shard`: by names, sizes, and both ends of the files."""
    files, inner = _filesystem(path)
    hashed = hashlib.sha256()
    for name in _files(files, inner):
        n_bytes = files.size(name)
        base = os.fsencode(posixpath.basename(name))
        hashed.update(len(base).to_bytes(8, "little") + base + n_bytes.to_bytes(8, "little"))
        with files.open(name, "rb") as file:
            hashed.update(file.read(ENDS))
            if n_bytes > ENDS:
                file.seek(max(n_bytes - ENDS, ENDS))
                hashed.update(file.read(ENDS))
    return hashed.hexdigest()[:32]


def _files(files: Any, path: str) -> list[str]:
    if not files.isdir(path):
        return [path]
    return sorted(name for name in files.ls(path, detail=False) if not files.isdir(name))


@contextlib.contextmanager
def fetched(path: str) -> Iterator[str]:
    """The recording on this machine, under its own name: in place, or copied for as long as it is used."""
    if not is_url(path):
        yield path
        return
    files, inner = _filesystem(path)
    with tempfile.TemporaryDirectory(prefix="forecloud-") as folder:
        place = Path(folder) / posixpath.basename(inner.rstrip("/"))
        copy(files, inner, place)
        yield str(place)


def copy(files: Any, path: str, place: Path) -> None:
    """Copies a file, or a folder with all below it."""
    if not files.isdir(path):
        place.parent.mkdir(parents=True, exist_ok=True)
        files.get_file(path, str(place))
        return
    for name in files.ls(path, detail=False):
        if name.rstrip("/") != path.rstrip("/"):
            copy(files, name, place / posixpath.basename(name.rstrip("/")))


def saved_name(recording: str) -> str:
    """Name of the file of what came of a recording; as `crates/bag/src/shards.rs`."""
    hashed = hashlib.sha256(os.fsencode(recording)).hexdigest()[:16]
    stem = "".join(c for c in posixpath.basename(recording) if c.isascii() and (c.isalnum() or c in "-_"))
    return f"recording_{stem[:40]}_{hashed}.json"


def write(path: Path, content: bytes) -> None:
    """Writes a file of ours, whole or not at all; never over what others wrote.

    Raises `InputError` if another's file is there.
    """
    if path.exists() and path.suffix == ".json":
        with path.open("rb") as file:
            if not file.read(40).startswith(b'{"generator":"forecloud'):
                raise InputError(f"{path}: is another's file: choose another folder for --out")
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".forecloud-", suffix=".part", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
