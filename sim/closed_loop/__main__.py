"""Runs the closed loop and scores it: `python -m sim.closed_loop --planners heuristic oracle forecloud`.

The simulator publishes cameras, joints and tf as a robot would; Forecloud's node predicts them over DDS and is asked
for plans; the other planners need no node. Simulated time stands still while a planner thinks, so what is
measured is how good its decisions are; its seconds are told apart. A line of JSON an episode goes to
OUT/results.jsonl; what is there is not run again. `--summary` only prints the table.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

from sim import gl, real_arms
from sim.closed_loop import results
from sim.closed_loop.planners import NODELESS
from sim.closed_loop.tasks import ROBOTS, TASKS

DDS = ("forecloud", "forecloud_costs", "forecloud_predictions")


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m sim.closed_loop", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/closed_loop"), help="default: %(default)s")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--planners", nargs="+", choices=[*NODELESS, *DDS], default=[*NODELESS, "forecloud"])
    parser.add_argument("--episodes", type=int, default=5, help="a task and planner; default: %(default)s")
    parser.add_argument("--first-seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--variety", choices=("seen", "unseen"), default="seen", help="of the objects")
    parser.add_argument("--robot", choices=ROBOTS, default="two_arms", help="two arms as in training, drawn, or real ones")
    parser.add_argument("--kappa", type=float, default=0.0, help="how many sigma to stay on the safe side; default: %(default)s")
    parser.add_argument("--budget", type=float, default=2.0, help="s that a plan may take; default: %(default)s")
    parser.add_argument("--max-plans", type=int, default=0, help="plans that Forecloud tries at most; 0: what the budget allows")
    parser.add_argument("--pause", action="store_true", help="no predictions while the robot acts: for a busy machine")
    parser.add_argument("--decisions", type=int, help="at most, in an episode; default: the task's")
    parser.add_argument("--param", action="append", default=[], metavar="NAME:=VALUE", help="parameter of the node")
    parser.add_argument("--setup", type=Path, help="file that makes package forecloud known; default: that of scripts/build")
    parser.add_argument("--node", default="", metavar="COMMAND", help="in place of the package's forecloud_node")
    parser.add_argument("--no-record", action="store_true", help="neither bags nor films of planners that need no node")
    parser.add_argument("--no-film", action="store_true", help="no films; they need Pillow")
    parser.add_argument("--summary", action="store_true", help="print the table of OUT/results.jsonl, draw calibration.svg")
    return parser.parse_args()


def planner(name: str, args: argparse.Namespace, log: Path):
    """A planner of this name."""
    if name in NODELESS:
        return NODELESS[name]()
    from sim.closed_loop.over_dds import OVER_DDS

    return OVER_DDS[name](dict(p.split(":=", 1) for p in args.param), log, args.budget, args.setup, args.node, args.max_plans, args.pause)


def one(task: str, name: str, seed: int, args: argparse.Namespace) -> dict:
    """An episode with its bag and film."""
    from sim.closed_loop.loop import run
    from sim.closed_loop.stream import Bag, Film, Stream
    from sim.closed_loop.tasks import Scene

    robot = "" if args.robot == "two_arms" else f"{args.robot}_"
    title = f"{task}_{args.variety}_{robot}{name}_{args.kappa:g}_{seed}"
    made = Scene(task, seed, args.variety, args.kappa, args.robot)
    asked = planner(name, args, args.out / "logs" / f"{title}.log")
    sinks = []
    if not args.no_record:
        sinks.append(Bag(args.out / "bags" / title))
        sinks += [] if args.no_film else [Film(args.out / "films" / f"{title}.webp")]
    if asked.needs_node:
        sinks.append(asked.link)
    stream = Stream(sinks) if sinks else None
    try:
        return run(asked, made, stream, args.decisions)
    finally:
        if stream:
            stream.end()
        asked.close()


def main() -> None:
    """Runs what is missing, or prints the table."""
    args = arguments()
    path = args.out / "results.jsonl"
    if args.summary:
        rows = results.read(path)
        print(results.summary(rows))
        (args.out / "calibration.svg").write_text(results.plot(rows))
        for mean, share, low, high, count in results.calibration(rows):
            print(f"predicted {mean:.2f}: succeeded {share:.2f} [{low:.2f}, {high:.2f}] of {count}")
        return
    if not args.no_record or set(args.planners) & set(DDS):
        if problem := gl.problem():
            sys.exit(problem)
    if not args.no_record and not args.no_film and not importlib.util.find_spec("PIL"):
        print("no films: they need Pillow (pip install pillow)", file=sys.stderr)
        args.no_film = True
    if args.robot == "real" and (problem := real_arms.problem()):
        sys.exit(problem)
    for folder in ("bags", "films", "logs"):
        (args.out / folder).mkdir(parents=True, exist_ok=True)
    done = {results.key(row) for row in results.read(path)}
    for seed in range(args.first_seed, args.first_seed + args.episodes):
        for task in args.tasks:
            for name in args.planners:
                if (task, args.variety, name, args.kappa, args.robot, seed) in done:
                    continue
                row = one(task, name, seed, args)
                results.append(path, row)
                print(
                    f"{task} {name} {seed}: {'success' if row['success'] else 'failed'}, {1000 * row['error_first_m']:.0f} -> "
                    f"{1000 * row['error_last_m']:.0f} mm, {len(row['decisions'])} decisions, {row['toppled']} toppled", flush=True,
                )


if __name__ == "__main__":
    main()
