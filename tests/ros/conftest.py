"""What the ROS tests share: the installed node as a process, a recording, and waiting."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))


def free_domain() -> tuple[int, socket.socket]:
    """A ROS domain that nobody else has who asks for one so, as closed loops (sim/closed_loop/over_dds.py) and
    the processes of a run in parallel do; and what holds it until this process ends."""
    for number in range(10, 100):
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0forecloud_ros_domain_{number}")  # Linux keeps such names in no folder
            return number, held
        except OSError:
            held.close()
    raise RuntimeError("all ROS domains from 10 to 99 are taken")


# Before any node: other nodes on this machine or network are neither seen nor disturbed.
DOMAIN, HELD = free_domain()
os.environ["ROS_DOMAIN_ID"] = str(DOMAIN)
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ["FASTRTPS_DEFAULT_PROFILES_FILE"] = str(ROOT / "config" / "fastdds_large_clouds.xml")

import rclpy  # noqa: E402
import rclpy.action  # noqa: E402
from ament_index_python.packages import get_package_prefix  # noqa: E402
from rclpy._rclpy_pybind11 import InvalidHandle, RCLError  # noqa: E402
from endless import Endless  # noqa: E402
from play import Player, Stream  # noqa: E402
from recording import Message, message_class, read  # noqa: E402

TIMEOUT_SECS = 60.0
# Of the recording: 6 frames.
PERIOD_SECS = 0.6


def wait_for(condition: Callable[[], object], what: str, timeout_secs: float = TIMEOUT_SECS):
    """The first true value of `condition`; fails with `what` if there is none in time."""
    deadline = time.monotonic() + timeout_secs
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_secs} s for {what}"
        time.sleep(0.02)
    return value


def wait_for_future(future):
    """What a service answered."""
    wait_for(future.done, "an answer")
    return future.result()


class ActionClient(rclpy.action.ActionClient):
    """rclpy's, for a node that another thread spins. Rclpy (Jazzy) drops an answer that comes before the call
    that asked has noted its number, with `Ignoring unexpected goal response`: on a busy machine that happens."""

    def __init__(self, *args, **kwargs):
        self._asking = threading.RLock()
        super().__init__(*args, **kwargs)

    def send_goal_async(self, *args, **kwargs):
        with self._asking:
            return super().send_goal_async(*args, **kwargs)

    def _cancel_goal_async(self, goal_handle):
        with self._asking:
            return super()._cancel_goal_async(goal_handle)

    def _get_result_async(self, goal_handle):
        with self._asking:
            return super()._get_result_async(goal_handle)

    async def execute(self, taken_data):
        with self._asking:
            await super().execute(taken_data)


class NodeProcess:
    """A running forecloud_node, or another program of the package, started with the arguments that
    `ros2 launch` passes. Without a deadline, unless one is given: tests don't depend on how fast the
    machine is."""

    def __init__(self, *ros_args: str, program: str = "forecloud_node"):
        path = Path(get_package_prefix("forecloud")) / "lib" / "forecloud" / program
        if program == "forecloud_node" and not any("deadline_secs" in arg for arg in ros_args):
            ros_args += ("-p", "deadline_secs:=0.0")
        command = [str(path), "--ros-args", *ros_args]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr:
            self._lines.append(line)

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def wait_for_log(self, *texts: str) -> None:
        def found() -> bool:
            return all(text in self.log for text in texts)

        try:
            wait_for(found, f"the node to log {texts}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it logged:\n{self.log}") from None

    def wait_for_end(self, timeout_secs: float = TIMEOUT_SECS) -> int:
        """The exit code."""
        code = self.process.wait(timeout_secs)
        self._reader.join(timeout_secs)
        return code

    def stop(self, with_signal: int = signal.SIGINT, timeout_secs: float = TIMEOUT_SECS) -> int:
        self.process.send_signal(with_signal)
        return self.wait_for_end(timeout_secs)

    def running(self) -> bool:
        return self.process.poll() is None


class Received:
    """Messages of one topic, in the order they came."""

    opened: list[Received] = []

    def __init__(
        self, node, topic: str, type_name: str, outlives_test: bool = False, latched: bool = False
    ):
        """`latched`: what was published before this subscriber was found counts too."""
        self.messages: list = []
        self.topic = topic
        self._node = node
        durability = rclpy.qos.DurabilityPolicy
        qos = rclpy.qos.QoSProfile(
            depth=100,
            durability=durability.TRANSIENT_LOCAL if latched else durability.VOLATILE,
        )
        self.on_message: Callable[[list], None] | None = None
        """Called with all messages so far, by the thread that receives them."""
        self._subscription = node.create_subscription(
            message_class(type_name), topic, self._received, qos
        )
        if not outlives_test:
            Received.opened.append(self)

    def _received(self, message) -> None:
        self.messages.append(message)
        if self.on_message:
            self.on_message(self.messages)

    def close(self) -> None:
        if self._subscription:
            self._node.destroy_subscription(self._subscription)
            self._subscription = None

    def wait_for(self, n: int):
        wait_for(lambda: len(self.messages) >= n, f"{n} messages on {self.topic}")
        return self.messages

    def wait_for_publisher(self) -> None:
        wait_for(lambda: self._node.count_publishers(self.topic), f"a publisher of {self.topic}")


@pytest.fixture(scope="session")
def ros():
    """A node of the test's own, spun in the background."""
    rclpy.init(signal_handler_options=rclpy.SignalHandlerOptions.NO)
    node = rclpy.create_node("test")
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            try:
                executor.spin_once(timeout_sec=0.1)
            except InvalidHandle:
                pass  # what a test destroys may just be waited for here
            except RCLError as error:
                # So of action servers.
                if "pointer is invalid" not in str(error):
                    raise

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    yield node
    ended.set()
    thread.join(TIMEOUT_SECS)
    executor.shutdown()
    rclpy.try_shutdown()


@pytest.fixture(autouse=True)
def close_received():
    """Ends all subscriptions: the next test's node would take them for its subscribers."""
    yield
    while Received.opened:
        Received.opened.pop().close()


@pytest.fixture(scope="session")
def recording() -> list[Message]:
    return list(read(ROOT / "tests" / "data" / "tiny_push"))


@pytest.fixture
def stream(ros, recording):
    """The recording, again and again, from `start()` on."""
    player = Player(ros, recording)
    stream = Stream(player, PERIOD_SECS, rate=0.5)
    yield stream
    stream.stop()
    player.close()


@pytest.fixture
def playing(ros, recording):
    """Plays the recording without an end, each `start()` anew."""
    started = []

    def start() -> Endless:
        started.append(Endless(ros, recording, period_secs=0.6))
        return started[-1]

    yield start
    for endless in started:
        endless.stop()


@pytest.fixture
def start_node():
    """Starts nodes; those still running at the test's end are ended."""
    started: list[NodeProcess] = []

    def start(*ros_args: str, program: str = "forecloud_node") -> NodeProcess:
        started.append(NodeProcess(*ros_args, program=program))
        return started[-1]

    yield start
    for node in started:
        if node.running():
            # Not killed: its subscriptions would seem alive to the next test for 20 s.
            try:
                node.stop(timeout_secs=10.0)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.wait_for_end()
        print(f"--- log of the node\n{node.log}")  # pytest shows it where a test fails
