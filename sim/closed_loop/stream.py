"""Where the frames of an episode go as they happen: a bag, a film, the ROS process."""

import shutil
from pathlib import Path

import mujoco
import numpy as np
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin

from sim.recording import START, FRAME_NS, JOINT_NS, TYPES, MSG, McapBag, Messages, qos, write_meshes
from sim.render import Painter

CLOCK = ("/clock", "rosgraph_msgs/msg/Clock")


class Stream:
    """Makes every message once, and hands it on to `sinks`: objects with `begin`, `message`, `end`, and
    perhaps `picture` (of the first camera)."""

    def __init__(self, sinks: list):
        self.sinks = sinks

    def begin(self, world) -> None:
        """Tells the sinks what will come, and sends what is latched."""
        self.world, self.messages = world, Messages(world.live)
        self.messages.data.qpos[:] = world.data.qpos
        self.painter = Painter(world.model, self.messages.truth)
        for sink in self.sinks:
            sink.begin(self.messages.topics, world.rig)
        for at, topic, message in self.messages.latched():
            self.send(at, topic, message)

    def send(self, at: int, topic: str, message) -> None:
        """One message, serialized once."""
        data = bytes(TYPES.serialize_cdr(message, message.__msgtype__))
        for sink in self.sinks:
            sink.message(at, topic, data)

    def plan(self, frame: int) -> None:
        """The robot has been told something new just after a frame."""
        self.send(*self.messages.plan(frame))

    def sample(self, sample: int, frame: bool, data: mujoco.MjData) -> None:
        """Joints of a sample, and the frame that it is."""
        at = START + sample * JOINT_NS
        time = MSG["builtin_interfaces/msg/Time"](at // 10**9, at % 10**9)
        self.send(at, CLOCK[0], MSG["rosgraph_msgs/msg/Clock"](time))
        self.send(*self.messages.joint_state(sample))
        if not frame:
            return
        number = len(self.world.live.qpos) - 1
        self.messages.data = data
        for made in self.messages.frame(number, self.painter):
            self.send(*made)
        for sink in self.sinks:
            if hasattr(sink, "picture"):
                sink.picture(self.painter.colour(data, self.world.live.cameras[0]))

    def stamp(self) -> int:
        """Of the newest frame, ns."""
        return START + (len(self.world.live.qpos) - 1) * FRAME_NS

    def end(self) -> None:
        """Closes all."""
        if hasattr(self, "painter"):
            self.painter.__exit__()
        for sink in self.sinks:
            sink.end()


class Bag:
    """A recording as `sim.recording` writes, which appears only when it is complete."""

    def __init__(self, folder: Path):
        self.folder, self.draft = folder, folder.parent / f".{folder.name}.draft" / folder.name

    def begin(self, topics, rig) -> None:
        """Opens it."""
        shutil.rmtree(self.draft.parent, ignore_errors=True)
        self.draft.parent.mkdir(parents=True)
        self.writer = McapBag(self.draft, version=9, storage_plugin=StoragePlugin.MCAP)
        self.writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
        self.writer.open()
        write_meshes(rig.meshes, self.draft)
        self.channels = {
            name: self.writer.add_connection(name, kind, typestore=TYPES, offered_qos_profiles=[qos(latched)])
            for name, kind, latched in topics
        }

    def message(self, at: int, topic: str, data: bytes) -> None:
        """Adds a message, but for the clock."""
        if topic in self.channels:
            self.writer.write(self.channels[topic], at, data)

    def end(self) -> None:
        """Closes it and puts it in its place."""
        self.writer.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.draft.replace(self.folder)
        shutil.rmtree(self.draft.parent, ignore_errors=True)


class Film:
    """What the first camera saw, every second frame, at real speed: an animated WebP. Needs Pillow."""

    EVERY = 2

    def __init__(self, path: Path):
        self.path, self.pictures, self.count = path, [], 0

    def begin(self, topics, rig) -> None:
        """Nothing yet."""

    def message(self, at: int, topic: str, data: bytes) -> None:
        """Pictures come by `picture`."""

    def picture(self, colour: np.ndarray) -> None:
        """Keeps every second one."""
        if self.count % self.EVERY == 0:
            self.pictures.append(colour)
        self.count += 1

    def end(self) -> None:
        """Writes the film."""
        from PIL import Image

        frames = [Image.fromarray(p) for p in self.pictures]
        if frames:
            frames[0].save(
                self.path, save_all=True, append_images=frames[1:], duration=100 * self.EVERY, loop=0, quality=60,
            )


