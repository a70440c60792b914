"""What the arms do: each task chooses the objects, and the next motion of an arm."""

from sim import stage
from sim.splits import split_of
from sim.tasks import plain
from sim.tasks.base import Grip, Seen
from sim.tasks.belt import Belt
from sim.tasks.bump import Bump
from sim.tasks.can import Can
from sim.tasks.carry import Carry
from sim.tasks.grains import Grains
from sim.tasks.lift import Lift
from sim.tasks.push import Push
from sim.tasks.reach import Reach
from sim.tasks.soft import Cloth, Rope
from sim.tasks.steady import Steady
from sim.tasks.tumble import Tumble
from sim.variety import PLAIN, of_split

PLAIN_TASKS = {task.name: task for task in (plain.Push, plain.Tumble)}
RIGID = {task.name: task for task in (Can, Lift, Push, Tumble)}
SOFT = {task.name: task for task in (Cloth, Rope)}
MATERIALS = SOFT | {task.name: task for task in (Belt, Grains, Reach, Steady)}
TRAINABLE = SOFT | {Steady.name: Steady}
REAL = {task.name: task for task in (Bump, Can, Carry, Lift, Push, Tumble)}
TASKS = REAL | MATERIALS
VARIETIES = ("real", "split", "plain")


def of(split: str, variety: str = "split") -> dict:
    """The tasks of a split by name; `variety`: `real`, or as before, `split` or the first, `plain`."""
    if variety == "plain":
        return PLAIN_TASKS if split in ("train", "val", "test") else {}
    if variety == "real" and split != "materials":
        robots = {name: task for name, task in REAL.items() if name != "bump"}
        return robots if split == "robots" else REAL
    if split == "robots":
        return {}
    if split == "materials":  # hands reach, and things go on, about the older scenes' arms
        older = (Reach, Steady)
        return {name: task for name, task in MATERIALS.items() if variety == "split" or task not in older}
    return RIGID


def possible(split: str, variety: str = "split") -> dict:
    """The tasks that can be asked for by name: those of the split, and what else can be trained on.

    No split but `materials` has grains, a belt or a hand in the way: no model has been trained on them.
    """
    more = TRAINABLE if variety == "split" and split in ("train", "val", "test") else {}
    return of(split, variety) | more


def make(name: str, seed: int, variety: str, rng):
    """A task (with its robot) and its variety, whose seed says the split.

    Raises ValueError where the split has no such task.
    """
    split = split_of(seed)
    kinds = possible(split, variety)
    if name not in kinds:
        raise ValueError(f"no task {name!r} in split {split}: expected {', '.join(sorted(kinds))}")
    if variety == "plain":
        return kinds[name](rng), PLAIN
    chosen = of_split(split, variety)
    if variety == "real":
        stage_ = stage.draw(name, split, kinds[name].arms_needed, rng)
        task = kinds[name](rng, chosen, stage_.rig)
        task.stage = stage_
        return task, chosen
    return kinds[name](rng, chosen), chosen


def number(name: str) -> int:
    """The task's number among all, part of its random seed."""
    return TASKS[name].number


__all__ = ["Grip", "PLAIN_TASKS", "MATERIALS", "REAL", "RIGID", "SOFT", "Seen", "TASKS", "VARIETIES", "make", "number", "of", "possible"]
