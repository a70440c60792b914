"""Real-like scenes: any robot or none, at any place and scale; what rests stays at rest."""

import xml.etree.ElementTree as ET

import mujoco
import numpy as np
import pytest

from sim import arms, episode, movers, real_arms, recording, rig, scene, stage, tasks, textures
from sim.arm import Arm
from sim.flow import Recording
from sim.imaging import Imaging
from sim.meshes import triangles_of
from sim.tests.test_robot import numbers, origin, turn
from sim.variety import REAL_SEEN


def link_poses(urdf, root_pose, positions):
    """World pose of every link of a URDF whose root stands at a pose, with slides too."""
    joints, root = ET.fromstring(urdf).findall("joint"), ET.fromstring(urdf).find("link").get("name")
    poses = {root: root_pose}
    while len(poses) <= len(joints):
        for joint in joints:
            parent, child = joint.find("parent").get("link"), joint.find("child").get("link")
            if parent in poses and child not in poses:
                motion, kind = np.eye(4), joint.get("type")
                if kind != "fixed":
                    axis, value = numbers(joint.find("axis"), "xyz"), positions[joint.get("name")]
                    if kind == "revolute":
                        motion[:3, :3] = turn(axis, value)
                    else:
                        motion[:3, 3] = axis * value
                poses[child] = poses[parent] @ origin(joint) @ motion
    return poses


def built(rig, place=None):
    """The model of a rig alone."""
    rng = np.random.default_rng(0)
    return scene.build([], scene.cameras(rng), textures.plain(rng), None, rig, place)


def check_rig(rig):
    """URDF and model agree on poses and meshes, and joints come in the URDF within limits."""
    model = built(rig)
    data, rng = mujoco.MjData(model), np.random.default_rng(1)
    text = rig.urdf("some_robot")
    root = np.eye(4)
    root[:3, 3] = rig.root_pose[0]
    limits = {
        j.get("name"): (float(j.find("limit").get("lower")), float(j.find("limit").get("upper")))
        for j in ET.fromstring(text).findall("joint") if j.get("type") != "fixed"
    }
    assert set(limits) == set(rig.joint_names())
    for _ in range(3):
        values = {name: rng.uniform(*limits[name]) for name in rig.joint_names()}
        for name, value in values.items():
            data.qpos[model.joint(name).qposadr[0]] = value
        mujoco.mj_kinematics(model, data)
        for name, pose in link_poses(text, root, values).items():
            np.testing.assert_allclose(data.body(name).xpos, pose[:3, 3], atol=1e-9)
            np.testing.assert_allclose(data.body(name).xmat.reshape(3, 3), pose[:3, :3], atol=1e-9)
    for link in ET.fromstring(text).findall("link"):
        for shown in link.findall("visual"):
            if (mesh := shown.find("geometry/mesh")) is not None:
                name = mesh.get("filename").removeprefix("package://some_robot/meshes/")[:-4]
                check_mesh(rig, model, link.get("name"), name, origin(shown))


