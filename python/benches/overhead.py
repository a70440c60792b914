"""What the bindings add to a step: the time of `Predictor.step` over what the library's step itself takes
(frame to prediction, as its timings tell it), frame by frame, so that a busy machine counts on both sides.

    python python/benches/overhead.py [BAG] [--rounds 5]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import forecloud as fc


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bag", nargs="?", default="data/demo_tumble")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    recording = fc.Recording(args.bag)
    frames = list(recording)
    walls, inside, arrays = [], [], []
    for _ in range(args.rounds):
        predictor = fc.Predictor.of(recording)
        for frame in frames:
            start = time.perf_counter()
            prediction = predictor.step(frame)
            wall = 1e3 * (time.perf_counter() - start)
            if prediction is not None:
                walls.append(wall)
                inside.append(sum(prediction.timings_ms))
        predictor = fc.Predictor.of(recording)
        for frame in frames:
            cameras = frame.cameras
            start = time.perf_counter()
            fc.Frame(frame.stamp_ns, cameras, frame.joints, frame.plans, frame.root)
            arrays.append(1e3 * (time.perf_counter() - start))
    walls, inside = np.array(walls), np.array(inside)
    added = walls - inside
    print(f"{len(walls)} steps on {fc.n_threads()} threads")
    # On a busy machine threads wait for a processor when they hand over; the fastest tenth did so least.
    for q, name in [(0.5, "median"), (0.1, "fastest tenth")]:
        a, b = np.quantile(inside, q), np.quantile(added, q)
        print(f"{name}: {a:.3f} ms the library's step, {b:.3f} ms the bindings ({100 * b / a:.2f} %)")
    print(f"a frame of arrays: {np.median(arrays):.3f} ms (median), {frames[0]!r}")


if __name__ == "__main__":
    main()
