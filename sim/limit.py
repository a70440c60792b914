"""The floor of prediction error: what even a perfect simulator can't know.

`python -m sim.limit --split test --episodes 2`. Each frame's true state is simulated anew for a
second with what a predictor can't know drawn afresh, and held against the truth. Errors are those
of docs/src/notebook/accuracy.md: object points that move over 2 mm in the step, after 1, 5 and 10 steps of 0.1 s.
"""

import argparse
import copy

import mujoco
import numpy as np

from sim import episode, scene, tasks
from sim.arm import PERIOD
from sim.episode import ATTEMPTS, ENTROPY, FRAME_JOINTS, FRAME_STEPS, FRAMES, JOINT_STEPS
from sim.scene import TIMESTEP
from sim.shapes import Part
from sim.splits import SPLITS, seeds
from sim.variety import SEEN

STATE = mujoco.mjtState.mjSTATE_INTEGRATION
HORIZONS, MOVES = (1, 5, 10), 0.002
POINTS = 60  # an object
BACK = 0.04  # s over which a motion is taken that nobody tells of
# What is unknown, more with each: name → words.
VARIANTS = {
    "exact": "nothing (the check: 0)",
    "physics": "mass, friction, bounce",
    "seen": "and the velocity now: only its mean since the frame before",
    "release": "mass, friction, bounce, and when hands let go",
    "plan": "and where hands go: they keep their speed",
}
Sums = dict[tuple, np.ndarray]


class Kept(episode.Attempt):
    """An attempt that keeps its state at each frame."""

    def run(self, frames: int):
        """As Attempt.run."""
        self.saved = []
        return super().run(frames)

    def check_frame(self, places) -> None:
        """Keeps what is checked."""
        super().check_frame(places)
        state = np.empty(mujoco.mj_stateSize(self.model, STATE))
        mujoco.mj_getState(self.model, self.data, state, STATE)
        row = (state, self.model.eq_data.copy(), set(self.held), self.data.qpos.copy())
        self.saved.append((*row, self.data.xpos.copy(), self.data.xquat.copy()))


def kept(task: str, seed: int, variety: str) -> tuple[Kept, episode.Episode]:
    """The attempt that became the episode of a task and seed, with its states."""
    for attempt in range(ATTEMPTS):
        entropy = [seed, tasks.number(task), attempt] + ENTROPY[variety]
        try:
            made = Kept(task, seed, variety, np.random.default_rng(entropy))
            return made, made.run(FRAMES)
        except episode.Rejected:
            continue
    raise episode.NoEpisode(f"{task} {seed}: no attempt of {ATTEMPTS} was sound")


