"""One episode: decide, execute, go back, look again."""

import numpy as np

from sim.closed_loop.planners import Planner
from sim.closed_loop.tasks import DECISIONS, Scene
from sim.closed_loop.world import SETTLE, World

FIRST_LOOK = 0.5  # s of frames before the first decision


def run(planner: Planner, made: Scene, stream=None, decisions: int | None = None) -> dict:
    """The episode, and what became of it. Simulated time stands still while the planner thinks."""
    planner.begin(made.seed)
    world = World(made, stream)
    goal, rows = world.goal, []
    world.idle(FIRST_LOOK)
    start = goal.reach(world.state())
    for _ in range(decisions or DECISIONS[made.task]):
        before = world.state()
        if goal.reached(before) or world.lost():
            break
        decision = planner.plan(world.observe(), goal)
        if decision.plan:
            planner.acts(True)
            world.execute(decision.plan, settle=0.2)
            world.back()
            planner.acts(False)
            world.idle(SETTLE)
        else:
            world.idle(0.2)
        rows.append(row(decision, goal, before, world.state(), planner.asked_goal(goal)))
    state = world.state()
    return {
        "task": made.task, "seed": made.seed, "variety": made.variety.name, "robot": made.robot, "planner": planner.name,
        "kappa": made.kappa, "success": bool(goal.reached(state)), "error_first_m": start,
        "error_last_m": goal.reach(state), "toppled": goal.toppled(state), "neighbours": len(made.things) - len(goal.targets),
        "plans": sum(r["plans"] for r in rows), "arm_touches": world.touches, "lost": world.lost(), "decisions": rows,
    }


def row(decision, goal, before, after, asked) -> dict:
    """A decision as a line of the results: what was predicted, and what happened; `within_tolerance` of the
    goal that the planner was `asked` for."""
    told = {
        name: None if np.isnan(value := getattr(decision, name)) else float(value)
        for name in ("cost", "idle", "reach", "leave", "success_probability")
    }
    return told | {
        "acted": decision.plan is not None, "seconds": decision.seconds, "plans": decision.plans,
        "message": decision.message, "error_before_m": goal.reach(before), "error_after_m": goal.reach(after),
        "left_m": goal.leave(before, after), "within_tolerance": bool(asked.reach(after) <= asked.tolerance),
        "toppled_after": goal.toppled(after), **decision.extra,
    }
