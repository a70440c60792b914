"""Packets between the simulator and the ROS process (`bridge.py`), which have no wheel in common.

A packet: two lengths (little-endian uint32) of a JSON head and of raw bytes, then both. The bytes are
a serialized message (CDR). Nothing but the standard library: both sides read this file.
"""

import json
import struct

MOST = 64 * 2**20  # bytes of either part


def write(stream, head: dict, body: bytes = b"") -> None:
    """Writes a packet and flushes."""
    text = json.dumps(head).encode()
    stream.write(struct.pack("<II", len(text), len(body)) + text + body)
    stream.flush()


def read(stream) -> tuple[dict, bytes] | None:
    """The next packet; None at the end of the stream. Raises ValueError on what is none."""
    lengths = stream.read(8)
    if len(lengths) < 8:
        return None
    n_head, n_body = struct.unpack("<II", lengths)
    if n_head > MOST or n_body > MOST:
        raise ValueError(f"a packet of {n_head} and {n_body} bytes: at most {MOST} each")
    head, body = stream.read(n_head), stream.read(n_body)
    if len(head) < n_head or len(body) < n_body:
        return None
    return json.loads(head), body
