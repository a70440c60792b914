"""Makes recordings: `python -m sim.generate --out recordings --split train --episodes 100`.

Episode k of a split has the same bytes whenever, and with however many jobs, it is made.
Finished episodes are skipped, so an interrupted run goes on where it was.
"""

import argparse
import json
import multiprocessing
import os
from functools import partial
from pathlib import Path

from tqdm import tqdm

from sim import gl, moving, real_arms, tasks
from sim.imaging import Imaging
from sim.splits import SPLITS, seeds

# Beside the recordings.
NOTE = "generate.json"
SECS = 5.0  # of an episode


def make(
    job: tuple[str, int, str, Path, Imaging | None, bool, moving.MovingCamera | None], secs: float = SECS,
) -> str | None:
    """Simulates and writes one episode, unless it is there; what was wrong, if it can't."""
    task, seed, variety, out, imaging, truth, camera = job
    folder = out / f"{task}_{seed}"
    if not (folder / "metadata.yaml").exists():
        from sim import episode, recording

        try:
            frames = round(secs / episode.FRAME_SECS)
            made = episode.simulate(task, seed, frames, variety, imaging)
            recording.write(made, folder, truth, camera)
        except episode.NoEpisode as problem:
            return str(problem)
    return None


def claim(
    out: Path, variety: str, imaging: Imaging | None, truth: bool = True,
    camera: moving.MovingCamera | None = None, secs: float = SECS,
) -> str | None:
    """Notes in the folder what is made there; what is wrong, if that was something else: episodes of
    another kind have the same names, and would be taken for finished."""
    note, this = out / NOTE, {"variety": variety, "imaging": imaging.about() if imaging else None}
    if not truth:
        this["truth"] = False
    if camera:
        this["camera"] = camera.about()
    if secs != SECS:
        this["secs"] = secs
    if note.exists():
        there = json.loads(note.read_text())
        return None if there == this else f"{out} holds recordings of {there}: take another folder"
    out.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(this) + "\n")
    return None


def imaging(text: str) -> Imaging:
    """The value of --imaging."""
    try:
        return Imaging.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pose_errors(text: str) -> moving.PoseErrors:
    """The value of --pose-errors."""
    try:
        return moving.PoseErrors.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the recordings")
    parser.add_argument("--split", choices=SPLITS, required=True)
    parser.add_argument("--tasks", help="comma-separated; default: those of the split. train, val and test "
                        "of --variety split have rope, cloth and steady if asked for")
    parser.add_argument(
        "--variety", choices=tasks.VARIETIES, default="split",
        help="split: two arms at a table, 10 Hz (default; what `forecloud train` reads today); real: any "
        "robot or none, 30 Hz; plain: the first scene (push and tumble only)",
    )
    parser.add_argument(
        "--imaging", type=imaging, help="none, or NAME=VALUE,… of rate_hz, late, late_change, torn, "
        "repeated, missing, exposure, blur, for all episodes (real only); default: drawn for each",
    )
    parser.add_argument(
        "--without-truth", action="store_true",
        help="write only what a robot's own recording holds: no topic below /truth",
    )
    parser.add_argument(
        "--camera", choices=moving.KINDS, help="one camera, on the wrist of an arm or on a base that drives, in "
        "place of those that stand (split only)",
    )
    parser.add_argument(
        "--still", action="store_true", help="that camera stays where it is in the middle of the episode",
    )
    parser.add_argument(
        "--pose-errors", type=pose_errors, default=moving.PoseErrors(), metavar="MM,DEGREES,LAG_MS",
        help="how far, and how late, tf of that camera is off; default: 0,0,0",
    )
    parser.add_argument("--secs", type=float, default=SECS, help="length of an episode, 1 to 600 (default: 5)")
    parser.add_argument("--episodes", type=int, required=True, help="number for each task")
    parser.add_argument("--first-seed", type=int, default=0, help="first episode in the split")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="default: all cores")
    args = parser.parse_args()
    usual = sorted(tasks.of(args.split, args.variety))
    known = sorted(tasks.possible(args.split, args.variety))
    if not usual:
        parser.error(f"--variety {args.variety}: it has no split {args.split}; take --variety real")
    if not 1.0 <= args.secs <= 600.0:
        parser.error(f"--secs {args.secs}: expected 1 to 600")
    if args.imaging and args.variety != "real":
        parser.error("--imaging: goes with --variety real")
    if args.camera and args.variety != "split":
        parser.error("--camera: goes with --variety split")
    if not args.camera and (args.still or args.pose_errors != moving.PoseErrors()):
        parser.error("--still, --pose-errors: go with --camera")
    args.moving = args.camera and moving.MovingCamera(args.camera, args.still, args.pose_errors)
    if args.split == "robots" and (problem := real_arms.problem()):
        parser.error(problem)
    args.tasks = args.tasks.split(",") if args.tasks else usual
    if unknown := sorted(set(args.tasks) - set(known)):
        parser.error(f"no task {', '.join(unknown)} in {args.split}: expected {', '.join(known)}")
    try:
        args.seeds = seeds(args.split, args.first_seed, args.episodes)
    except ValueError as error:
        parser.error(str(error))
    if problem := gl.problem():
        parser.error(problem)
    return args


def main() -> None:
    """Runs the jobs, tasks in turn for each seed."""
    args = arguments()
    if problem := claim(
        args.out, args.variety, args.imaging, not args.without_truth, args.moving, args.secs
    ):
        raise SystemExit(f"generate: {problem}")
    more = (args.variety, args.out, args.imaging, not args.without_truth, args.moving)
    jobs = [(task, seed, *more) for seed in args.seeds for task in args.tasks]
    with multiprocessing.get_context("spawn").Pool(max(1, args.jobs)) as pool:
        done = tqdm(pool.imap_unordered(partial(make, secs=args.secs), jobs), total=len(jobs), unit="episode")
        problems = [problem for problem in done if problem]
    if problems:
        raise SystemExit("\n".join(["left out:", *problems]))


if __name__ == "__main__":
    main()
