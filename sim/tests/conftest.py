"""Fixtures shared by the tests of the generator."""

import pytest

from sim import gl


@pytest.fixture(scope="session")
def needs_gl() -> None:
    """Skips, and says why, where nothing can be rendered."""
    if problem := gl.problem():
        pytest.skip(problem)


@pytest.fixture(scope="session")
def episodes() -> dict:
    """A short episode of each task, from the test split."""
    from sim import episode

    return {task: episode.simulate(task, 200_000, frames=16) for task in ("push", "tumble")}


@pytest.fixture(scope="session")
def recordings(needs_gl, episodes, tmp_path_factory) -> dict:
    """Their recordings' folders."""
    from sim import recording

    out = tmp_path_factory.mktemp("recordings")
    for task, made in episodes.items():
        recording.write(made, out / f"{task}_200000")
    return {task: out / f"{task}_200000" for task in episodes}
