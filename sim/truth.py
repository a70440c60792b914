"""The bodies that a recording's truth tells of: the model's, and each triangle of a cloth."""

import mujoco
import numpy as np

from sim.soft import Faces, Soft

KINDS = (("object", "object"), ("left", "robot"), ("right", "robot"))


class Truth:
    """Ids are indices. A cloth's vertices, MuJoCo's last bodies, give way to its triangles."""

    def __init__(self, model: mujoco.MjModel, soft: Soft | None):
        self.faces = Faces(model, soft) if model.nflex else None
        self.soft = soft
        self.solid = int(model.flex_vertbodyid.min()) if model.nflex else model.nbody
        self.names = [model.body(body).name for body in range(self.solid)]
        if self.faces:
            thing = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_FLEX, 0)
            self.names += [f"{thing}_face_{k}" for k in range(self.faces.count)]

    def bodies(self) -> list[dict]:
        """Id, name and kind of each."""
        found = []
        for body, name in enumerate(self.names):
            kind = next((k for prefix, k in KINDS if name.startswith(prefix)), "static")
            found.append({"id": body, "name": name, "kind": kind})
        return found

    def poses(self, data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray]:
        """Places (n × 3, m) and quaternions (n × 4, w x y z) in the world."""
        places, turns = data.xpos[: self.solid], data.xquat[: self.solid]
        if not self.faces:
            return places, turns
        more = self.faces.poses(data)
        return np.concatenate([places, more[0]]), np.concatenate([turns, more[1]])
