#!/usr/bin/env python3
"""Plans with Forecloud and executes: look, plan, check, move, look again. To copy and change.

    python3 examples/mpc.py --region 0.0 -0.2 0.01 0.2 0.0 0.2 --box 0.3 -0.1 0.0 0.5 0.1 0.2

What lies in --region (minimum, maximum; metres, the node's world frame) is to come into --box. The node
only plans; this program sends what it has checked to --controller (control_msgs/FollowJointTrajectory).
Nothing here stops a robot: keep your hand at the emergency stop.
"""

import argparse
import math
import sys
import time

import rclpy
from control_msgs.action import FollowJointTrajectory
from geometry_msgs.msg import Point
from rclpy.action import ActionClient
from rclpy.duration import Duration
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from forecloud.action import Plan
from forecloud.msg import Box, Goal, Prediction

FROM_HERE = 0.05  # rad or m by which a plan's first point may miss the joints
LONGEST_SECS = 10.0
JOINTS_WITHIN_SECS = 5.0  # for the first of joint_states, which may be found late


class Mpc:
    """The loop's clients and the newest of what comes in."""

    def __init__(self, args):
        self.node = rclpy.create_node("forecloud_mpc")
        self.args, self.joints, self.predictions = args, {}, 0
        self.node.create_subscription(JointState, "joint_states", self.moved, 10)
        self.node.create_subscription(Prediction, f"{args.planner}/prediction", self.predicted, 10)
        self.planner = ActionClient(self.node, Plan, f"{args.planner}/plan")
        self.controller = ActionClient(self.node, FollowJointTrajectory, args.controller)

    def moved(self, message):
        self.joints.update(zip(message.name, message.position))

    def predicted(self, _):
        self.predictions += 1

    def spin_until(self, done, timeout_secs=math.inf):
        """Spins until `done()` is true or the time is over; tells which."""
        end = time.monotonic() + timeout_secs
        while not done() and time.monotonic() < end:
            rclpy.spin_once(self.node, timeout_sec=0.1)
        return done()

    def ask(self, client, goal, feedback=None):
        """The result of an action, or None where the goal was refused or did not succeed."""
        self.spin_until(client.server_is_ready)
        sent = client.send_goal_async(goal, feedback_callback=feedback)
        self.spin_until(sent.done)
        if not sent.result().accepted:
            return None
        ended = sent.result().get_result_async()
        self.spin_until(ended.done)
        return ended.result().result

    def plan(self, seed):
        """What the node answers to the goal, from a frame taken from now on."""
        seen = self.predictions
        self.spin_until(lambda: self.predictions >= seen + 2)
        low, high, into = self.args.region[:3], self.args.region[3:], self.args.box
        goal = Goal(select=Goal.SELECT_REGION, region=Box(min=point(low), max=point(high)))
        goal.reach, goal.box = Goal.REACH_BOX, Box(min=point(into[:3]), max=point(into[3:]))
        goal.tolerance, goal.kappa, goal.leave_weight = self.args.tolerance, self.args.kappa, 0.2
        request = Plan.Goal(goal=goal, budget_secs=self.args.budget, seed=seed)
        return self.ask(self.planner, request, self.tell)

    def tell(self, feedback):
        best = feedback.feedback
        print(f"  {best.n_plans} plans, the best costs {best.best.cost:.4f}")

    def unknown(self, plan):
        """Joints of a plan that nobody told the position of."""
        return sorted(set(plan.joint_names) - self.joints.keys())

    def wrong(self, plan):
        """Why a plan must not be executed here and now; None if nothing speaks against it."""
        if not plan.points or not plan.joint_names:
            return "it has no points"
        if not self.spin_until(lambda: not self.unknown(plan), JOINTS_WITHIN_SECS):
            return f"joint_states never told of {', '.join(self.unknown(plan))}"
        times = [seconds(p) for p in plan.points]
        if times != sorted(times) or times[-1] > LONGEST_SECS:
            return "its times go back, or too far"
        off = max(abs(a - self.joints[n]) for n, a in zip(plan.joint_names, plan.points[0].positions))
        return f"the robot is {off:.3f} off its start" if off > FROM_HERE else None

    def execute(self, plan):
        """Sends it to the controller, to start now, and waits for the end."""
        plan.header.stamp.sec = plan.header.stamp.nanosec = 0
        result = self.ask(self.controller, FollowJointTrajectory.Goal(trajectory=plan))
        return result is not None and result.error_code == FollowJointTrajectory.Result.SUCCESSFUL

    def back(self, plan):
        """Sends a plan that was carried out the other way round: that way was free."""
        back = JointTrajectory(joint_names=plan.joint_names)
        for p in reversed(plan.points):
            at = Duration(seconds=seconds(plan.points[-1]) - seconds(p)).to_msg()
            back.points.append(JointTrajectoryPoint(positions=p.positions, time_from_start=at))
        return self.execute(back)


def seconds(p):
    return p.time_from_start.sec + p.time_from_start.nanosec / 1e9


def point(values):
    return Point(**dict(zip("xyz", map(float, values))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--region", nargs=6, type=float, required=True)
    parser.add_argument("--box", nargs=6, type=float, required=True)
    parser.add_argument("--tolerance", type=float, default=0.01, help="m; default: %(default)s")
    parser.add_argument("--kappa", type=float, default=1.0, help="sigmas on the safe side; default: %(default)s")
    parser.add_argument("--budget", type=float, default=2.0, help="s a plan; default: %(default)s")
    parser.add_argument("--steps", type=int, default=10, help="motions at most; default: %(default)s")
    back = "after each motion go back the way it came: for pushes, as what a hand holds comes back, too"
    parser.add_argument("--back", action="store_true", help=back)
    parser.add_argument("--planner", default="/forecloud")
    parser.add_argument("--controller", default="joint_trajectory_controller/follow_joint_trajectory")
    args = parser.parse_args(rclpy.utilities.remove_ros_args(sys.argv)[1:])
    rclpy.init()
    loop = Mpc(args)
    for step in range(args.steps):
        answer = loop.plan(step)
        if answer is None:
            sys.exit("the planner refused the goal")
        print(f"{step}: {answer.message}")
        if not answer.success and not answer.plan.points:
            sys.exit("the goal can't be planned for")
        if not answer.success and answer.idle.reach <= args.tolerance:
            return print("there")
        if not answer.success:
            continue  # no plan is good enough: another seed
        if reason := loop.wrong(answer.plan):
            sys.exit(f"not executed: {reason}")
        if not loop.execute(answer.plan):
            sys.exit("the controller did not carry it out")
        if args.back and not loop.back(answer.plan):
            sys.exit("the controller did not carry out the way back")
    sys.exit(f"not there after {args.steps} motions")


if __name__ == "__main__":
    main()
