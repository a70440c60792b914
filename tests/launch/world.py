"""A folder like a clone's, with tiny recordings under the names that the documentation gives its own."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path

from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from pages import ROOT, code_blocks, tool

SECS = {"train": 1.45, "val": 1.45, "test": 2.2, None: 2.2}
"""Length of the recordings by split: of fourteen frames, two or three start a window of ten steps."""

BAGS = {
    "data/demo_tumble": "test", "my_bag": None, "push_0": "test", "push_1": "test",
    "bags/day_1": "test", "bags/day_2": None,
    "recordings/train_0": "train", "recordings/train_1": "train", "recordings/val_0": "val", "recordings/push_7": "test",
    **{f"recordings/{task}_20000{i}": "test" for task in ("push", "tumble", "lift", "can") for i in range(1)},
    "my_bags/morning_1": None, "my_bags/morning_2": None,
    "known/train_0": "train", "known/val_0": "val",
    **{f"{folder}/val_{i}": "val" for folder in ("held_out", "other_bags") for i in range(8)},
}  # fmt: skip
"""Folders of the documentation's examples, and their recordings' split; None: without truth."""

FIRST = {
    "node.mcap": "forecloud replay --out played data/demo_tumble && cp played/predictions.mcap node.mcap",
    "node/node_0.mcap": "forecloud replay --out played my_bag && mkdir node && cp played/predictions.mcap node/node_0.mcap",
    "node_1": "for i in 1 2 3; do forecloud replay --shard $i/3 --out node_$i push_* bags/day_1; done",
    "runs/first/model.safetensors": "forecloud train recordings --out runs/first --steps 2",
    "runs/mine/model.safetensors": "forecloud train recordings --out runs/mine --steps 2",
    "runs/video/video.safetensors": "forecloud train-video recordings --out runs/video --steps 2",
    "labels": "forecloud label my_bags --labels labels",
    "shards": "for i in 1 2; do forecloud replay --shard $i/2 --out shards push_*; done",
}  # fmt: skip
"""What makes a file that an example takes, where no example before it on the page does."""

GOAL = """select: {region: {min: [-0.4, -0.4, 0.005], max: [0.5, 0.4, 0.4]}}
reach: {pose: {translation: [0.05, 0.0, 0.0], rotation: [0, 0, 0, 1]}}
tolerance: 0.2
"""
PLANS = """plans:
  - joint_names: [left_joint_1]
    points: [{time: 0.8, positions: [-0.2]}]
"""


def split_of(bodies: bytes, split: str) -> bytes:
    """The message with another split in its JSON, as long as before."""
    text = re.sub(rb'"split": "\w+"', f'"split": "{split}"'.encode(), bodies[8:-1])
    text = text.replace(b'", "', b'","', max(0, len(text) + 9 - len(bodies)))
    return bodies[:8] + text.ljust(len(bodies) - 9) + bodies[-1:]


def messages(split: str | None):
    """Those of the first seconds of data/demo_tumble: schema, channel, message, bytes."""
    with (ROOT / "data/demo_tumble/demo_tumble.mcap").open("rb") as stream:
        start = None
        for schema, channel, message in make_reader(stream).iter_messages():
            start = start or message.log_time
            if message.log_time > start + SECS[split] * 1e9:
                return
            if channel.topic.startswith("/truth/") and split is None:
                continue
            data = split_of(message.data, split) if channel.topic == "/truth/bodies" else message.data
            yield schema, channel, message, data


def write_mcap(path: Path, split: str | None) -> None:
    with path.open("wb") as stream:
        writer = Writer(stream, compression=CompressionType.NONE)
        writer.start(profile="ros2", library="test of Forecloud's documentation")
        channels: dict[str, int] = {}
        for schema, channel, message, data in messages(split):
            if channel.topic not in channels:
                of = writer.register_schema(schema.name, schema.encoding, schema.data)
                channels[channel.topic] = writer.register_channel(channel.topic, channel.message_encoding, of)
            writer.add_message(channels[channel.topic], message.log_time, data, message.publish_time)
        writer.finish()


def write_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT, offered_qos_profiles TEXT)")
        file.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)")
        topics: dict[str, int] = {}
        for schema, channel, message, data in messages(None):
            if channel.topic not in topics:
                topics[channel.topic] = len(topics) + 1
                file.execute("INSERT INTO topics VALUES (?, ?, ?, 'cdr', '')", (topics[channel.topic], channel.topic, schema.name))
            file.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)", (topics[channel.topic], message.log_time, data))


class World:
    """A folder in which the examples of one page run, one after another."""

    def __init__(self, folder: Path, stock: Path, page: str = ""):
        """`page`: its text; goal and plans are those that it shows, where it does."""
        self.folder = folder
        yaml = code_blocks(page, "yaml")
        for bag, split in BAGS.items():
            (folder / bag).mkdir(parents=True)
            os.link(stock / f"{split}.mcap", folder / bag / "recording.mcap")
        os.link(stock / "None.mcap", folder / "a.mcap")
        os.link(stock / "b.db3", folder / "b.db3")
        (folder / "goal.yaml").write_text(next((block for block in yaml if "select:" in block), GOAL))
        (folder / "plans.yaml").write_text(next((block for block in yaml if block.startswith("plans:")), PLANS))
        (folder / "models").symlink_to(ROOT / "models")
        (folder / "data/demo_can").symlink_to(ROOT / "data/demo_can")
        (folder / "ws/src/franka_description").mkdir(parents=True)
        for place in (folder / "target/release", folder / "bin"):
            place.mkdir(parents=True)
            (place / "forecloud").symlink_to(tool().resolve())

    def run(self, line: str) -> subprocess.CompletedProcess:
        for file, command in FIRST.items():
            made_here = any(f"{option} {part}" in line for option in ("--out", "--labels") for part in (file, Path(file).parent))
            if file in line.split() and not made_here and not (self.folder / file).exists():
                made = self._bash(command)
                assert made.returncode == 0, f"{command}\n{made.stderr}"
        return self._bash(line)

    def _bash(self, line: str) -> subprocess.CompletedProcess:
        environment = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder)}
        return subprocess.run(["bash", "-c", line], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def make_stock(folder: Path) -> None:
    """The recordings, each once: worlds link them."""
    for split in ("train", "val", "test", None):
        write_mcap(folder / f"{split}.mcap", split)
    write_sqlite(folder / "b.db3")
