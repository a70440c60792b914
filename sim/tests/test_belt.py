"""The belt of examples/intercept.py: a hand that is sent to the true place meets the thing, and another does not."""

import numpy as np
import pytest

from sim import gl
from sim.closed_loop.belt import WATCHED, Belt

STEPS, FRAME_SECS = 8, 0.1


@pytest.fixture(autouse=True)
def pictures():
    if problem := gl.problem():
        pytest.skip(problem)


def watched(seed: int) -> Belt:
    belt = Belt(seed)
    for _ in range(WATCHED):
        belt.wait()
    return belt


@pytest.mark.parametrize("seed", [0, 3])
def test_a_hand_that_knows_meets_it(seed):
    belt = watched(seed)
    place = belt.data.xpos[belt.body][:2].copy()
    later = place + (0, belt.speed * STEPS * FRAME_SECS)
    assert belt.meet(later, STEPS * FRAME_SECS) < 0.003
    # The belt carries it, and the hand did not.
    assert np.abs(belt.data.xpos[belt.body][:2] - later).max() < 0.003
    belt.end()
    belt = watched(seed)
    assert belt.meet(place, STEPS * FRAME_SECS) == pytest.approx(abs(belt.speed) * STEPS * FRAME_SECS, abs=0.003)
    belt.end()


def test_cameras_see_it_and_a_seed_gives_the_same():
    belt, again = watched(1), None
    seen = belt.look()
    assert len(seen["depth"]) == len(seen["poses"]) == 2 and len(seen["joints"]) == 14
    belt.end()
    again = watched(1)
    assert all(np.array_equal(a, b) for a, b in zip(seen["depth"], again.look()["depth"]))
    again.end()