class Again:
    """Simulates anew from a kept frame, on copies of model and data."""

    def __init__(self, made: Kept, whole: episode.Episode):
        self.made, self.true, self.base = made, whole, made.model
        made.model, made.data = copy.copy(made.model), mujoco.MjData(made.model)
        self.numbered = [(n, t) for n, t in whole.things_numbered() if not t.fixed]
        bodies = [made.model.body(scene.thing_name(n)).id for n, _ in self.numbered]
        self.bodies = np.array(bodies, int)
        rates = 3 if made.stage else 1  # frames in a step
        self.before = round(FRAME_STEPS / rates)  # physics steps since the frame before

    def physics(self, rng: np.random.Generator | None) -> None:
        """Draws mass, friction and bounce of each object from what training has, or the true ones."""
        model, scratch = self.made.model, mujoco.MjData(self.base)
        model.body_mass[:], model.body_inertia[:] = self.base.body_mass, self.base.body_inertia
        model.geom_friction[:] = self.base.geom_friction
        model.geom_solref[:] = self.base.geom_solref
        if rng is not None:
            drawn = self.made.variety if hasattr(self.made.variety, "mass_kg") else SEEN
            for body in self.bodies:
                mass = np.exp(rng.uniform(*np.log(drawn.mass_kg)))
                share = mass / self.base.body_mass[body]
                model.body_mass[body] *= share
                model.body_inertia[body] *= share
                first = model.body_geomadr[body]
                own = slice(first, first + model.body_geomnum[body])
                model.geom_friction[own, 0] = rng.uniform(*drawn.friction)
                model.geom_solref[own, 1] = 1 - 0.7 * rng.uniform(0, 0.9)
        mujoco.mj_setConst(model, scratch)

    def load(self, frame: int, seen: bool) -> None:
        """The true state of a frame; `seen`: velocities only as means since the frame before."""
        made = self.made
        state, eq_data, held, qpos = made.saved[frame][:4]
        made.model.eq_data[:], made.held = eq_data, set(held)
        mujoco.mj_setState(made.model, made.data, state, STATE)
        mujoco.mj_forward(made.model, made.data)
        mujoco.mj_setState(made.model, made.data, state, STATE)  # the warm start as it was
        if seen:
            now = frame * FRAME_STEPS
            past = self.true.trail[now - self.before] if self.true.trail is not None else made.saved[frame - 1][3]
            way = np.empty(made.model.nv)
            mujoco.mj_differentiatePos(made.model, way, self.before * TIMESTEP, past, qpos)
            for body in self.bodies:  # six of a free one, three of what hangs
                first = made.model.body_dofadr[body]
                own = slice(first, first + made.model.body_dofnum[body])
                made.data.qvel[own] = way[own]

    def command(self, now: float, times: np.ndarray, told: bool) -> tuple[np.ndarray, list]:
        """Rows of ctrl, and of what leads movers, at times; `told`: as it was planned."""
        arms = self.made.arms
        if told:
            rows = np.concatenate([arm.at(times) for arm in arms], axis=1)
            leads = [[arm.lead(t) for t in times] for arm in arms if arm.spec.mover]
            return rows, leads
        here = np.concatenate([arm.at(np.array([now - BACK, now])) for arm in arms], axis=1)
        speed = (here[1] - here[0]) / BACK
        rows = here[1] + np.outer(times - now, speed)
        leads = []
        for arm in arms:
            if arm.spec.mover:
                (was, _), (place, turn) = arm.lead(max(now - BACK, 0.0)), arm.lead(now)
                leads.append([(place + (t - now) * (place - was) / BACK, turn) for t in times])
        return rows, leads

    def go(self, frame: int, steps: int, releases: bool, told: bool) -> list[np.ndarray]:
        """Poses of the objects now and after each step (objects × 7)."""
        made, now = self.made, frame * FRAME_JOINTS * PERIOD
        out = [self.poses(made.saved[frame][4], made.saved[frame][5])]
        movers = [made.model.body(a.spec.mover).mocapid[0] for a in made.arms if a.spec.mover]
        for sample in range(frame * FRAME_JOINTS, (frame + steps) * FRAME_JOINTS):
            if releases:
                made.hold(sample * PERIOD)
            times = sample * PERIOD + (1 + np.arange(JOINT_STEPS)) * TIMESTEP
            rows, leads = self.command(now, times, told)
            for k, row in enumerate(rows):
                made.data.ctrl[:] = row
                for which, lead in zip(movers, leads):
                    made.data.mocap_pos[which], made.data.mocap_quat[which] = lead[k]
                mujoco.mj_step(made.model, made.data)
            mujoco.mj_forward(made.model, made.data)
            if (sample + 1) % FRAME_JOINTS == 0:
                out.append(self.poses(made.data.xpos, made.data.xquat))
        return out

    def poses(self, places: np.ndarray, turns: np.ndarray) -> np.ndarray:
        """Rows of place and quaternion of the objects."""
        return np.column_stack([places[self.bodies], turns[self.bodies]])


