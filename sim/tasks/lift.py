"""Two arms that lift one large object together and drop it."""

import numpy as np

from sim import grasps, things
from sim.robot import TWO_ARMS
from sim.scene import Thing
from sim.tasks.base import TOUCH, Seen, Task, within_reach

APART = 0.17  # m between the hands, at least


class Lift(Task):
    """Each arm grips an end of a long object; they lift, carry and let go, together or in turn."""

    name, number, lively_frames, arms_needed = "lift", 2, 12, 2

    def __init__(self, rng: np.random.Generator, variety, rig=TWO_ARMS):
        super().__init__(rng, variety, rig)
        self.working = tuple(spec.side for spec in rig.arms)

    def things(self) -> list[Thing]:
        """The long object across the table, and bystanders."""
        rng = self.rng
        count = self.variety.count(self.name, rng)
        long = self.variety.thing("long", rng)
        place = rng.uniform((-0.14, -0.05), (0.04, 0.05))
        things.lie(long, place, np.pi / 2 * rng.choice((-1, 1)) + rng.uniform(-0.5, 0.5))
        others = [self.variety.thing("compact", rng) for _ in range(count - 1)]
        things.arrange(others, rng, 0.0, (-0.3, 0.32), (-0.32, 0.32), placed=(long,))
        return [long, *others]

    def act(self, arm, now: float, seen: Seen) -> None:
        """The next lift of both arms, or a wait until there can be one."""
        self.align()
        if now < max(self.blind.values()) or not seen.still(0) or not self.lift_ends(seen):
            for each in self.arms:
                each.hold(0.2)

    def lift_ends(self, seen: Seen) -> bool:
        """Lifts object 0 by its ends; False where the arms can't."""
        tops = sorted((seen.top(0, grip) for grip in (0, 1)), key=lambda p: -p[1])
        return self.lift([0, 0], tops)

    def lift(self, held: list[int], tops: list[np.ndarray]) -> bool:
        """Left and right arm grip things at their tops, lift, carry, let go; False if they can't."""
        rng = self.rng
        gap = tops[0] - tops[1]
        if gap[1] < 0.6 * np.linalg.norm(gap[:2]) or np.linalg.norm(gap[:2]) < APART:
            return False
        ends = self.goals(tops)
        if ends is None:
            return False
        yaw = np.arctan2(gap[1], gap[0]) + np.pi / 2
        grips = [np.array([*(top + (0, 0, TOUCH)), yaw]) for top in tops]
        shares = []
        for arm, grip, thing, top in zip(self.arms, grips, held, tops):
            if arm.fingers.size:
                grasp = grasps.at(arm.spec, self.seen, thing, top, yaw)
                grip[:3] = grasp.tip
                shares.append(grasp.share)
        self.together([g + (0, 0, max(0.1, 0.2 - g[2]), 0) for g in grips], rng.uniform(0.6, 1.0))
        self.together(grips, rng.uniform(0.35, 0.6))
        if shares:
            for arm, share in zip(self.arms, shares):
                self.close(arm, share)
            self.align()
        else:
            self.pause(0.1)
        start = self.arms[0].end()
        grips = [arm.pose.copy() for arm in self.arms]
        up = rng.uniform(0.1, 0.26)
        slant = rng.uniform(-0.05, 0.05) if rng.uniform() < 0.5 else 0.0
        self.together(
            [g + (0, 0, up + s * slant, 0) for s, g in zip((1, -1), grips)],
            rng.uniform(0.3, 0.7), exact=True,
        )
        over, turned = ends
        lifted = [
            np.array([*over[i], arm.pose[2], arm.pose[3] + turned])
            for i, arm in enumerate(self.arms)
        ]
        self.together(lifted, rng.uniform(0.25, 0.7), bool(rng.uniform() < 0.3), exact=True)
        self.let_go(held, start)
        return True

    def goals(self, tops: list[np.ndarray]) -> tuple[list[np.ndarray], float] | None:
        """Where the hands carry to (two places), and how far the pair turns (rad)."""
        middle = (tops[0] + tops[1])[:2] / 2
        for _ in range(40):
            turned = self.rng.uniform(-0.35, 0.35)
            c, s = np.cos(turned), np.sin(turned)
            to = middle + self.rng.uniform(-0.13, 0.13, 2)
            over = [to + np.array(((c, -s), (s, c))) @ (top[:2] - middle) for top in tops]
            fits = (within_reach(a, p, top) for a, p, top in zip(self.arms, over, tops))
            if all(fits) and -0.24 < to[0] < 0.14 and abs(to[1]) < 0.12:
                return over, float(turned)
        return None

    def let_go(self, held: list[int], start: float) -> None:
        """Both hands open, at once or one before the other; then the arms go away."""
        rng = self.rng
        self.pause(rng.uniform(0.05, 0.5))
        ends = [self.arms[0].end()] * 2
        if rng.uniform() < 0.3:
            ends[int(rng.integers(2))] += float(rng.uniform(0.15, 0.5))
        self.pause(max(ends) - min(ends) + 0.1)
        for arm, thing, end in zip(self.arms, held, ends):
            self.held(arm, thing, start, end, shared=True)
            self.leave(arm, max(ends))
        self.align()

    def pause(self, seconds: float) -> None:
        """Both arms stand still."""
        for arm in self.arms:
            arm.hold(seconds)
