"""Forecloud as planner: the real node over DDS, asked by `~/plan`, or by `~/evaluate` for the costs of
candidates that the sampler of this package draws."""

import os
import shlex
import socket
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from sim.closed_loop import wire
from sim.closed_loop.goals import Goal
from sim.closed_loop.moves import Trajectory
from sim.closed_loop.planners import Decision, Planner, Sampling
from sim.closed_loop.stream import CLOCK
from sim.closed_loop.world import Observation
from sim.recording import write_meshes

ROOT = Path(__file__).resolve().parents[2]
ABOVE = 0.005  # m over the table, from which on a region begins: its top is no target
MARGIN = 0.01  # m about a target's bounds
INSIDE = 0.005  # m by which a box is asked for smaller than it is scored: cameras see one side of things
ROOM = 0.012  # m of a box that holds several: a push may end short
N_STEPS = 30  # the longest plan asked for
FIND_SECS, ANSWER_SECS = 20.0, 120.0
PREFIX = ROOT / "install/forecloud/share/forecloud/local_setup.bash"  # as scripts/build makes it


def interfaces():
    """The messages of ROS 2 Jazzy and this repository's, read from their files."""
    types = get_typestore(Stores.ROS2_JAZZY)
    found = {}
    for path in sorted((ROOT / "msg").glob("*.msg")):
        found |= get_types_from_msg(path.read_text(), f"forecloud/msg/{path.stem}")
    for path, parts in (
        ("action/Plan.action", ("Goal", "Result", "Feedback")), ("srv/Evaluate.srv", ("Request", "Response")),
        ("srv/Predict.srv", ("Request", "Response")),
    ):
        texts = (ROOT / path).read_text().split("\n---\n")
        for part, text in zip(parts, texts):
            found |= get_types_from_msg(text, f"forecloud/msg/{Path(path).stem}_{part}")
    # std_srvs/SetBool, which the store has not.
    found |= get_types_from_msg("bool data", "forecloud/msg/SetBool_Request")
    found |= get_types_from_msg("bool success\nstring message", "forecloud/msg/SetBool_Response")
    types.register(found)
    return types


TYPES = interfaces()
MSG = TYPES.types


def made(kind: str, **values):
    """A message of this repository; fields that are not named are zero or empty, not their default."""
    cls = MSG[kind]
    fields = {name: zero(desc) for name, desc in TYPES.get_msgdef(kind).fields}
    return cls(**(fields | values))


def zero(desc):
    """Nothing, as a field's type has it."""
    from rosbags.interfaces import Nodetype

    node, detail = desc
    if node == Nodetype.NAME:
        return made(detail)
    if node == Nodetype.BASE:
        return {"string": "", "bool": False}.get(detail[0], 0.0 if detail[0].startswith("float") else 0)
    (inner, what) = detail[0]
    if inner == Nodetype.BASE and what[0] != "string":
        return np.zeros(0 if node == Nodetype.SEQUENCE else detail[1], what[0] if what[0] != "bool" else np.bool_)
    return []


def read(body: bytes, kind: str):
    """A message from what rclpy serialized, which may be followed by bytes that mean nothing."""
    definition = TYPES.get_msgdef(kind)
    return definition.deserialize_cdr_le(body[4:], 0, definition.cls, TYPES)[0]


def point(values):
    """A geometry_msgs/Point."""
    return MSG["geometry_msgs/msg/Point"](*(float(v) for v in values))


def box(low, high):
    """A Box between two corners."""
    return made("forecloud/msg/Box", min=point(low), max=point(high))


def region(seen: Observation, goal: Goal) -> tuple[np.ndarray, np.ndarray]:
    """Where the target's particles are now: the bounds of its points, or of a whole tray of targets."""
    if len(goal.targets) > 1:
        return np.array((-0.4, -0.44, ABOVE)), np.array((0.5, 0.44, 0.2))
    points = goal.at(seen.state, goal.targets[0])
    low, high = points.min(axis=0) - MARGIN, points.max(axis=0) + MARGIN
    return np.array([*low[:2], max(low[2], ABOVE)]), high


def smaller(goal: Goal) -> Goal:
    """With the box that is asked for."""
    if goal.box is None:
        return goal
    inside = ROOM if len(goal.targets) > 1 else INSIDE
    shrunk = np.array((inside, inside, 0.0))
    return replace(goal, box=(goal.box[0] + shrunk, goal.box[1] - shrunk))


