"""A recording played over and over, as time goes on, with whatever a test does to its messages."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable

from play import LATCHED, Player
from rclpy.serialization import deserialize_message, serialize_message
from recording import Message, message_class

STAMPED = ("sensor_msgs/msg/", "trajectory_msgs/msg/")
"""Packages of the messages that begin with a header."""


class Endless:
    """Plays from construction to `stop`; each round is stamped later than the one before."""

    def __init__(
        self,
        node,
        messages: list[Message],
        period_secs: float,
        change: Callable[[Message], Message | None] = lambda message: message,
        **player_options,
    ):
        self.change = change
        """What becomes of a message, with its stamp set; None is not sent."""
        self.offset_secs = 0.0
        """Added to all stamps."""
        self._period_secs = period_secs
        self._player = Player(node, messages, **player_options)
        self._player.wait_for_subscriber()
        self._messages = [m for m in messages if not m.topic.endswith(LATCHED)]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._player.close()

    def _play(self) -> None:
        start, first, n_rounds = time.monotonic(), self._messages[0].log_time_ns, 0
        while True:
            round_secs = n_rounds * self._period_secs
            for message in self._messages:
                due = start + round_secs + (message.log_time_ns - first) / 1e9
                if self._stopped.wait(max(0.0, due - time.monotonic())):
                    return
                later = shifted(message, round_secs + self.offset_secs)
                publisher = self._player.publishers.get(message.topic)
                if publisher and (changed := self.change(later)):
                    publisher.publish(changed.data)
            n_rounds += 1


def with_data(message: Message, data: bytes) -> Message:
    return Message(message.topic, message.type_name, message.log_time_ns, data)


def edited(message: Message, edit: Callable[[object], None]) -> Message:
    """The message after `edit` of what it says."""
    content = deserialize_message(message.data, message_class(message.type_name))
    edit(content)
    return with_data(message, serialize_message(content))


def shifted(message: Message, secs: float) -> Message:
    """The message with all its stamps later."""

    def later(sec: int, nanosec: int) -> tuple[int, int]:
        return divmod(sec * 10**9 + nanosec + round(secs * 1e9), 10**9)

    if message.type_name.startswith(STAMPED):
        data = bytearray(message.data)
        struct.pack_into("<iI", data, 4, *later(*struct.unpack_from("<iI", data, 4)))
        return with_data(message, bytes(data))
    if message.type_name == "tf2_msgs/msg/TFMessage":

        def edit(content) -> None:
            for transform in content.transforms:
                stamp = transform.header.stamp
                stamp.sec, stamp.nanosec = later(stamp.sec, stamp.nanosec)

        return edited(message, edit)
    return message
