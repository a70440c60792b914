"""Planners behind one interface: `plan(observation, goal)` says what to do, or that nothing is worth it.

All but Forecloud's need no node. Those that sample share one sampler and one search; what differs is
the model that says what a candidate comes to.
"""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from sim.closed_loop.goals import Goal, State
from sim.closed_loop.moves import Mover, Push, Trajectory
from sim.closed_loop.world import Observation

ROUNDS = (16, 12, 8)  # candidates of each round of the search
KEPT = 4  # of the best, about which the next round draws
WORTH = 0.001  # m of cost by which a plan must beat standing still
HEIGHTS = (0.02, 0.05)  # m, of the finger tips in a push


@dataclass
class Decision:
    """A trajectory or none, and what the planner knows of it. Costs in m; NaN: it doesn't tell."""

    plan: Trajectory | None
    seconds: float = 0.0
    plans: int = 0
    cost: float = float("nan")
    idle: float = float("nan")
    reach: float = float("nan")
    leave: float = float("nan")
    success_probability: float = float("nan")
    message: str = ""
    extra: dict = field(default_factory=dict)


class Sampler:
    """Draws pushes about the one that goes straight at the goal."""

    def __init__(self, seen: Observation, goal: Goal, rng: np.random.Generator):
        self.seen, self.goal, self.rng = seen, goal, rng
        self.movers: dict[str, Mover] = seen.world.movers
        off = np.array([goal.off(seen.state, k) for k in goal.targets])
        self.worst = goal.targets[int(np.argmax(off))]
        self.share = off / off.sum() if off.sum() > 0 else np.full(len(off), 1 / len(off))

    def straight(self, k: int) -> Push:
        """From the target straight to where it is to be."""
        way = self.goal.aim(self.seen.state, k) - self.seen.state[0][k][:2]
        return Push("", k, float(np.arctan2(way[1], way[0])), float(max(np.linalg.norm(way), 0.02)))

    def fitted(self, push: Push) -> tuple[Push, Trajectory] | None:
        """The push by an arm that reaches it, the one named first; None where none does."""
        places, turns = self.seen.state
        named = [push.side] if push.side in self.movers else []
        middle = places[push.k][:2] - 0.1 * np.array([np.cos(push.angle), np.sin(push.angle)])
        near = sorted(self.movers, key=lambda s: np.linalg.norm(middle - self.movers[s].arm.base[:2]))
        for side in [*named, *(s for s in near if s not in named)]:
            made = replace(push, side=side)
            plan = self.movers[side].push(made, places[push.k], turns[push.k], self.seen.shapes[push.k])
            if plan:
                return made, plan
        return None

    def near(self, push: Push, spread: float = 1.0) -> Push:
        """A push like another."""
        rng = self.rng
        return replace(
            push, angle=push.angle + spread * rng.normal(0, 0.45), beside=push.beside + spread * rng.normal(0, 0.018),
            way=max(push.way * (1 + spread * rng.normal(0, 0.3)), 0.01),
            height=float(np.clip(push.height + spread * rng.normal(0, 0.01), *HEIGHTS)),
            turn=push.turn + spread * rng.normal(0, 0.15),
        )

    def drawn(self) -> Push:
        """One to begin with: about the straight push of a target, one that is farther off more often."""
        push = self.near(self.straight(int(self.rng.choice(self.goal.targets, p=self.share))))
        return replace(push, side=str(self.rng.choice(list(self.movers))))

    def anyhow(self) -> Push:
        """A push of any target in any direction."""
        rng = self.rng
        k = int(rng.choice(self.goal.targets))
        return Push(
            str(rng.choice(list(self.movers))), k, float(rng.uniform(-np.pi, np.pi)), float(rng.uniform(0.03, 0.2)),
            float(rng.normal(0, 0.02)), float(rng.uniform(*HEIGHTS)),
        )


class Planner:
    """What the loop asks. `needs_node`: whether frames must go out as topics."""

    name, needs_node = "", False

    def begin(self, seed: int) -> None:
        """A new episode; the same seed gives the same plans."""
        self.rng = np.random.default_rng([11, seed])

    def plan(self, seen: Observation, goal: Goal) -> Decision:
        """What to do now."""
        start = time.perf_counter()
        made = self.decide(seen, goal)
        made.seconds = made.seconds or time.perf_counter() - start
        return made

    def decide(self, seen: Observation, goal: Goal) -> Decision:
        """The decision, without its time."""
        raise NotImplementedError

    def asked_goal(self, goal: Goal) -> Goal:
        """What it asks for, which may be more than what is scored: probabilities are held against this."""
        return goal

    def acts(self, now: bool) -> None:
        """The robot begins or ends to carry out a decision."""

    def close(self) -> None:
        """Ends what it started."""