def goal_message(seen: Observation, goal: Goal):
    """The same goal as msg/Goal.msg."""
    values = dict(
        select=0, region=box(*region(seen, goal)), reach_weight=1.0, tolerance=goal.tolerance, kappa=goal.kappa,
        leave_weight=goal.leave_weight, clearance=0.02, clearance_weight=float(goal.spares_neighbours),
    )
    if goal.box is not None:
        return made("forecloud/msg/Goal", reach=0, box=box(*smaller(goal).box), **values)
    k = goal.targets[0]
    place, turn = seen.state[0][k], seen.state[1][k]
    rotation = goal.rotation @ turn.T
    from sim.recording import quaternion, vector
    from sim.scene import quaternion_of

    motion = MSG["geometry_msgs/msg/Transform"](vector(goal.place - rotation @ place), quaternion(quaternion_of(rotation)))
    return made("forecloud/msg/Goal", reach=2, motion=motion, **values)


def trajectory_message(plan: Trajectory):
    """A JointTrajectory from the frame's stamp on."""
    kind, duration = MSG["trajectory_msgs/msg/JointTrajectoryPoint"], MSG["builtin_interfaces/msg/Duration"]
    none = np.zeros(0)
    points = []
    for at, row in zip(plan.times, plan.positions):
        nanos = round(float(at) * 1e9)
        points.append(kind(np.array(row, float), none, none, none, duration(nanos // 10**9, nanos % 10**9)))
    return made("trajectory_msgs/msg/JointTrajectory", joint_names=list(plan.names), points=points)


def trajectory_of(message) -> Trajectory:
    """Back. Raises ValueError on what can't be executed."""
    times = np.array([p.time_from_start.sec + p.time_from_start.nanosec / 1e9 for p in message.points])
    rows = np.array([p.positions for p in message.points])
    if not len(times) or rows.shape != (len(times), len(message.joint_names)) or np.any(np.diff(times) < 0):
        raise ValueError("the plan has no points, or not one position a joint, or times that go back")
    if not np.all(np.isfinite(rows)):
        raise ValueError("the plan has positions that are no numbers")
    return Trajectory(list(message.joint_names), times, rows)


def domain() -> tuple[int, socket.socket]:
    """A ROS domain that no other loop or test of this machine has, and what holds it until it is closed: two in
    one would hear each other's clock and pictures. Raises RuntimeError where all are taken."""
    for number in range(10, 100):
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0forecloud_ros_domain_{number}")  # Linux keeps such names in no folder
            return number, held
        except OSError:
            held.close()
    raise RuntimeError("all ROS domains from 10 to 99 are taken by other closed loops and tests")


class Link:
    """The ROS process with the node: a sink of a Stream, and who answers."""

    def __init__(self, settings: dict, log: Path, setup: Path | None = None, program: str = ""):
        self.settings, self.log, self.program = settings, log, program
        self.setup = setup or PREFIX
        self.bridge, self.met = None, False

    def begin(self, topics, rig) -> None:
        """Starts both."""
        cameras = [name.split("/")[1] for name, _, _ in topics if name.endswith("/depth/image_raw")]
        told = [row for row in topics if not row[0].startswith("/truth")] + [(*CLOCK, False)]
        self.latched = {name for name, _, latched in told if latched}
        self.topics = {name for name, _, _ in told}
        self.needed = sorted(self.topics - {"/tf"})
        parameters = {
            "use_sim_time": "true", "cameras": f"[{', '.join(cameras)}]", "deadline_secs": "0.0",
            "model": str(ROOT / "models" / "small.safetensors"),
        }
        if rig.meshes:
            # Beside the log, as beside a recording.
            folder = self.log.with_suffix("")
            write_meshes(rig.meshes, folder)
            parameters["mesh_paths"] = f"['{folder.absolute()}']"
        parameters |= self.settings
        command = [*shlex.split(self.program), "--ros-args"]
        for name, value in parameters.items():
            command += ["-p", f"{name}:={value}"]
        env = dict(os.environ)
        number, self.domain = domain()
        env["ROS_DOMAIN_ID"] = str(number)
        env["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
        env["FASTRTPS_DEFAULT_PROFILES_FILE"] = str(ROOT / "config" / "fastdds_large_clouds.xml")
        # A workspace that is sourced already may have no such file.
        sourced = f"{{ [[ ! -f {shlex.quote(str(self.setup))} ]] || source {shlex.quote(str(self.setup))}; }}"
        program = f"source scripts/ros2_env && set +u && {sourced} && exec python3 sim/closed_loop/bridge.py"
        self.errors = open(self.log.with_suffix(".bridge.log"), "w")
        self.bridge = subprocess.Popen(
            ["bash", "-c", program], cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
        )
        self.ask({"do": "start", "topics": told, "log": str(self.log), "command": command, "find": not self.program})

    def ask(self, head: dict, body: bytes = b"") -> tuple[dict, bytes]:
        """A packet and its answer. Raises RuntimeError where there is none, or it says that it failed."""
        wire.write(self.bridge.stdin, head, body)
        answer = wire.read(self.bridge.stdout)
        if answer is None:
            raise RuntimeError(f"the ROS process ended: {self.log.with_suffix('.bridge.log')} says why")
        if not answer[0]["ok"] and head["do"] != "wait":
            raise RuntimeError(f"{head['do']}: {answer[0].get('message')}")
        return answer

    def message(self, at: int, topic: str, data: bytes) -> None:
        """Publishes; before the first that is not latched, waits until the node hears all."""
        if topic not in self.topics:
            return
        if topic not in self.latched and not self.met:
            self.ask({"do": "meet", "needed": self.needed})
            self.met = True
        wire.write(self.bridge.stdin, {"do": "publish", "topic": topic}, data)

    def wait(self, stamp: int, seconds: float) -> bool:
        """Whether the frame of this stamp is predicted in time."""
        return self.ask({"do": "wait", "stamp": stamp, "seconds": seconds})[0]["ok"]

    def request(self, head: dict, kind: str, message, answer: str):
        """Serializes, asks, and reads the answer; also what the head says."""
        head |= {"find_seconds": FIND_SECS, "seconds": ANSWER_SECS}
        told, body = self.ask(head, bytes(TYPES.serialize_cdr(message, kind)))
        return told, read(body, answer)

    def end(self) -> None:
        """Ends both."""
        if self.bridge:
            self.bridge.stdin.close()
            try:
                self.bridge.wait(20)
            except subprocess.TimeoutExpired:
                self.bridge.kill()
            self.errors.close()
            self.domain.close()
            self.bridge = None


class OverDds(Planner):
    """What asks the node: a frame must have been predicted before."""

    needs_node = True

    def __init__(
        self, settings: dict | None = None, log: Path | None = None, budget_secs: float = 2.0, setup: Path | None = None,
        program: str = "", max_plans: int = 0, pause: bool = False,
    ):
        log = log or Path(tempfile.gettempdir()) / f"closed_loop_{os.getpid()}.log"
        self.link = Link(settings or {}, log, setup, program)
        self.budget_secs, self.max_plans, self.pause = budget_secs, max_plans, pause

    def look(self, seen: Observation) -> Observation:
        """Waits for the newest frame's prediction; where it was passed over, for that of a further one."""
        world = seen.world
        for _ in range(20):
            if self.link.wait(world.stream.stamp(), 15.0):
                return world.observe()
            world.idle(0.1)
        raise RuntimeError(f"no frame was predicted: {self.link.log} says why")

    def asked_goal(self, goal: Goal) -> Goal:
        return smaller(goal)

    def acts(self, now: bool) -> None:
        if self.pause:
            request = made("forecloud/msg/SetBool_Request", data=now)
            head = {"do": "call", "service": "pause", "kind": "std_srvs/srv/SetBool"}
            self.link.request(head, "forecloud/msg/SetBool_Request", request, "forecloud/msg/SetBool_Response")

    def close(self) -> None:
        self.link.end()


class Forecloud(OverDds):
    """`~/plan`."""

    name = "forecloud"

    def decide(self, seen: Observation, goal: Goal) -> Decision:
        seen = self.look(seen)
        answer = self.asked(seen, goal)
        if answer.plan is None and answer.extra["idle_reach_m"] <= goal.tolerance:
            # It sees enough where it belongs: one side of things, and of several the mean. What is farthest
            # off is asked for alone, and nearer; what it then tells is of another tolerance.
            worst = max(goal.targets, key=lambda k: goal.off(seen.state, k))
            answer = self.asked(seen, replace(goal, targets=(worst,), tolerance=goal.tolerance / 4))
            answer.success_probability = float("nan")
        return answer

    def asked(self, seen: Observation, goal: Goal) -> Decision:
        """What the node answers."""
        request = made(
            "forecloud/msg/Plan_Goal", goal=goal_message(seen, goal), budget_secs=self.budget_secs, n_steps=N_STEPS,
            max_plans=self.max_plans, seed=int(self.rng.integers(2**31)),
        )
        head = {"do": "act", "action": "plan", "kind": "forecloud/action/Plan"}
        told, answer = self.link.request(head, "forecloud/msg/Plan_Goal", request, "forecloud/msg/Plan_Result")
        plan = trajectory_of(answer.plan) if answer.success else None
        cost = answer.cost
        return Decision(
            plan, seconds=told["seconds"], plans=int(answer.n_plans), cost=cost.cost, idle=answer.idle.cost,
            reach=cost.reach, leave=cost.leave, success_probability=cost.success_probability, message=answer.message,
            extra={
                "planning_secs": answer.planning_secs, "reach_sigma_m": cost.reach_sigma, "cost_90": cost.cost_90,
                "plan_secs": plan.seconds() if plan else 0.0, "feedback": told["feedback"], "idle_reach_m": answer.idle.reach,
            },
        )


class ForecloudCosts(OverDds, Sampling):
    """`~/evaluate` as model in the search that the oracle has."""

    name = "forecloud_costs"
    rounds = (16, 8)

    def decide(self, seen: Observation, goal: Goal) -> Decision:
        return Sampling.decide(self, self.look(seen), goal)

    def outcomes(self, seen: Observation, goal: Goal, plans: list[Trajectory]) -> list[dict]:
        if not plans:
            return []
        longest = max(plan.seconds() for plan in plans)
        request = made(
            "forecloud/msg/Evaluate_Request", plans=[trajectory_message(plan) for plan in plans],
            goal=goal_message(seen, goal), n_steps=min(int(np.ceil(longest * 10)) + 2, 100),
        )
        head = {"do": "call", "service": "evaluate", "kind": "forecloud/srv/Evaluate"}
        _, answer = self.link.request(head, "forecloud/msg/Evaluate_Request", request, "forecloud/msg/Evaluate_Response")
        if not answer.success:
            raise RuntimeError(f"~/evaluate: {answer.message}")
        return [
            {"cost": c.cost, "reach": c.reach, "leave": c.leave, "success_probability": c.success_probability}
            for c in answer.costs
        ]


class ForecloudPredictions(ForecloudCosts):
    """`~/predict` as model: whole predictions come back, and the goal is measured here."""

    name = "forecloud_predictions"

    def outcomes(self, seen: Observation, goal: Goal, plans: list[Trajectory]) -> list[dict]:
        if not plans:
            return []
        longest = max(plan.seconds() for plan in plans)
        request = made(
            "forecloud/msg/Predict_Request", plans=[trajectory_message(plan) for plan in plans],
            n_steps=min(int(np.ceil(longest * 10)) + 2, 100),
        )
        head = {"do": "call", "service": "predict", "kind": "forecloud/srv/Predict"}
        _, answer = self.link.request(head, "forecloud/msg/Predict_Request", request, "forecloud/msg/Predict_Response")
        if not answer.success:
            raise RuntimeError(f"~/predict: {answer.message}")
        return [self.measured(seen, goal, prediction) for prediction in answer.predictions]

    @staticmethod
    def measured(seen: Observation, goal: Goal, prediction) -> dict:
        """Cost and terms of a prediction; particles belong to the objects whose bounds they lie in."""
        start = np.asarray(prediction.positions, float).reshape(-1, 3)
        end = start + np.asarray(prediction.displacements, float).reshape(prediction.n_steps, -1, 3).sum(axis=0)

        def inside(bounds) -> np.ndarray:
            return np.all((start > bounds[0]) & (start < bounds[1]), axis=1)

        target = inside(region(seen, goal))
        if not target.any():
            return {"cost": float("inf")}
        if goal.box is not None:
            gaps = np.maximum(np.maximum(goal.box[0] - end, end - goal.box[1]), 0)
        else:
            k = goal.targets[0]
            rotation = goal.rotation @ seen.state[1][k].T
            gaps = end - ((start - seen.state[0][k]) @ rotation.T + goal.place)
        reach, leave = float(np.linalg.norm(gaps[target], axis=1).mean()), 0.0
        others = np.zeros(len(start), bool)
        for k in set(range(len(goal.points))) - set(goal.targets):
            points = goal.at(seen.state, k)
            others |= inside((np.maximum(points.min(axis=0), (-9, -9, ABOVE)), points.max(axis=0)))
        if (others := others & ~target).any():
            ways = np.sort(np.linalg.norm((end - start)[others], axis=1))
            leave = float(ways[-max(len(ways) // 10, 1):].mean())
        return {"cost": reach + goal.leave_weight * leave, "reach": reach, "leave": leave}


OVER_DDS = {kind.name: kind for kind in (Forecloud, ForecloudCosts, ForecloudPredictions)}
