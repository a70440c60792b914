"""Training on many machines: each worker computes the gradients of some windows of a step, which are summed in
the order of the windows, from worker to worker. The model is that of one machine, to the bit."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from collections.abc import Iterator
from typing import Any

from . import _stored
from .cluster import _run, connect
from .errors import ConfigError, ForecloudError, ToolError

CHECK_EVERY = 50
"""Steps from one comparison of the workers' states to the next; also before each checkpoint."""
MOST_FAILED = 3
"""Steps that fail one after the other though no worker dies: then it is no use."""


class Worker:
    """One process of a run: it has all recordings, and takes every step."""

    def open(self, recordings: str, options: list[str]) -> dict[str, Any]:
        """Reads the recordings."""
        from ._native import TrainWorker

        self._scratch = tempfile.TemporaryDirectory(prefix="forecloud-")
        if _stored.is_url(recordings):
            files, inner = _stored._filesystem(recordings)
            place = Path(self._scratch.name) / "recordings"
            _stored.copy(files, inner, place)
            recordings = str(place)
        self._worker = TrainWorker([recordings, *options])
        self._last: str | None = None
        return json.loads(self._worker.describe())

    def compute(self, start: int, end: int) -> str:
        """Computes windows `start` to `end` of the next step; what each gave, as JSON."""
        return self._worker.compute(start, end)

    def add(self, total: Any) -> Any:
        """The sum of the gradients so far with this worker's."""
        import numpy as np

        return np.frombuffer(self._worker.add(None if total is None else total.tobytes()), np.uint8)

    def apply(self, total: Any, losses: str, checks: bool) -> tuple[str, str]:
        """Ends the step; what it came to, and, if it is to be checked, a hash of the state."""
        report = self._worker.apply(total.tobytes(), losses)
        self._last = report
        return report, self._worker.fingerprint() if checks else ""

    def step(self) -> tuple[int, str | None]:
        """Steps taken, and what the last one that it took came to."""
        return self._worker.step(), self._last

    def validate(self, report: str) -> str:
        """A line of the log."""
        return self._worker.validate(report)

    def save(self) -> tuple[bytes, bytes]:
        """Model and checkpoint."""
        model, checkpoint = (Path(self._scratch.name) / name for name in ("model", "checkpoint"))
        self._worker.save(str(model), str(checkpoint))
        return model.read_bytes(), checkpoint.read_bytes()

    def resume(self, checkpoint: bytes) -> dict[str, Any]:
        """Goes on from a checkpoint."""
        place = Path(self._scratch.name) / "resumed"
        place.write_bytes(checkpoint)
        self._worker.resume(str(place))
        return json.loads(self._worker.describe())

    def cost(self) -> dict[str, Any]:
        """CPU seconds of this process, and where it runs."""
        import socket

        return {"cpu_secs": time.process_time(), "pid": os.getpid(), "host": socket.gethostname()}


