"""The committed recordings. No OpenGL needed."""

from pathlib import Path

import numpy as np
import pytest

from sim.flow import Recording

ROOT = Path(__file__).parents[2]
SAMPLES = [("data/demo_tumble", 50, 8_000_000), ("tests/data/tiny_push", 6, 700_000)]


@pytest.mark.parametrize("folder, frames, limit", SAMPLES)
def test_samples_are_small_lively_and_of_the_test_split(folder, frames, limit):
    assert sum(path.stat().st_size for path in (ROOT / folder).iterdir()) < limit
    read = Recording(ROOT / folder)
    assert read.about["split"] == "test"
    assert len(read.places) == frames
    objects = read.places[:, read.kinds == "object"]
    steps = np.linalg.norm(np.diff(objects, axis=0), axis=2).max(axis=1)
    assert np.mean(steps > 0.002) > 0.4
