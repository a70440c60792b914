"""The log on /rosout, and what the ROS arguments make it say."""

from __future__ import annotations

import rclpy
from conftest import NodeProcess, Received, wait_for
from rclpy.qos import DurabilityPolicy, QoSProfile
from recording import message_class

LOG = "rcl_interfaces/msg/Log"
DEBUG, INFO, WARN, ERROR = 10, 20, 30, 40


class Rosout(Received):
    """As a tool reads it that was started after the node: latched."""

    def __init__(self, node):
        self.messages: list = []
        self.topic = "/rosout"
        self._node = node
        qos = QoSProfile(depth=1000, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._subscription = node.create_subscription(
            message_class(LOG), self.topic, self.messages.append, qos
        )

    def of(self, logger: str) -> list:
        return [m for m in list(self.messages) if m.name == logger]

    def wait_for_text(self, logger: str, text: str):
        def found():
            return next((m for m in self.of(logger) if text in m.msg), None)

        return wait_for(found, f"'{text}' of {logger} on /rosout")


def test_the_log_is_on_rosout_also_for_those_who_come_later(ros, start_node):
    node = start_node("-r", "__ns:=/robot_1", "-r", "__node:=seer")
    node.wait_for_log("waits for messages")
    rosout = Rosout(ros)
    waits = rosout.wait_for_text("robot_1.seer", "/robot_1/seer waits for messages on")
    assert waits.level == INFO
    assert waits.file.endswith("crates/node/src/node/spinner.rs") and waits.line > 0
    assert waits.function.startswith("forecloud_node::")
    assert abs(waits.stamp.sec - ros.get_clock().now().nanoseconds // 10**9) < 60

    # A warning that comes a hundred times is told once, as in the log on stderr.
    joints = ros.create_publisher(message_class("sensor_msgs/msg/JointState"), "/robot_1/joint_states", 100)
    wait_for(joints.get_subscription_count, "the node's subscription")
    data = b"\x00\x01\x00\x00"

    def told():
        joints.publish(data)
        return "sensor_msgs/msg/JointState" in node.log

    wait_for(told, "the node to log the bad message")
    for _ in range(100):
        joints.publish(data)
    bad = rosout.wait_for_text("robot_1.seer", "/joint_states: sensor_msgs/msg/JointState")
    assert bad.level == WARN
    assert sum("/joint_states: " in m.msg for m in rosout.of("robot_1.seer")) == 1

    # What it says last comes too.
    assert node.stop() == 0
    rosout.wait_for_text("robot_1.seer", "/robot_1/seer ends")
    on_stderr = [line.split(maxsplit=2)[2].strip() for line in node.log.splitlines()]
    assert [m.msg for m in rosout.of("robot_1.seer")] == on_stderr
    ros.destroy_publisher(joints)


def test_log_levels_of_the_ros_arguments(ros, start_node):
    rosout = Rosout(ros)
    loud = start_node("-r", "__node:=loud", "--log-level", "loud:=debug")
    quiet = start_node("-r", "__node:=quiet", "--log-level", "warn")
    other = start_node("-r", "__node:=other", "--log-level", "someone:=debug")
    debug = rosout.wait_for_text("loud", "status 'images'")
    assert debug.level == DEBUG and debug.msg in loud.log
    rosout.wait_for_text("other", "waits for messages")
    # Silence for two seconds is worth a warning, so the node runs by then.
    rosout.wait_for_text("quiet", "images: no message")
    assert all(m.level >= WARN for m in rosout.of("quiet"))
    assert "INFO" not in quiet.log
    assert all(m.level >= INFO for m in rosout.of("other")) and "DEBUG" not in other.log


def test_rust_log_chooses_where_the_arguments_do_not(ros, monkeypatch):
    monkeypatch.setenv("RUST_LOG", "warn")
    rosout = Rosout(ros)
    quiet = NodeProcess("-r", "__node:=by_variable")
    info = NodeProcess("-r", "__node:=by_argument", "--log-level", "info")
    rosout.wait_for_text("by_argument", "waits for messages")
    rosout.wait_for_text("by_variable", "images: no message")
    assert all(m.level >= WARN for m in rosout.of("by_variable"))
    for node in (quiet, info):
        assert node.stop() == 0


def test_rosout_can_be_switched_off(ros, start_node):
    rosout = Rosout(ros)
    node = start_node("-r", "__node:=mute", "--disable-rosout-logs")
    node.wait_for_log("images: no message")
    wait_for(lambda: "mute" in ros.get_node_names(), "the node to be known")
    infos = ros.get_publishers_info_by_topic("/rosout")
    assert "mute" not in [info.node_name for info in infos]
    assert not rosout.of("mute")


def test_why_the_node_ends_is_on_rosout(ros):
    rosout = Rosout(ros)
    node = NodeProcess("-r", "__node:=blind", "-p", "horizon:=three")
    error = rosout.wait_for_text("blind", "`horizon` must be a whole number")
    assert error.level == ERROR
    assert node.wait_for_end() == 1
    assert node.log.count("`horizon` must be") == 1
    assert rclpy.ok()
