"""MCAP files as far as tests need them: their chunks, unpacked, and copies of the small recording."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Iterator

import pytest

CHUNK, DATA_END, FOOTER = 0x06, 0x0F, 0x02
MAGIC = b"\x89MCAP0\r\n"


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Opcode and content of each record."""
    at = len(MAGIC)
    while at + 9 <= len(data) - len(MAGIC):
        length = int.from_bytes(data[at + 1 : at + 9], "little")
        yield data[at], data[at + 9 : at + 9 + length]
        at += 9 + length


def unpacked(record: bytes) -> tuple[bytes, bytes]:
    """Times of a chunk, and its records."""
    n_name = int.from_bytes(record[28:32], "little")
    name, body = record[32 : 32 + n_name], record[32 + n_name + 8 :]
    if name == b"":
        return record[:16], body
    zstandard = pytest.importorskip("zstandard", reason="chunks are compressed")
    return record[:16], zstandard.ZstdDecompressor().decompressobj().decompress(body)


def chunks(folder: Path) -> bytes:
    """The unpacked chunks of all MCAP files in a folder, in a row."""
    files = (path.read_bytes() for path in sorted(folder.rglob("*.mcap")))
    return b"".join(unpacked(r)[1] for data in files for opcode, r in records(data) if opcode == CHUNK)


def copy_of_split(source: Path, folder: Path, split: bytes) -> None:
    """A copy of the small recording (of split `test`) that says to be of another one."""
    shutil.copytree(source, folder)
    (path,) = folder.glob("*.mcap")
    # As many bytes, so that no length changes.
    said = b'"split":' + b'"%s"' % split
    said = said.replace(b":", b":" + b" " * (len(b'"split": "test"') - len(said)))
    out, replaced = [MAGIC], 0
    for opcode, record in records(path.read_bytes()):
        if opcode == CHUNK:
            times, body = unpacked(record)
            replaced += body.count(b'"split": "test"')
            body = body.replace(b'"split": "test"', said)
            record = times + struct.pack("<QIIQ", len(body), 0, 0, len(body)) + body
        elif opcode == DATA_END:
            break
        elif opcode != 0x01:
            continue
        out.append(struct.pack("<BQ", opcode, len(record)) + record)
    assert replaced == 1
    out += [struct.pack("<BQI", DATA_END, 4, 0), struct.pack("<BQQQI", FOOTER, 20, 0, 0, 0), MAGIC]
    path.chmod(0o644)
    path.write_bytes(b"".join(out))
