"""The closed loop without a node: goals, moves, planners, results, and the messages that would go out."""

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from sim.closed_loop import results, wire
from sim.closed_loop.goals import Goal
from sim.closed_loop.moves import Trajectory
from sim.closed_loop.loop import run
from sim.closed_loop.planners import NODELESS, Oracle, Sampler
from sim.closed_loop.tasks import TASKS, Scene
from sim.closed_loop.world import World
from sim.recording import Messages, write_meshes

SEED = 1


@pytest.fixture(scope="module")
def world():
    """The first scene of pushing, at rest. Tests put it back."""
    return World(Scene("push", SEED))


def turned(angle: float) -> np.ndarray:
    """About z."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array(((c, -s, 0), (s, c, 0), (0, 0, 1.0)))


def two(points) -> Goal:
    """A target that is to go 3 cm along x, and a neighbour."""
    state = np.array([[0, 0, 0.05], [0.3, 0, 0.05]]), np.stack([np.eye(3)] * 2)
    place = np.array([0.03, 0, 0.05])
    return Goal("push", (0,), [points] * 2, state, 0.01, place=place, rotation=np.eye(3), leave_weight=0.5)


def test_a_pose_is_missed_by_the_mean_way_of_its_points():
    goal = two(np.array([[0.1, 0, 0], [-0.1, 0, 0]]))
    assert goal.reach(goal.first) == pytest.approx(0.03)
    there = goal.first[0] + [[0.03, 0, 0], [0, 0, 0]], goal.first[1]
    assert goal.reach(there) == pytest.approx(0) and goal.reached(there)
    uneven = two(np.array([[0.1, 0, 0], [0.0, 0, 0]]))
    spun = there[0], np.stack([turned(0.2), np.eye(3)])
    assert uneven.reach(spun) == pytest.approx(0.1 * np.sin(0.1)), "the mean of two"
    assert goal.reach(spun) == pytest.approx(2 * 0.1 * np.sin(0.1))
    moved = there[0] + [[0, 0, 0], [0, 0.04, 0]], goal.first[1]
    assert goal.leave(there, moved) == pytest.approx(0.04)
    assert goal.cost(there, moved) == pytest.approx(0.02)


def test_a_neighbour_that_lies_is_toppled_however_it_is_turned_about_the_vertical():
    goal = two(np.array([[0.1, 0, 0]]))
    lean = np.array(((1, 0, 0), (0, np.cos(1), -np.sin(1)), (0, np.sin(1), np.cos(1))))
    spun = goal.first[0], np.stack([np.eye(3), turned(2.0)])
    fallen = goal.first[0], np.stack([np.eye(3), turned(2.0) @ lean])
    assert (goal.toppled(spun), goal.toppled(fallen)) == (0, 1)


@pytest.mark.parametrize("variety", ("seen", "unseen"))
@pytest.mark.parametrize("task", TASKS)
def test_scenes_repeat_and_are_not_done_at_first(task, variety):
    one, again = (World(Scene(task, SEED, variety)) for _ in range(2))
    np.testing.assert_array_equal(one.data.qpos, again.data.qpos)
    goal = one.goal
    assert goal.reach(one.state()) > 2 * goal.tolerance
    assert goal.toppled(one.state()) == 0 and not one.lost()


def test_another_robot_does_the_same_scene_and_pushes_in_it():
    for seed in range(8):
        scene = Scene("push", seed, robot="drawn")
        if scene.rig.arms[0].fingers:
            break
    usual, drawn = World(Scene("push", seed)), World(scene)
    for one, other in zip(usual.scene.things, drawn.scene.things):
        np.testing.assert_array_equal(one.position, other.position)
    assert drawn.names != usual.names and len(drawn.command) == drawn.model.nu == len(drawn.names)
    assert np.abs(drawn.data.qpos[drawn.qpos] - drawn.command).max() < 0.05, "its hands are closed, its arms at home"
    made = run(NODELESS["heuristic"](), scene, decisions=1)
    assert made["robot"] == "drawn" and made["decisions"][0]["acted"]
    assert made["error_last_m"] != pytest.approx(made["error_first_m"], abs=1e-4)


def test_another_robots_root_is_told_and_its_meshes_lie_where_they_are_looked_for(tmp_path):
    for seed in range(30):
        scene = Scene("push", seed, robot="drawn")
        if scene.rig.meshes and scene.rig.root != "world":
            break
    messages = Messages(World(scene).live)
    [static] = [message for _, topic, message in messages.latched() if topic == "/tf_static"]
    frames = {t.child_frame_id: t for t in static.transforms}
    place = frames[scene.rig.root].transform.translation
    np.testing.assert_allclose((place.x, place.y, place.z), scene.rig.root_pose[0])
    assert frames[scene.rig.root].header.frame_id == "world"
    write_meshes(scene.rig.meshes, tmp_path)
    named = set(re.findall(r"package://robot/(meshes/[^\"]+)", scene.rig.urdf()))
    assert named and all((tmp_path / name).is_file() for name in named)


def test_imagining_changes_nothing_and_is_what_happens(world):
    before = world.data.qpos.copy()
    sampler = Sampler(world.observe(), world.goal, np.random.default_rng(0))
    push, plan = sampler.fitted(sampler.straight(0))
    imagined = world.imagine(plan)
    np.testing.assert_array_equal(before, world.data.qpos)
    fresh = World(Scene("push", SEED))
    fresh.execute(plan, settle=0.3)
    np.testing.assert_allclose(fresh.state()[0], imagined[0], atol=0.002)
    assert np.linalg.norm(imagined[0][0] - world.state()[0][0]) > 0.02, "it is pushed"
    fresh.back()
    fresh.idle(0.4)
    assert np.abs(fresh.data.qpos[fresh.qpos] - world.command).max() < 0.01, "the arms are home again"


def test_all_joints_go_back_the_way_they_came(world):
    fresh = World(Scene("push", SEED))
    done = []
    execute = fresh.execute
    fresh.execute = lambda plan, settle=0.0: (done.append(plan), execute(plan, settle))
    # Both arms, and fingers, by another way than straight.
    turn = np.sin(np.linspace(0, np.pi, 41))[:, None] * np.linspace(0.1, 0.3, len(fresh.names))
    there = np.linspace(0, 0.2, 41)[:, None] + turn
    low, high = fresh.model.jnt_range[[fresh.model.joint(name).id for name in fresh.names]].T
    rows = np.clip(fresh.command + there, low, high)
    fresh.execute(Trajectory(list(fresh.names), np.arange(41) * 0.05, rows))
    fresh.back()
    back = done[1]
    assert back.names == fresh.names
    np.testing.assert_allclose(back.positions[0], rows[-1])
    np.testing.assert_allclose(back.positions[-1], rows[0], atol=1e-9)
    for time in (0.4, 1.0, 1.6):
        np.testing.assert_allclose(back.at(time), done[0].at(2.0 - time), atol=0.02)
    np.testing.assert_allclose(fresh.command, world.command, atol=1e-3)


def test_what_is_away_without_a_motion_goes_straight_home(world):
    fresh = World(Scene("push", SEED))
    fresh.command[:3] += 0.3
    fresh.last = fresh.command[None]
    fresh.back()
    np.testing.assert_allclose(fresh.command, world.command, atol=1e-3)


def test_plans_begin_where_the_robot_is_and_keep_to_its_limits(world):
    sampler = Sampler(world.observe(), world.goal, np.random.default_rng(0))
    found = [pair for _ in range(6) if (pair := sampler.fitted(sampler.anyhow()))]
    assert found
    for push, plan in found:
        spec = world.movers[push.side].spec
        columns = [world.names.index(name) for name in plan.names]
        np.testing.assert_allclose(plan.positions[0], world.command[columns])
        low, high = np.array(spec.limits).T
        assert np.all(plan.positions >= low) and np.all(plan.positions <= high)
        assert np.abs(np.diff(plan.positions, axis=0) / np.diff(plan.times)[:, None]).max() <= spec.speed + 1e-9


def test_the_simulator_as_model_is_no_worse_than_the_straight_push(world):
    oracle = Oracle()
    oracle.rounds = (4, 2)
    decisions = []
    for _ in range(2):
        oracle.begin(SEED)
        decisions.append(oracle.plan(world.observe(), world.goal))
    assert decisions[0].cost == decisions[1].cost, "the same seed, the same plan"
    np.testing.assert_array_equal(decisions[0].plan.positions, decisions[1].plan.positions)
    sampler = Sampler(world.observe(), world.goal, np.random.default_rng(0))
    straight = world.goal.cost(world.state(), world.imagine(sampler.fitted(sampler.straight(0))[1]))
    assert decisions[0].cost <= straight + 1e-9
    assert decisions[0].cost < decisions[0].idle


def test_models_in_which_nothing_follows_find_no_plan():
    planner = NODELESS["nothing_moves"]()
    planner.rounds = (4, 2)
    made = run(planner, Scene("push", SEED), decisions=1)
    assert not made["success"] and not made["decisions"][0]["acted"]
    assert made["error_last_m"] == pytest.approx(made["error_first_m"], abs=1e-4)


def test_results_go_on_after_an_interruption(tmp_path):
    path = tmp_path / "results.jsonl"
    row = {"task": "push", "variety": "seen", "planner": "oracle", "kappa": 0.0, "seed": 3}
    results.append(path, row)
    path.write_text(path.read_text() + '{"task": "pu')
    results.append(path, row | {"seed": 4})
    assert [r["seed"] for r in results.read(path)] == [3, 4]
    assert results.key(row) in {results.key(r) for r in results.read(path)}
    # Of the time when there was one robot.
    assert results.key(row) == results.key(row | {"robot": "two_arms"}) != results.key(row | {"robot": "drawn"})


def test_intervals_and_calibration():
    low, high = results.wilson(8, 10)  # 0.490, 0.943 in any table
    assert (round(low, 3), round(high, 3)) == (0.490, 0.943)
    assert results.wilson(0, 5)[0] == 0 and results.wilson(5, 5)[1] == 1
    low, high = results.bootstrap([1.0, 2.0, 3.0, 4.0])
    assert 1 <= low < 2.5 < high <= 4
    told = {"acted": True, "reach": 0.0, "error_after_m": 0.0}
    decisions = [told | {"success_probability": p, "within_tolerance": hit} for p, hit in ((0.9, True), (1.0, False), (0.1, False))]
    decisions.append(decisions[0] | {"acted": False})
    rows = [{"decisions": decisions}]
    first, last = results.calibration(rows)
    assert first[:2] == (0.1, 0.0) and first[4] == 1
    assert last[0] == pytest.approx(0.95) and last[1] == 0.5 and last[4] == 2
    assert results.plot(rows).count("<circle") == 2


def test_the_table_has_a_line_for_each_planner():
    made = [run(NODELESS[name](), Scene("push", SEED), decisions=1) for name in ("heuristic", "random")]
    made = json.loads(json.dumps(made))
    table = results.summary(made)
    assert len(table.splitlines()) == 4 and "| heuristic |" in table


def test_packets_come_back_and_wrong_ones_are_refused():
    stream = io.BytesIO()
    wire.write(stream, {"do": "publish"}, b"\0\1")
    wire.write(stream, {"ok": True})
    stream.seek(0)
    assert wire.read(stream) == ({"do": "publish"}, b"\0\1")
    assert wire.read(stream) == ({"ok": True}, b"") and wire.read(stream) is None
    with pytest.raises(ValueError, match="at most"):
        wire.read(io.BytesIO(b"\xff" * 8))


def test_the_goal_as_a_message_says_the_same(world):
    from sim.closed_loop import over_dds

    kind = "forecloud/msg/Plan_Goal"
    goal = over_dds.made(kind, goal=over_dds.goal_message(world.observe(), world.goal), n_steps=7, seed=5)
    back = over_dds.TYPES.deserialize_cdr(over_dds.TYPES.serialize_cdr(goal, kind), kind)
    assert (back.n_steps, back.seed, back.goal.reach, back.goal.tolerance) == (7, 5, 2, world.goal.tolerance)
    move, turn = back.goal.motion.translation, back.goal.motion.rotation
    place = world.state()[0][0]
    yaw = 2 * np.arctan2(turn.z, turn.w)
    there = turned(yaw) @ place + (move.x, move.y, move.z)
    np.testing.assert_allclose(there, world.goal.place, atol=1e-9)
    low, high = over_dds.region(world.observe(), world.goal)
    assert np.all(low < place) and np.all(place < high) and low[2] >= over_dds.ABOVE


def test_probabilities_are_of_the_smaller_box_that_is_asked_for():
    from sim.closed_loop import over_dds

    goal = World(Scene("gather", SEED)).goal
    asked = over_dds.smaller(goal)
    np.testing.assert_allclose(asked.box[0] - goal.box[0], (over_dds.ROOM, over_dds.ROOM, 0))
    np.testing.assert_allclose(goal.box[1] - asked.box[1], (over_dds.ROOM, over_dds.ROOM, 0))
    alone = over_dds.smaller(replace(goal, targets=(1,)))
    assert alone.box[0][0] - goal.box[0][0] == pytest.approx(over_dds.INSIDE)
    assert asked.reach(goal.first) > goal.reach(goal.first)


def test_a_plan_as_a_message_comes_back_and_a_broken_one_is_refused(world):
    from sim.closed_loop import over_dds

    sampler = Sampler(world.observe(), world.goal, np.random.default_rng(0))
    _, plan = sampler.fitted(sampler.straight(0))
    message = over_dds.trajectory_message(plan)
    back = over_dds.trajectory_of(message)
    assert back.names == plan.names
    np.testing.assert_allclose(back.times, plan.times, atol=1e-9)
    np.testing.assert_array_equal(back.positions, plan.positions)
    message.points[1].positions[0] = np.nan
    with pytest.raises(ValueError, match="no numbers"):
        over_dds.trajectory_of(message)
    message.points[1].positions = np.zeros(1)
    with pytest.raises(ValueError):
        over_dds.trajectory_of(message)


def test_no_two_loops_share_a_domain():
    from sim.closed_loop import over_dds

    held = [over_dds.domain() for _ in range(3)]
    assert len({number for number, _ in held}) == 3
    for _, socket in held:
        socket.close()
