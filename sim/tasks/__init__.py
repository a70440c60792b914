"""What the arms do: each task chooses the objects, and the next motion of an arm."""

from sim.splits import split_of
from sim.tasks import plain
from sim.tasks.base import Grip, Seen
from sim.tasks.can import Can
from sim.tasks.lift import Lift
from sim.tasks.push import Push
from sim.tasks.soft import Cloth, Rope
from sim.tasks.tumble import Tumble
from sim.variety import PLAIN, of_split

PLAIN_TASKS = {task.name: task for task in (plain.Push, plain.Tumble)}
RIGID = {task.name: task for task in (Can, Lift, Push, Tumble)}
SOFT = {task.name: task for task in (Cloth, Rope)}
TASKS = RIGID | SOFT


def of(split: str, variety: str = "split") -> dict:
    """The tasks of a split by name; `variety`: `plain` for the first scene."""
    if variety == "plain":
        return PLAIN_TASKS
    return SOFT if split == "materials" else RIGID


def make(name: str, seed: int, variety: str, rng):
    """A task and its variety, whose seed says the split.

    Raises ValueError where the split has no such task.
    """
    split = split_of(seed)
    kinds = of(split, variety)
    if name not in kinds:
        raise ValueError(f"no task {name!r} in split {split}: expected {', '.join(sorted(kinds))}")
    if variety == "plain":
        return kinds[name](rng), PLAIN
    chosen = of_split(split)
    return kinds[name](rng, chosen), chosen


def number(name: str) -> int:
    """The task's number among all, part of its random seed."""
    return TASKS[name].number


__all__ = ["Grip", "PLAIN_TASKS", "RIGID", "SOFT", "Seen", "TASKS", "make", "number", "of"]
