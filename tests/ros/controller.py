"""A controller as the plan relay meets it: an action server that does what the test says.

`python controller.py NAME` runs one in a process of its own, which takes goals and never ends them;
it says when it is ready, and after SIGUSR1 it hangs.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

import rclpy
from control_msgs.action import FollowJointTrajectory, GripperCommand
from rclpy.action import ActionServer, CancelResponse, GoalResponse


class Controller:
    """Executes goals until `end` says how they end."""

    def __init__(self, node, name: str, kind=FollowJointTrajectory):
        self.accepts = True
        self.cancels = True
        self.goals: list = []
        """The accepted goals' handles."""
        self._changed = threading.Condition()
        action = "gripper_cmd" if kind is GripperCommand else "follow_joint_trajectory"
        self._server = ActionServer(
            node,
            kind,
            f"{name}/{action}",
            execute_callback=lambda _: None,  # each goal gets its own
            handle_accepted_callback=self._accepted,
            goal_callback=lambda _: GoalResponse.ACCEPT if self.accepts else GoalResponse.REJECT,
            cancel_callback=lambda _: (
                CancelResponse.ACCEPT if self.cancels else CancelResponse.REJECT
            ),
        )

    def _accepted(self, handle) -> None:
        with self._changed:
            self.goals.append(handle)
            self._changed.notify_all()

    def wait(self, i: int, timeout_secs: float = 60.0):
        """Handle of the goal number `i`."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.goals) > i, timeout_secs), f"no goal {i}"
        return self.goals[i]

    def end(self, i: int, how: str, result) -> None:
        """Ends goal number `i`: `succeed`, `abort` or `canceled`."""

        def execute(handle):
            getattr(handle, how)()
            return result

        self.wait(i).execute(execute)

    def close(self) -> None:
        self._server.destroy()


def main(name: str) -> None:
    rclpy.init()
    node = rclpy.create_node("controller")
    controller = Controller(node, name)
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(600.0))
    print("ready", flush=True)
    end = time.monotonic() + 600.0
    while time.monotonic() < end:
        executor.spin_once(timeout_sec=0.1)
    controller.close()


if __name__ == "__main__":
    main(sys.argv[1])
