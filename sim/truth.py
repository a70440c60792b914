"""The bodies that a recording's truth tells of: the model's, and each triangle of a cloth."""

import mujoco
import numpy as np

from sim.rig import Rig
from sim.robot import TWO_ARMS
from sim.soft import Faces, Soft


class Truth:
    """Ids are indices. A cloth's vertices, MuJoCo's last bodies, give way to its triangles."""

    def __init__(self, model: mujoco.MjModel, soft: Soft | None, rig: Rig = TWO_ARMS):
        self.rig = rig
        self.faces = Faces(model, soft) if model.nflex else None
        self.soft = soft
        self.solid = int(model.flex_vertbodyid.min()) if model.nflex else model.nbody
        self.names = [model.body(body).name for body in range(self.solid)]
        if self.faces:
            thing = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_FLEX, 0)
            self.names += [f"{thing}_face_{k}" for k in range(self.faces.count)]

    def bodies(self) -> list[dict]:
        """Id, name and kind of each."""
        found, links = [], {link.name for link in self.rig.links}
        for body, name in enumerate(self.names):
            about = {"id": body, "name": name, "kind": "static"}
            if name in links:
                about |= {"kind": "robot"} if self.rig.told else {"kind": "object", "mover": True}
            elif name.startswith("object"):
                about["kind"] = "object"
            found.append(about)
        return found

    def poses(self, data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray]:
        """Places (n × 3, m) and quaternions (n × 4, w x y z) in the world."""
        places, turns = data.xpos[: self.solid], data.xquat[: self.solid]
        if not self.faces:
            return places, turns
        more = self.faces.poses(data)
        return np.concatenate([places, more[0]]), np.concatenate([turns, more[1]])
