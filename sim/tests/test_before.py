"""Scenes and physics of the older varieties are what they were, so that figures can be compared."""

import hashlib
import re

import numpy as np
import pytest

from sim import episode, scene

# Of the state before real-like scenes: hash of the model's text (numbers roughly, as their last digits
# depend on the processor), and places of the first objects after two frames.
BEFORE = {
    ('push', 200000, 'plain'): ('10d7ca08f5e93ef6', [[-0.03245, 0.02254, 0.07466]]),
    ('tumble', 200000, 'plain'): ('7e13c9e2682295c4', [[-0.09905, 0.02283, 0.05416], [-0.0474, 0.03774, 0.27035]]),
    ('can', 300002, 'split'): ('811f0624748781b4', [[-0.02645, 0.08952, 0.06346], [0.08225, -0.23156, 0.06393]]),
    ('lift', 300000, 'split'): ('be10aeb3d4afd377', [[0.03431, -0.01067, 0.01799], [-0.2202, 0.25405, 0.06446]]),
    ('tumble', 200000, 'split'): ('17ab9cd4368beb9a', [[-0.18338, -0.25621, 0.03689], [0.03448, -0.07102, 0.08117]]),
    ('rope', 400000, 'split'): ('503cd1b367db89b2', [[-0.22577, 0.06275, 0.04797], [-0.05193, -0.08764, 0.02246]]),
}


def rough(number):
    """To five digits; what is 0 but for rounding is 0."""
    return f"{round(float(number[0]), 9) + 0.0:.5g}"


def summary(task, seed, variety, monkeypatch):
    """What BEFORE holds of an episode."""
    texts = []
    write = scene.xml
    monkeypatch.setattr(episode.Attempt, "check_lively", lambda *_: None)
    monkeypatch.setattr(scene, "xml", lambda *a, **k: texts.append(write(*a, **k)) or texts[-1])
    made = episode.simulate(task, seed, 3, variety)
    rounded = re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", rough, texts[-1])
    return hashlib.sha256(rounded.encode()).hexdigest()[:16], made.places[-1][:2].round(5).tolist()


@pytest.mark.parametrize("name", BEFORE, ids=lambda n: "-".join(map(str, n)))
def test_older_varieties_are_what_they_were(name, monkeypatch):
    text, places = summary(*name, monkeypatch)
    assert text == BEFORE[name][0]
    np.testing.assert_allclose(places, BEFORE[name][1], atol=1e-3)