def check_mesh(rig, model, link, name, pose):
    """The STL's corners lie where MuJoCo draws them."""
    corners = triangles_of(rig.meshes[name]).reshape(-1, 3) @ pose[:3, :3].T + pose[:3, 3]
    mesh = model.mesh(f"rig_{name}").id
    geom = next(g for g in range(model.ngeom) if model.geom_dataid[g] == mesh and model.geom_type[g] == 7)
    assert model.body(model.geom_bodyid[geom]).name == link
    frame = np.empty(9)
    mujoco.mju_quat2Mat(frame, model.geom_quat[geom])
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    drawn = model.mesh_vert[first : first + count] @ frame.reshape(3, 3).T + model.geom_pos[geom]
    for ends in (np.min, np.max):
        np.testing.assert_allclose(ends(drawn, axis=0), ends(corners, axis=0), atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_drawn_robots_are_the_same_in_urdf_and_model(seed):
    check_rig(arms.robot(np.random.default_rng(seed), 1 + seed % 2))


def test_robots_differ():
    about = [arms.robot(np.random.default_rng(seed), 1).about for seed in range(60)]
    for key, many in (("joints", 2), ("mount", 3), ("hand", 3), ("meshes", 2), ("root", 4)):
        assert len({a[key] for a in about}) == many, key
    assert 0.3 < np.mean([a["meshes"] for a in about]) < 0.7


@pytest.mark.skipif(bool(real_arms.problem()), reason=str(real_arms.problem()))
@pytest.mark.parametrize("known", real_arms.ARMS, ids=lambda known: known.name)
def test_real_arms_are_the_same_in_urdf_and_model(known, monkeypatch):
    monkeypatch.setattr(real_arms, "ARMS", (known,))
    rig = real_arms.robot(np.random.default_rng(2), 1)
    check_rig(rig)
    model = built(rig)
    spec = rig.arms[0]
    arm = Arm(model, spec, np.array(spec.home))
    assert arm.miss(arm.joints[0]) < 0.005
    assert len(rig.meshes) > 5


def test_without_the_package_the_split_robots_says_so(monkeypatch):
    monkeypatch.setattr(real_arms, "folder", lambda: None)
    with pytest.raises(RuntimeError, match="pip"):
        episode.simulate("can", 500_000, variety="real")


def settled(seed):
    """How far what rests goes in two seconds beside arms that stand still (m), by thing."""
    rng = np.random.default_rng(seed)
    place = stage.draw("carry", "train", 0, rng)
    task = tasks.REAL["carry"](rng, REAL_SEEN, place.rig)
    own = task.things()
    stage.furnish(place, own, REAL_SEEN, rng, False)
    model = scene.build(own, [], REAL_SEEN.look(rng), None, movers.movers(rng, 1), place)
    data = mujoco.MjData(model)
    lead = model.body("left_lead").mocapid[0]
    data.mocap_pos[lead] = (0, 0, 2.0)
    hand = model.jnt_qposadr[model.body_jntadr[model.body("left_palm").id]]
    data.qpos[hand : hand + 3] = (0, 0, 2.0)
    names = [b for b in range(model.nbody) if model.body(b).name.startswith("object")]
    mujoco.mj_forward(model, data)
    first = data.xpos[names].copy()
    for _ in range(1000):
        mujoco.mj_step(model, data)
    return np.linalg.norm(data.xpos[names] - first, axis=1)


def test_what_rests_stays_at_rest():
    """On tables and floors, on each other, on shelves, hung or held: of 12 scenes, all but round
    things that were put on a slope of others."""
    gone = np.concatenate([settled(seed) for seed in range(12)])
    assert len(gone) > 30
    assert np.mean(gone < 0.003) > 0.93
    assert np.median(gone) < 0.001


def test_scenes_are_placed_and_scaled(needs_gl, tmp_path, monkeypatch):
    """No robot: no topic of one; movers are objects; the ground is where the truth says."""
    monkeypatch.setattr(episode.Attempt, "check_lively", lambda *_: None)
    made = episode.simulate("carry", 11, frames=3, variety="real", imaging=Imaging())
    assert not made.rig.told and made.stage.scale > 2
    folder = tmp_path / "carry_11"
    recording.write(made, folder)
    read = Recording(folder)
    kinds = {b["name"]: b for b in read.about["bodies"]}
    for link in made.rig.links:
        assert kinds[link.name]["kind"] == "object" and kinds[link.name]["mover"]
    assert read.about["mover"]["kind"] == "hand" and read.about["scale"] == made.stage.scale
    camera = next(iter(read.depth))
    points, ids = read.points(0, camera)
    ground = points[(ids == 0) & (points[:, 2] < made.stage.offset[2] + 0.3)]
    assert np.median(ground[:, 2]) == pytest.approx(made.stage.offset[2], abs=0.01)
    from rosbags.highlevel import AnyReader

    with AnyReader([folder]) as reader:
        topics = {c.topic for c in reader.connections}
    assert not topics & {"/robot_description", "/joint_states", "/planned_joints", "/tf"}


def test_cameras_and_places_vary():
    drawn = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        place = stage.draw("push", "train", 0, rng)
        drawn.append((place, stage.cameras(place, [], rng)))
    alone = np.mean([len(views) == 1 for _, views in drawn])
    assert 0.15 < alone < 0.5
    assert {view.width for _, views in drawn for view in views} == {320, 640}
    free = [place for place, _ in drawn if not place.rig.told]
    assert min(p.scale for p in free) < 0.8 and max(p.scale for p in free) > 2
    assert all(p.scale == 1 for p, _ in drawn if p.rig.told)
    assert {p.support for p, _ in drawn} == {"table", "floor"}
    assert np.std([p.offset[2] for p in free]) > 0.2


def test_splits_have_their_own_tasks():
    assert set(tasks.of("train", "real")) == {"bump", "can", "carry", "lift", "push", "tumble"}
    assert set(tasks.of("robots", "real")) == {"can", "carry", "lift", "push", "tumble"}
    assert set(tasks.of("materials", "real")) == {"belt", "cloth", "grains", "rope"}
    assert not tasks.of("robots", "split") and not tasks.of("robots", "plain")


def test_angles_of_urdf_are_exact_near_a_right_angle():
    """Roll, pitch, yaw give the turn back to 1e-12, also where two of the axes nearly meet."""
    rng = np.random.default_rng(3)
    turns = [rig.about((0, 1, 0), np.pi / 2 + off) for off in (0, 1e-15, 1e-12, 1e-9, 1e-7, 1e-4)]
    turns += [tuple(q / np.linalg.norm(q)) for q in rng.normal(size=(50, 4))]
    turns += [tuple(np.array((0.707107, 0, 0.707107, 0)) / np.linalg.norm((0.707107, 0.707107)))]
    spins = [rig.about((1, 2, 3), 0.0), rig.about((0, 0, 1), 1.0), rig.about((1, 0, 0), -2.0)]
    for one in turns:
        for other in spins:
            both = rig.matrix(one) @ rig.matrix(other)
            roll, pitch, yaw = rig.rpy(rig.quaternion_of(both))
            back = turn((0, 0, 1), yaw) @ turn((0, 1, 0), pitch) @ turn((1, 0, 0), roll)
            np.testing.assert_allclose(back, both, atol=1e-12)
