"""Remakes the committed samples: `python -m sim.fixtures`, from the repository's root.

`tests/data/two_arms.urdf`, `kinematics.json` (MuJoCo's link poses), `tiny_push` (six frames with
contact), and the demo recordings `data/demo_tumble` and `data/demo_can`.
"""

import json
import shutil
from pathlib import Path

import mujoco
import numpy as np

from sim import episode, gl, recording, robot, scene, textures
from sim.imaging import Imaging

TINY_SEED, TINY_FRAMES = 200_003, 6
DEMO_SEED = 200_005
# One camera; an arm of meshes with fingers that move, whose place tf tells.
DEMO_CAN_SEED = 200_002


def kinematics(cases: int) -> dict:
    """Random joint positions, and the pose of every link in the world: x y z, then qx qy qz qw."""
    rng = np.random.default_rng(7)
    model = scene.build([], scene.cameras(rng), textures.plain(rng))
    data = mujoco.MjData(model)
    names = [link.name for side in robot.SIDES for link in robot.links(side)]
    found = []
    for case in range(cases):
        limits = np.array([j.limit for j in robot.JOINTS] * 2)
        positions = rng.uniform(-limits, limits) if case else np.zeros(14)
        data.qpos[:] = positions
        mujoco.mj_kinematics(model, data)
        poses = {}
        for name in names:
            body = data.body(name)
            w, *xyz = body.xquat.tolist()
            poses[name] = [*body.xpos.tolist(), *xyz, w]
        found.append({"positions": positions.tolist(), "poses": poses})
    return {"urdf": "two_arms.urdf", "joints": robot.joint_names(), "cases": found}


def replace_recording(part: episode.Episode, folder: Path) -> None:
    """Writes a recording in place of an older one."""
    shutil.rmtree(folder, ignore_errors=True)
    recording.write(part, folder)


def main() -> None:
    """Writes everything."""
    if problem := gl.problem():
        raise SystemExit(problem)
    tests = Path("tests/data")
    tests.mkdir(parents=True, exist_ok=True)
    Path("data").mkdir(exist_ok=True)
    (tests / "two_arms.urdf").write_text(robot.urdf())
    (tests / "kinematics.json").write_text(json.dumps(kinematics(6), indent=1) + "\n")
    push = episode.simulate("push", TINY_SEED, variety="plain")
    way = np.convolve(push.steps()[:, 0], np.ones(TINY_FRAMES - 1), "valid")
    replace_recording(push.part(int(np.argmax(way)), TINY_FRAMES), tests / "tiny_push")
    replace_recording(episode.simulate("tumble", DEMO_SEED, variety="plain"), Path("data/demo_tumble"))
    can = episode.simulate("can", DEMO_CAN_SEED, variety="real", imaging=Imaging(rate_hz=10))
    replace_recording(can, Path("data/demo_can"))


if __name__ == "__main__":
    main()