class Crew:
    """The workers of a run: those that are at work, and those that still read."""

    def __init__(self, ray: Any, recordings: str, options: list[str], cpus: int, most: int | None) -> None:
        self.ray, self.cpus, self.most = ray, cpus, most
        self.arguments = (recordings, options)
        self.actor = ray.remote(num_cpus=cpus, max_restarts=0)(Worker)
        self.at_work: list[Any] = []
        self.reading: dict[Any, Any] = {}
        self.run: dict[str, Any] | None = None
        self.n_failed = 0

    def target(self) -> int:
        """How many there should be: as there is room, but no more than windows."""
        room = int(self.ray.cluster_resources().get("CPU", 1)) // self.cpus
        bounds = [room, self.most, self.run["batch"] if self.run else None]
        return max(1, min(bound for bound in bounds if bound is not None))

    def hire(self) -> None:
        """Starts workers where there is room; they read the recordings while others work."""
        while len(self.at_work) + len(self.reading) < self.target():
            worker = self.actor.remote()
            self.reading[worker.open.remote(*self.arguments)] = worker

    def join(self, checkpoint: bytes | None, wait: bool) -> int:
        """Takes those who have read, with the state that the others have; waits for one if need be."""
        joined = 0
        while self.reading:
            timeout = None if wait and not self.at_work else 0
            ready, _ = self.ray.wait(list(self.reading), timeout=timeout)
            if not ready:
                break
            for done in ready:
                worker = self.reading.pop(done)
                if self.run and len(self.at_work) >= self.target():
                    self.ray.kill(worker)
                    continue
                try:
                    told = self.ray.get(done)
                    if self.at_work or checkpoint is not None:
                        state = self.state()[1] if self.at_work else checkpoint
                        told = self.ray.get(worker.resume.remote(state))
                except self.ray.exceptions.RayTaskError as error:
                    # It can't be otherwise anywhere.
                    raise error.cause if is_ours(error) else ToolError(first_line(error)) from None
                except self.ray.exceptions.RayError as error:
                    say(f"a worker died before it was at work: {first_line(error)}")
                    self.ray.kill(worker)
                    continue
                self.must_fit(told)
                self.at_work.append(worker)
                joined += 1
        return joined

    def must_fit(self, told: dict[str, Any]) -> None:
        """Refuses a worker whose numbers would differ."""
        self.run = self.run or told
        for key, remedy in [
            ("version", "install the same version of forecloud on all machines"),
            ("instruction_set", "set FORECLOUD_SIMD to one that all machines have, or leave this one out"),
            ("recordings", "all machines must see the same recordings"),
            ("windows", "all machines must see the same recordings"),
            ("n_weights", "all machines must see the same model"),
        ]:
            if told[key] != self.run[key]:
                raise ForecloudError(f"workers differ in {key} ({self.run[key]} and {told[key]}): {remedy}")

    def state(self) -> tuple[bytes, bytes]:
        """Model and checkpoint of the first worker."""
        return self.ray.get(self.at_work[0].save.remote())

    def step(self, checks: bool) -> str:
        """Takes a step; returns what it came to, as JSON."""
        ray, workers, batch = self.ray, self.at_work, self.run["batch"]
        bounds = [index * batch // len(workers) for index in range(len(workers) + 1)]
        shares = list(zip(workers, bounds, bounds[1:]))
        losses = ray.get([worker.compute.remote(start, end) for worker, start, end in shares])
        every = json.dumps([loss for share in losses for loss in json.loads(share)])
        total = None
        for worker, start, end in shares:
            total = worker.add.remote(total) if end > start or total is None else total
        told = ray.get([worker.apply.remote(total, every, checks) for worker in workers])
        if len(set(told)) > 1:
            raise ForecloudError("the workers' states differ: one of the machines computes otherwise (another "
                                 "processor, or faulty memory); the last checkpoint is good")
        self.n_failed = 0
        return told[0][0]

    def mend(self) -> None:
        """After a failure: leaves out who is dead, and brings all others to the step of the foremost, who is
        the first from then on.

        Raises `ToolError` if nobody died, three times one after the other.
        """
        steps, alive = {}, []
        for worker in self.at_work:
            try:
                steps[worker] = self.ray.get(worker.step.remote())[0]
                alive.append(worker)
            except self.ray.exceptions.RayError:
                pass
        n_dead = len(self.at_work) - len(alive)
        say(f"{n_dead} of {len(self.at_work)} workers died" if n_dead else "a step failed, and is taken again")
        self.n_failed = 0 if n_dead else self.n_failed + 1
        if self.n_failed == MOST_FAILED:
            raise ToolError(f"{MOST_FAILED} steps failed, though no worker died; the last checkpoint is good")
        self.at_work = sorted(alive, key=lambda worker: -steps[worker])
        behind = [worker for worker in alive if steps[worker] < max(steps.values())]
        if behind:
            state = self.ray.put(self.state()[1])
            self.ray.get([worker.resume.remote(state) for worker in behind])


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder of a run, which no other run writes to meanwhile; as the tool holds it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ConfigError(f"{folder}: another run writes there: wait for it, or choose another --out") from None
    except OSError:
        pass  # Some network file systems have no locks.
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.close(handle)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def train(recordings: str, out: str | os.PathLike[str], *, address: str | None = None,
          options: list[str] | None = None, cpus: int = 1, workers: int | None = None,
          on_step: Any = None) -> int:
    """Trains as `forecloud train RECORDINGS --out OUT OPTIONS…` does, to the same model to the bit, on the
    workers of a cluster; goes on where an earlier run was stopped. Returns the exit code of the tool, whose
    report it ends with.

    `recordings` and `out`: in a folder that all machines see, or recordings at a URL, which each worker copies.
    Workers that die are replaced; new room in the cluster is taken; `on_step` is called after each step with
    the step and the `Crew`.

    Raises what `connect` does; `ToolError` and `ConfigError` where the tool refuses the options;
    `ForecloudError` where machines differ.
    """
    folder = Path(out).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    given = list(options or [])
    if any(option.split("=")[0] in ("--out", "--threads") for option in given):
        raise ConfigError("--out and --threads: give --out and --cpus before the lone --")
    ray = connect(address)
    crew = Crew(ray, recordings, [*given, "--out", str(folder), "--threads", str(cpus)], cpus, workers)
    with held(folder):
        is_done = _train(crew, folder, on_step)
    if not is_done:
        return 130
    if _stored.is_url(recordings):
        say(f"{folder / 'model.safetensors'}: done")
        return 0
    # Nothing is left to train: the tool tells what it came to.
    return _run(["train", *given, "--out", str(folder), "--", recordings]).returncode


def _train(crew: Crew, folder: Path, on_step: Any) -> bool:
    """The steps; false if they were stopped."""
    ray = crew.ray
    model, checkpoint, log = (folder / name for name in ("model.safetensors", "checkpoint.safetensors", "train.jsonl"))
    state = checkpoint.read_bytes() if checkpoint.exists() else None
    crew.hire()
    while not crew.at_work:
        crew.join(state, wait=True)
        crew.hire()
    step, saved = ray.get(crew.at_work[0].step.remote())[0], time.monotonic()
    end, every, secs = (crew.run[key] for key in ("end", "validate_every", "checkpoint_secs"))
    _rewind(log, step)
    # What is still to be done of the last step: its line of the log, and a checkpoint.
    line_of: str | None = None
    owes_save = False

    def save() -> None:
        # The checkpoint last: what it says is done is not done again.
        for path, content in zip((model, checkpoint), crew.state()):
            _stored.write(path, content)

    say(f"training from step {step} to {end}, {crew.run['batch']} windows per step")
    try:
        while step < end or line_of is not None or owes_save:
            crew.hire()
            if joined := crew.join(None, wait=False):
                say(f"step {step}: {joined} workers joined, {len(crew.at_work)} are at work")
            before = step
            try:
                if line_of is None and not owes_save:
                    wants_save = step + 1 == end or time.monotonic() - saved > secs
                    report = crew.step(wants_save or (step + 1) % CHECK_EVERY == 0)
                    step += 1
                    owes_save = wants_save
                    line_of = report if step % every == 0 or step == end else None
                if line_of is not None:
                    line = ray.get(crew.at_work[0].validate.remote(line_of))
                    with log.open("a") as file:
                        file.write(line)
                    say(f"step {step} of {end}: {json.loads(line)['loss_mm']:.2f} mm")
                    line_of = None
                if owes_save:
                    save()
                    saved, owes_save = time.monotonic(), False
            except ray.exceptions.RayError as error:
                if is_ours(error):
                    raise error.cause from None
                crew.mend()
                if not crew.at_work:
                    say("all workers are gone: on from the last checkpoint, as soon as there is one")
                    state = checkpoint.read_bytes() if checkpoint.exists() else None
                    while not crew.at_work:
                        crew.hire()
                        crew.join(state, wait=True)
                    line_of, owes_save = None, False
                step, report = ray.get(crew.at_work[0].step.remote())
                if step < before:
                    _rewind(log, step)
                elif step > before and line_of is None:
                    # Some had ended it before others died.
                    owes_save = True
                    line_of = report if step % every == 0 or step == end else None
            if on_step and step > before:
                on_step(step, crew)
    except KeyboardInterrupt:
        if crew.at_work:
            save()
        say(f"stopped at step {step}: {checkpoint}; the same command resumes")
        return False
    finally:
        for worker in crew.at_work + list(crew.reading.values()):
            ray.kill(worker)
    return True


def _rewind(log: Path, step: int) -> None:
    """Takes lines of later steps out of the log: those are taken again."""
    lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    log.write_bytes(b"".join(line for line in lines if _step_of(line) <= step))


def _step_of(line: bytes) -> float:
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return float("inf")


def is_ours(error: Any) -> bool:
    return isinstance(getattr(error, "cause", None), ForecloudError)