def moved(points: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Points on a body that goes from one pose to another."""
    frames = []
    for pose in (start, stop):
        frame = np.empty(9)
        mujoco.mju_quat2Mat(frame, pose[3:] / np.linalg.norm(pose[3:]))
        frames.append(frame.reshape(3, 3))
    return (points - start[:3]) @ frames[0] @ frames[1].T + stop[:3]


def surface(parts: tuple[Part, ...], rng: np.random.Generator) -> np.ndarray:
    """Points about the surface of a body, in its frame (n × 3)."""
    count, out = max(POINTS // len(parts), 4), []
    for part in parts:
        ways = rng.normal(size=(count, 3))
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
        s = np.array(part.size)
        if part.kind == "box":
            local = ways / np.abs(ways).max(axis=1, keepdims=True) * s
        elif part.kind in ("sphere", "ellipsoid"):
            local = ways * s
        else:  # cylinder, capsule
            flat = ways[:, :2] / np.linalg.norm(ways[:, :2], axis=1, keepdims=True)
            local = np.column_stack([flat * s[0], rng.uniform(-s[1], s[1], count)])
        frame = np.empty(9)
        mujoco.mju_quat2Mat(frame, np.array(part.quaternion))
        out.append(local @ frame.reshape(3, 3).T + part.position)
    return np.concatenate(out)


def measure(task: str, seed: int, variety: str, every: int, draws: int) -> Sums:
    """Sums over an episode: (task, step) → count, and errors in m of still, constant, each variant."""
    made, whole = kept(task, seed, variety)
    again, sums = Again(made, whole), {}
    rng = np.random.default_rng([seed, tasks.number(task), 99])
    points = [surface(t.parts or (Part(t.kind, t.size),), rng) for _, t in again.numbered]
    scale = made.stage.scale if made.stage else 1.0
    true = [again.poses(*saved[4:]) for saved in made.saved]
    for frame in range(1, FRAMES - 1, every):
        steps = min(HORIZONS[-1], FRAMES - 1 - frame)
        if not any(np.abs(a - b).max() > 1e-3 for a, b in zip(true[frame - 1 :], true[frame : frame + steps + 1])):
            continue
        here = [moved(p, np.array([0, 0, 0, 1, 0, 0, 0]), pose) for p, pose in zip(points, true[frame])]
        runs = {name: [] for name in VARIANTS}
        for draw in range(draws):
            for name in VARIANTS:
                if name == "exact" and draw:
                    continue
                again.physics(None if name == "exact" else np.random.default_rng([seed, frame, draw]))
                again.load(frame, name == "seen")
                told, lets_go = name != "plan", name not in ("release", "plan")
                runs[name].append(again.go(frame, steps, lets_go, told))
        add(sums, task, scale, frame, steps, here, true, runs)
    return sums


def add(sums, task, scale, frame, steps, here, true, runs) -> None:
    """Adds a frame's errors."""
    for i, now in enumerate(here):
        path = [moved(now, true[frame][i], true[frame + h][i]) for h in range(-1, steps + 1)]
        for h in (h for h in HORIZONS if h <= steps):
            goal, last = path[h + 1], path[h]
            lively = np.linalg.norm(goal - last, axis=1) * scale > MOVES
            if not lively.any():
                continue
            guesses = [[now], [now + h * (now - path[0])]]
            guesses += [
                [moved(now, true[frame][i], run[h][i]) for run in found] for found in runs.values()
            ]
            errors = [
                np.mean([np.linalg.norm(g - goal, axis=1)[lively].sum() for g in each]) * scale
                for each in guesses
            ]
            row = np.array([lively.sum(), *errors])
            sums[task, h] = sums.get((task, h), 0) + row


def table(sums: Sums) -> str:
    """Markdown: mm after 1, 5, 10 steps, and the ratio to the better trivial prediction."""
    names = ["nothing moves", "true constant velocity", *VARIANTS.values()]
    known = sorted({task for task, _ in sums})
    lines = ["| unknown | " + " | ".join([*known, "all: mm", "all: ratio"]) + " |"]
    lines.append("| --- " * (len(known) + 3) + "|")
    whole = {h: sum(sums[t, h] for t in known if (t, h) in sums) for h in HORIZONS}
    for k, name in enumerate(names, 1):
        cells = []
        for task in known:
            rows = [sums.get((task, h)) for h in HORIZONS]
            cells.append(" / ".join("-" if r is None else f"{ratio(r, k):.2f}" for r in rows))
        cells.append(" / ".join(f"{1000 * whole[h][k] / whole[h][0]:.1f}" for h in HORIZONS))
        cells.append(" / ".join(f"{ratio(whole[h], k):.2f}" for h in HORIZONS))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ratio(row: np.ndarray, k: int) -> float:
    """Error k over the better of the two trivial ones."""
    return float(row[k] / max(min(row[1], row[2]), 1e-12))


def main() -> None:
    """Prints the table of a split."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--split", choices=[s for s in SPLITS if s != "materials"], required=True)
    parser.add_argument("--variety", choices=tasks.VARIETIES, default="split")
    parser.add_argument("--tasks", help="comma-separated; default: all of the split")
    parser.add_argument("--episodes", type=int, default=2, help="of each task; default: %(default)s")
    parser.add_argument("--first-seed", type=int, default=0, help="first episode in the split")
    parser.add_argument("--every", type=int, default=3, help="frames between starts; default: %(default)s")
    parser.add_argument("--draws", type=int, default=2, help="of what is unknown; default: %(default)s")
    args = parser.parse_args()
    chosen = args.tasks.split(",") if args.tasks else sorted(tasks.of(args.split, args.variety))
    sums: Sums = {}
    for seed in seeds(args.split, args.first_seed, args.episodes):
        for task in chosen:
            for key, row in measure(task, seed, args.variety, args.every, args.draws).items():
                sums[key] = sums.get(key, 0) + row
    print(table(sums))


if __name__ == "__main__":
    main()
