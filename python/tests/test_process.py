"""Threads, signals, forks, other interpreters, panics."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import forecloud as fc
from conftest import ROOT, TINY
from forecloud import _native
from mcap import copy_of_split

SEARCH = {**os.environ, "PYTHONPATH": str(Path(fc.__file__).parent.parent)}


def script(text: str, *arguments: str, **more) -> subprocess.CompletedProcess:
    more = {"env": SEARCH, **more}
    return subprocess.run([sys.executable, "-c", textwrap.dedent(text), *arguments], capture_output=True,
                          text=True, timeout=300, **more)


def test_other_threads_run_meanwhile():
    counted = 0
    is_done = threading.Event()

    def count():
        nonlocal counted
        while not is_done.is_set():
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    _native._wait(0.3, False)
    during = counted - before
    is_done.set()
    thread.join()
    # Had the work held the interpreter, nothing would have been counted.
    assert during > 1000


def test_threads_with_predictors_of_their_own_agree(frames, model, recording, predictions):
    found: dict[int, list] = {}

    def predict(number: int):
        predictor = fc.Predictor.of(recording, model)
        found[number] = [p for p in map(predictor.step, frames) if p is not None]

    threads = [threading.Thread(target=predict, args=[i]) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for theirs in found.values():
        assert all(a.displacements.tobytes() == b.displacements.tobytes() for a, b in zip(theirs, predictions))
    assert len(found) == 3


def test_the_number_of_threads_changes_nothing(frames, model, recording, predictions):
    try:
        assert fc.set_threads(1) == 1 == fc.n_threads()
        predictor = fc.Predictor.of(recording, model)
        found = [p for p in map(predictor.step, frames) if p is not None]
    finally:
        fc.set_threads(0)
    assert [p.displacements.tobytes() for p in found] == [p.displacements.tobytes() for p in predictions]
    with pytest.raises(fc.errors.ConfigError, match="1024"):
        fc.set_threads(10**6)


def test_one_predictor_in_two_threads_is_refused(model):
    predictor = fc.Predictor(model)
    problems = []

    def poke():
        while not problems and not is_done.is_set():
            try:
                predictor.config
            except fc.errors.StateError as error:
                problems.append(str(error))

    is_done = threading.Event()
    thread = threading.Thread(target=poke)
    thread.start()
    depth = np.full((480, 640), 700, np.uint16)
    k = [500.0, 500.0, 320.0, 240.0]
    pose = [0, 0, 1.2, 1, 0, 0, 0]
    stamp = 0
    deadline = time.monotonic() + 60
    while not problems and time.monotonic() < deadline:
        stamp += 100_000_000
        try:
            predictor.step(stamp=stamp, depth=depth, intrinsics=k, poses=pose)
        except fc.errors.StateError:
            pass
    is_done.set()
    thread.join()
    assert problems and "another thread" in problems[0]


def test_ctrl_c_ends_long_work():
    timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        _native._wait(600.0, False)
    assert time.monotonic() - start < 300
    assert fc.knn(np.eye(3, dtype=np.float32), k=1) is not None


def test_panics_are_exceptions(capfd):
    with pytest.raises(fc.errors.InternalError, match="asked to"):
        _native._wait(0.0, True)
    assert fc.n_threads() >= 1


def test_what_was_opened_before_a_fork_works_after_it():
    """The parent has worked, so that its threads are not in the child."""
    done = script(
        """
        import os, sys
        import forecloud as fc
        recording = fc.Recording(sys.argv[1])
        frames = list(recording)
        before, after = (fc.Predictor.of(recording, sys.argv[2]) for _ in range(2))
        wanted = [p.displacements.tobytes() for p in map(before.step, frames) if p]
        half_read = iter(recording)
        next(half_read)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert [p.displacements.tobytes() for p in map(after.step, frames) if p] == wanted
                assert len(list(recording)) == len(frames)
                assert len(fc.knn(frames[0].cloud()[0][:500], k=3)) == 500
                try:
                    next(half_read)
                except fc.errors.ForkError as error:
                    assert "iterate" in str(error)
                    code = 0
            except BaseException as error:
                print(repr(error), file=sys.stderr)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        # The parent goes on.
        assert len(list(half_read)) == len(frames) - 1
        """, str(TINY), str(ROOT / "models/small.safetensors"))
    assert done.returncode == 0, done.stderr


def test_multiprocessing_by_fork_gives_the_same():
    done = script(
        """
        import multiprocessing, sys
        import forecloud as fc
        def work(path):
            recording = fc.Recording(path)
            predictor = fc.Predictor.of(recording)
            return [p.displacements.tobytes() for p in map(predictor.step, recording) if p]
        wanted = work(sys.argv[1])
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(work, [sys.argv[1]] * 2) == [wanted] * 2
        """, str(TINY))
    assert done.returncode == 0, done.stderr


def test_a_recording_is_read_by_parent_and_child_at_once():
    """Each reads an open file of its own: of one, each would move the other's place."""
    done = script(
        """
        import os, sys
        import forecloud as fc
        recording = fc.Recording(sys.argv[1])
        def read():
            return [frame.cameras[0].depth.tobytes() for frame in recording]
        wanted = read()
        def is_same():
            same = [read() == wanted for _ in range(3)]
            return all(same) and recording.counts["bad_messages"] == 0
        os.chdir("/")
        children = []
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if is_same() else 1)
            children.append(pid)
        assert is_same()
        assert not any(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)
        """, os.path.relpath(ROOT / "data/demo_tumble"))
    assert done.returncode == 0, done.stderr


