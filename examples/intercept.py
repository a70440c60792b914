#!/usr/bin/env python3
"""A hand meets a thing on a belt, in simulation: sent to where Forecloud says that the thing will be, to where it
would be at constant velocity, or to where it is.

    python3 examples/intercept.py --episodes 30

From the repository, with Forecloud's Python package and what sim/requirements.txt lists.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import forecloud

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from sim.closed_loop.belt import WATCHED, Belt  # noqa: E402

STEPS = 8  # of 0.1 s, from the frame that is decided on until the hand is there
LINE = 5  # frames through whose places constant velocity draws its line
MET = (0.01, 0.02)  # m beside the thing's middle that count as met
WAYS = ("forecast", "constant velocity", "no forecast")


def places(seed: int) -> dict[str, np.ndarray] | None:
    """Where each way sends the hand (x, y, m); None if the thing is not found, or not under one number."""
    belt = Belt(seed)
    predictor = forecloud.Predictor(horizon=10)
    predictor.set_robot(belt.urdf())
    found: list[forecloud.Object | None] = []
    for _ in range(WATCHED):
        belt.wait()
        prediction = predictor.step(**belt.look())
        # The largest, should there be others.
        found.append(max(prediction.objects(), key=lambda o: o.n_particles, default=None) if prediction else None)
    belt.end()
    last = found[-LINE:]
    if not all(last) or len({thing.id for thing in last}) > 1:
        return None
    centres = np.array([thing.poses[0, :2] for thing in last])
    line = np.polynomial.polynomial.polyfit(np.arange(1 - LINE, 1), centres, 1)
    return dict(zip(WAYS, (last[-1].poses[STEPS, :2], line[0] + STEPS * line[1], centres[-1])))


def sent(seed: int, place: np.ndarray) -> float:
    """How far beside the thing's middle the hand is when it is there (m)."""
    belt = Belt(seed)
    for _ in range(WATCHED):
        belt.wait()
    missed = belt.meet(place, STEPS * 0.1)
    belt.end()
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=0)
    args = parser.parse_args()
    missed = {way: [] for way in WAYS}
    for seed in range(args.first_seed, args.first_seed + args.episodes):
        found = places(seed)
        for way in WAYS:
            missed[way].append(sent(seed, found[way]) if found else np.inf)
        print(f"episode {seed}, mm beside:", *(f"{1e3 * missed[way][-1]:.1f}" for way in WAYS), flush=True)
    for way, misses in missed.items():
        met = ", ".join(f"{sum(m <= limit for m in misses)} within {1e3 * limit:.0f} mm" for limit in MET)
        print(f"{way}: of {len(misses)} met {met}; beside by {1e3 * np.median(misses):.1f} mm (median)")


if __name__ == "__main__":
    main()