class Random(Planner):
    """Any push of a target."""

    name = "random"

    def decide(self, seen: Observation, goal: Goal) -> Decision:
        sampler = Sampler(seen, goal, self.rng)
        for _ in range(100):
            if found := sampler.fitted(sampler.anyhow()):
                return Decision(found[1], plans=1)
        return Decision(None, message="no push that an arm reaches")


class Heuristic(Planner):
    """Pushes the target that is farthest off straight at where it is to be."""

    name = "heuristic"

    def decide(self, seen: Observation, goal: Goal) -> Decision:
        sampler = Sampler(seen, goal, self.rng)
        for k in [sampler.worst, *goal.targets]:
            if found := sampler.fitted(sampler.straight(k)):
                return Decision(found[1], plans=1)
        return Decision(None, message="no straight push that an arm reaches")


class Sampling(Planner):
    """Cross-entropy search: rounds of candidates, each drawn about the best of those before."""

    rounds = ROUNDS

    def outcomes(self, seen: Observation, goal: Goal, plans: list[Trajectory]) -> list[dict]:
        """What each plan comes to: cost, reach, leave, perhaps success_probability."""
        return [self.terms(seen, goal, self.after(seen, plan)) for plan in plans]

    def after(self, seen: Observation, plan: Trajectory) -> State:
        """The state after a plan, as the model has it."""
        raise NotImplementedError

    @staticmethod
    def terms(seen: Observation, goal: Goal, after: State) -> dict:
        """Cost and terms of a state."""
        leave = goal.leave(seen.state, after)
        # A neighbour that falls is worth more than the way its top goes.
        fell = goal.toppled(after) if goal.spares_neighbours else 0
        reach = goal.reach(after)
        return {"cost": reach + goal.leave_weight * (leave + 0.1 * fell), "reach": reach, "leave": leave}

    def decide(self, seen: Observation, goal: Goal) -> Decision:
        sampler = Sampler(seen, goal, self.rng)
        idle = self.terms(seen, goal, seen.state)["cost"]
        tried: list[tuple[float, int, Push, Trajectory, dict]] = []
        for number, count in enumerate(self.rounds):
            found = self.candidates(sampler, [row[2] for row in sorted(tried, key=lambda r: r[:2])[:KEPT]], count, number)
            for (push, plan), terms in zip(found, self.outcomes(seen, goal, [plan for _, plan in found])):
                tried.append((terms["cost"], len(tried), push, plan, terms))
        best = min(tried, key=lambda row: row[:2], default=None)
        if best is None or not best[0] < idle - WORTH:
            return Decision(None, plans=len(tried), idle=idle, message="no plan is better than standing still")
        return Decision(best[3], plans=len(tried), idle=idle, **best[4])

    @staticmethod
    def candidates(sampler: Sampler, best: list[Push], count: int, number: int) -> list[tuple[Push, Trajectory]]:
        """Pushes of a round that an arm reaches; the first round has the straight ones."""
        wanted = [sampler.straight(k) for k in sampler.goal.targets] if not number else []
        found = [pair for push in wanted if (pair := sampler.fitted(push))]
        for _ in range(10 * count):
            if len(found) >= count:
                break
            push = sampler.near(best[int(sampler.rng.integers(len(best)))], 0.6**number) if best else sampler.drawn()
            if pair := sampler.fitted(push):
                found.append(pair)
        return found


class NothingMoves(Sampling):
    """As model: nothing moves. What a plan comes to doesn't depend on it, so few are tried."""

    name, rounds = "nothing_moves", (4,)

    def after(self, seen: Observation, plan: Trajectory) -> State:
        return seen.state


class ConstantVelocity(Sampling):
    """As model: what moves goes on as it does, whatever the robot does."""

    name, rounds = "constant_velocity", (4,)

    def after(self, seen: Observation, plan: Trajectory) -> State:
        places, turns = seen.state
        return places + seen.world.speeds() * plan.seconds(), turns


class Oracle(Sampling):
    """As model: the simulator itself."""

    name = "oracle"

    def after(self, seen: Observation, plan: Trajectory) -> State:
        return seen.world.imagine(plan)


NODELESS = {kind.name: kind for kind in (Random, Heuristic, NothingMoves, ConstantVelocity, Oracle)}