def test_unknown_instructions_are_refused():
    done = script(
        """
        import forecloud as fc
        try:
            fc.Model()
        except fc.errors.ConfigError as error:
            print(error)
        """, env={**SEARCH, "FORECLOUD_SIMD": "mmx"})
    assert "mmx" in done.stdout, done.stderr


def test_another_interpreter_is_refused_with_words():
    done = script(
        """
        import sys
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        import forecloud
        made = interpreters.create()
        code = "try:\\n import forecloud\\nexcept ImportError as e:\\n import sys; print('refused:', e); sys.stdout.flush()"
        try:
            interpreters.run_string(made, code)
        except Exception as error:
            print("refused:", error)
        print("alive", len(forecloud.masks()) > 0)
        sys.stdout.flush()
        """)
    assert "refused:" in done.stdout and "alive True" in done.stdout, done.stdout + done.stderr


def test_training_ends_by_ctrl_c_with_a_checkpoint_and_goes_on(tmp_path):
    """A signal to this process alone, as a notebook's kernel gets it."""
    for split in (b"train", b"val"):
        copy_of_split(TINY, tmp_path / "recordings" / split.decode(), split)
    recordings, out, settings = tmp_path / "recordings", tmp_path / "run", train_settings(tmp_path)
    done = script(
        """
        import json, os, signal, sys
        import forecloud as fc
        class Watch:
            sent = False
            def write(self, text):
                # Once it trains.
                if "validation:" in text and not self.sent:
                    self.sent = True
                    os.kill(os.getpid(), signal.SIGINT)
                return sys.__stderr__.write(text)
            def flush(self):
                sys.__stderr__.flush()
        sys.stderr = Watch()
        try:
            fc.train(sys.argv[1], sys.argv[2], steps=100000, **json.loads(sys.argv[3]))
        except KeyboardInterrupt:
            print("interrupted")
        """, str(recordings), str(out), json.dumps(settings))
    assert done.stdout.strip() == "interrupted", done.stdout + done.stderr
    assert "the same command resumes" in done.stderr
    log = [json.loads(line) for line in (out / "train.jsonl").read_text().splitlines()]
    last = log[-1]["step"]
    on = fc.train(recordings, out, progress=False, steps=100000, stop_at=last + 2, **settings)
    assert [line["step"] for line in on["log"]] == list(range(1, last + 3))
    assert fc.Model(on["model"]).config["width"] == settings["width"]
    # What was stopped and went on is what was not stopped.
    whole = fc.train(recordings, tmp_path / "whole", progress=False, steps=100000, stop_at=last + 2, **settings)
    assert fc.Model(whole["model"]).hash == fc.Model(on["model"]).hash


def train_settings(folder: Path) -> dict:
    file = folder / "settings.json"
    file.write_text(json.dumps({"model": {"n_blocks": 1, "n_particles": 128, "n_history": 64},
                                "train": {"curriculum": [[0, 1]], "validation_windows": 1}}))
    return {"width": 16, "batch": 1, "validate_every": 1, "model_config": str(file), "threads": 1}
