"""Grains, of the split `materials`: a heap of many small things that falls apart and is swept."""

import numpy as np

from sim import shapes, textures
from sim.rig import ArmSpec
from sim.scene import Thing
from sim.tasks.base import Seen, Task

COUNT = (24, 40)
RADIUS = (0.013, 0.019)  # m
KINDS = ("sphere", "ellipsoid", "box")
GAP = 0.004  # m between grains at first


class Grains(Task):
    """Grains of one kind drop in a column, and the arms wipe through the heap."""

    name, number, lively_frames = "grains", 8, 10

    def things(self) -> list[Thing]:
        """The grains, in layers above the table that keep clear of each other."""
        rng = self.rng
        self.blind = dict.fromkeys(self.blind, 0.3)  # s; they fall first
        count = int(rng.integers(COUNT[0], COUNT[1] + 1))
        kind, half_length = str(rng.choice(KINDS)), float(rng.uniform(*RADIUS))
        parts = shapes.build(kind, half_length, rng)
        reach = max(np.linalg.norm(part.position) + part.bounding_radius() for part in parts)
        light, dark = textures.colours(rng)
        density, friction = float(rng.uniform(400, 1200)), float(rng.uniform(0.3, 0.8))
        middle, side = rng.uniform((-0.1, -0.06), (0.06, 0.06)), int(rng.integers(3, 5))
        pitch, falls = 2 * reach + GAP, float(rng.uniform(0.0, 0.1))
        grains = []
        for k in range(count):
            row, column, layer = k % side, k // side % side, k // side**2
            flat = (np.array((row, column)) - (side - 1) / 2) * pitch + middle
            place = flat + rng.uniform(-GAP, GAP, 2) / 4
            quaternion = rng.normal(size=4)
            grains.append(Thing(
                kind=kind, size=(), density=density, friction=friction, bounce=0.1,
                colours=(light, dark),
                position=np.array([*place, falls + reach + GAP + layer * pitch]),
                quaternion=quaternion / np.linalg.norm(quaternion), velocity=np.zeros(6),
                parts=parts, texture=textures.Texture("checker", light, dark),
                grips=((0, parts[0].position),),
            ))
        return grains

    def start(self, spec: ArmSpec) -> np.ndarray:
        """First pose of an arm: clear of what falls."""
        pose = super().start(spec)
        return pose + (-0.05, 0.05 * np.sign(pose[1]), 0.12, 0)

    def act(self, arm, now: float, seen: Seen) -> None:
        """Wipes through where grains lie on the arm's side."""
        mine = self.mine(arm, seen, 0.04)
        if not mine:
            arm.hold(self.rng.uniform(0.2, 0.5))
            return
        self.sweep(arm, seen.positions[int(self.rng.choice(mine))])
        self.blind[arm.side] = arm.end()
