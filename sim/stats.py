"""Figures of recordings: `python -m sim.stats FOLDER…`: what moves, and the trivial errors."""

import sys
from pathlib import Path

import numpy as np

from sim.flow import CROP, Recording

MOVES = 0.002  # m a step


def steps(recording: Recording) -> dict[str, np.ndarray]:
    """Per frame pair: counts of points by kind, and sums of the trivial errors (m)."""
    rows = []
    step = max(round(0.1 / recording.secs[1]), 1)  # frames
    for frame in range(step, len(recording.places) - step, step):
        given = [camera for camera, rows in recording.depth.items() if rows[frame] is not None]
        if not given:
            continue
        clouds = [recording.points(frame, camera) for camera in given]
        points, ids = (np.concatenate(part)[::4] for part in zip(*clouds))
        inside = np.all((points > CROP[0]) & (points < CROP[1]), axis=1)
        points, ids = points[inside], ids[inside]
        ahead = recording.moved(points, ids, frame, frame + step) - points
        back = points - recording.moved(points, ids, frame, frame - step)
        far = np.linalg.norm(ahead, axis=1)
        kinds = recording.kinds[ids]
        objects = kinds == "object"
        lively = objects & (far > MOVES)
        wrong = np.linalg.norm(ahead - back, axis=1)
        rows.append(
            (len(ids), np.sum(kinds == "robot"), objects.sum(), lively.sum(), np.sum(far > 0.01),
             far[lively].sum(), wrong[lively].sum(), far.max())
        )
    names = ("all", "robot", "object", "lively", "over_1cm", "nothing", "velocity", "farthest")
    return dict(zip(names, np.array(rows, float).T))


def main() -> None:
    """Prints one line for each task, over all folders named."""
    by_task: dict[str, list[dict]] = {}
    for folder in sys.argv[1:]:
        recording = Recording(Path(folder))
        about = recording.about
        by_task.setdefault(f"{about['split']} {about['task']}", []).append(steps(recording))
    for task, found in by_task.items():
        sums = {name: np.concatenate([f[name] for f in found]) for name in found[0]}
        total, lively = sums["all"].sum(), sums["lively"].sum()
        active = sums["lively"] > 0.02 * np.maximum(sums["object"], 1)
        print(
            f"{task}: {len(found)} recordings, robot {sums['robot'].sum() / total:.1%}, "
            f"objects {sums['object'].sum() / total:.1%}, over 1 cm a step "
            f"{sums['over_1cm'].sum() / total:.1%}, active windows {active.mean():.0%}; object "
            f"points that move over 2 mm ({lively / total:.2%}): nothing moves "
            f"{1000 * sums['nothing'].sum() / lively:.0f} mm, constant velocity "
            f"{1000 * sums['velocity'].sum() / lively:.0f} mm, farthest "
            f"{sums['farthest'].max():.3f} m a step"
        )


if __name__ == "__main__":
    main()
