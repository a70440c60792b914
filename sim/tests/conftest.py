"""Fixtures shared by the tests of the generator."""

import functools

import numpy as np
import pytest

from sim import gl
from sim.splits import seeds

FRAMES = 16  # of plain episodes
WINDOW = 8  # frames of varied episodes, those in which most moves
PLAIN = [("push", "plain"), ("tumble", "plain")]
RIGID = [(task, split) for split in ("test", "unseen") for task in ("can", "lift", "push", "tumble")]
VARIED = RIGID + [(task, "materials") for task in ("belt", "cloth", "grains", "reach", "rope", "steady")]


def name_of(name) -> str:
    """How a test shows which recording it takes."""
    return "-".join(name)


@pytest.fixture(scope="session")
def needs_gl() -> None:
    """Skips, and says why, where nothing can be rendered."""
    if problem := gl.problem():
        pytest.skip(problem)


@pytest.fixture(scope="session")
def whole():
    """The episode of a (task, split), split `plain` being the test split's first scene."""
    from sim import episode

    @functools.cache
    def make(name):
        task, split = name
        if split == "plain":
            return episode.simulate(task, 200_000, FRAMES, "plain")
        return episode.simulate(task, seeds(split, 0, 1)[0], frames=40)

    return make


@pytest.fixture(scope="session")
def made(whole):
    """What is recorded of it: all, or of a varied one the window in which most moves."""

    def window(name):
        episode = whole(name)
        if name in PLAIN:
            return episode
        way = np.convolve(episode.steps().max(axis=1), np.ones(WINDOW - 1), "valid")
        return episode.part(int(np.argmax(way)), WINDOW)

    return window


@pytest.fixture(scope="session")
def recorded(needs_gl, made, tmp_path_factory):
    """The folder of its recording."""
    from sim import recording

    out = tmp_path_factory.mktemp("recordings")

    @functools.cache
    def write(name):
        folder = out / name_of(name)
        recording.write(made(name), folder)
        return folder

    return write
