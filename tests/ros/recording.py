"""Reading a recording (rosbag2, MCAP) and writing what was received, without decoding a message."""

from __future__ import annotations

import dataclasses
import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from mcap.reader import make_reader
from mcap.writer import Writer


@dataclasses.dataclass
class Message:
    """One serialized message."""

    topic: str
    type_name: str
    """Such as `sensor_msgs/msg/Image`."""
    log_time_ns: int
    data: bytes


def read(folder: Path, with_truth: bool = False) -> Iterator[Message]:
    """The messages of a recording in log order; those of /truth are left out by default."""
    files = [folder] if folder.is_file() else sorted(folder.glob("*.mcap"))
    if not files:
        raise SystemExit(f"{folder}: no .mcap file in it")
    for file in files:
        with file.open("rb") as stream:
            for schema, channel, message in make_reader(stream).iter_messages():
                if with_truth or not channel.topic.startswith("/truth/"):
                    yield Message(channel.topic, schema.name, message.log_time, message.data)


def message_class(type_name: str) -> type:
    """The Python class of `package/msg/Name`."""
    package, kind, name = type_name.split("/")
    return getattr(importlib.import_module(f"{package}.{kind}"), name)


class RecordingWriter:
    """Writes serialized messages into one MCAP file."""

    def __init__(self, path: Path):
        self._stream = path.open("wb")
        self._writer = Writer(self._stream)
        self._writer.start(profile="ros2", library="forecloud collect.py")
        self._channels: dict[str, int] = {}

    def write(self, topic: str, type_name: str, data: bytes) -> None:
        if topic not in self._channels:
            schema = self._writer.register_schema(
                name=type_name, encoding="ros2msg", data=_definition(type_name).encode()
            )
            self._channels[topic] = self._writer.register_channel(
                topic=topic, message_encoding="cdr", schema_id=schema
            )
        now = time.time_ns()
        self._writer.add_message(self._channels[topic], log_time=now, publish_time=now, data=data)

    def close(self) -> None:
        self._writer.finish()
        self._stream.close()


def _definition(type_name: str) -> str:
    """The .msg file and those of the messages it is made of, as MCAP's `ros2msg` wants them."""
    texts: dict[str, str] = {}
    wanted = [type_name]
    while wanted:
        name = wanted.pop(0)
        if name in texts:
            continue
        package, _, message = name.split("/")
        share = Path(get_package_share_directory(package))
        texts[name] = (share / "msg" / f"{message}.msg").read_text()
        for used in re.findall(r"^(\w+)/(\w+)(?:\[.*\])?\s", texts[name], re.MULTILINE):
            wanted.append(f"{used[0]}/msg/{used[1]}")
    first, *others = texts
    parts = [texts[first]]
    for name in others:
        package, _, message = name.split("/")
        parts.append(f"{'=' * 80}\nMSG: {package}/{message}\n{texts[name]}")
    return "\n".join(parts)
