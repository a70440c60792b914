"""What is wrong is told in one exception of ours, with the remedy; nothing ends the interpreter."""

from __future__ import annotations

import random

import numpy as np
import pytest

import forecloud as fc
from conftest import ROOT, TINY

GOOD = {
    "depth": np.full((48, 64), 700, np.uint16),
    "intrinsics": [50.0, 50.0, 32.0, 24.0],
    "poses": [0.0, 0.0, 1.2, 1.0, 0.0, 0.0, 0.0],
    "color": np.zeros((48, 64, 3), np.uint8),
    "stamp": 1.0,
}


@pytest.mark.parametrize("changes, told", [
    ({"stamp": None}, "stamp: the time"),
    ({"stamp": float("nan")}, "stamp: nan is not finite"),
    ({"stamp": "now"}, "stamp: expected seconds"),
    ({"stamp": 2**70}, "stamp: 1180591620717411303424 is not in"),
    ({"depth": None}, "depth, intrinsics and poses are needed"),
    ({"depth": np.zeros((48,), np.uint16)}, "expected 2 dimensions, got shape [48]"),
    ({"depth": np.zeros((0, 64), np.uint16)}, "an image of 0 x 64 pixels"),
    ({"depth": np.zeros((48, 64), complex)}, "expected an array of float32, got complex128"),
    ({"depth": np.full((48, 64), "a")}, "expected an array of float32"),
    ({"depth": np.full((48, 64), -1, np.int32)}, "allowed are 0 to 65535"),
    ({"color": np.zeros((48, 64, 4), np.uint8)}, "color: expected shape [n, n, 3], got [48, 64, 4]"),
    ({"color": np.zeros((24, 64, 3), np.uint8)}, "register the images to one size"),
    ({"color": np.zeros((48, 64, 3), np.float64)}, "expected an array of uint8, got float64"),
    ({"intrinsics": [1, 2, 3]}, "expected a 3 x 3 camera matrix"),
    ({"intrinsics": np.zeros((3, 3))}, "camera"),
    ({"intrinsics": [np.nan, 50, 32, 24]}, "camera"),
    ({"poses": np.eye(3)}, "expected a 4 x 4 matrix"),
    ({"poses": 2 * np.eye(4)}, "not a rigid transform"),
    ({"poses": [0, 0, 1, 2, 0, 0, 0]}, "normalise it"),
    ({"poses": np.full((4, 4), np.nan)}, "not finite"),
    ({"joints": {"a": float("inf")}}, "'a' is at inf"),
    ({"joints": [1, 2]}, "expected names with positions"),
    ({"plans": [fc.Plan(["a"], [0.2, 0.1], [[1], [2]])]}, "ascend"),
    ({"plans": [fc.Plan(["a"], [0.0, 1e300], [[1], [2]])]}, "plan's times: 1e+300 s is not in"),
    ({"plans": [fc.Plan(["a"], [0.1], [[1, 2]])]}, "for each of 1 joints"),
])
def test_wrong_arrays_of_a_step(model, changes, told):
    predictor = fc.Predictor(model)
    with pytest.raises(fc.errors.InputError) as caught:
        predictor.step(**{**GOOD, **changes})
    assert told in str(caught.value)
    # The next frame starts afresh.
    assert predictor.step(**{**GOOD, "stamp": 1.1}) is None


def test_other_orders_and_widths_are_taken(model):
    """Columns first, strides, another endianness, whole numbers of another width: the same cloud."""
    rng = np.random.default_rng(1)
    depth = rng.integers(400, 900, (48, 64), dtype=np.uint16)
    wanted = fc.Frame(1.0, [fc.Camera(depth, GOOD["intrinsics"], GOOD["poses"])]).cloud()[0]
    assert len(wanted) == depth.size
    wide = np.zeros((48, 128), np.uint16)
    wide[:, ::2] = depth
    for other in (np.asfortranarray(depth), wide[:, ::2], depth.astype(">u2"), depth.astype(np.int64), depth.tolist()):
        assert np.array_equal(fc.Frame(1.0, [fc.Camera(other, GOOD["intrinsics"], GOOD["poses"])]).cloud()[0], wanted)


def test_invalid_depths_are_no_points():
    depth = np.array([[np.nan, np.inf, -1.0, 0.0, 0.7]], np.float32)
    cloud = fc.Frame(1.0, [fc.Camera(depth, [1.0, 1.0, 2.0, 0.0], GOOD["poses"])]).cloud()
    assert len(cloud[0]) == 1


@pytest.mark.parametrize("settings, told", [
    ({"horizon": 0}, "horizon: 0 steps is not in 1..=100"),
    ({"horizon": "five"}, "settings of the predictor"),
    ({"horizont": 5}, "unknown field `horizont`"),
    ({"seed": -1}, "settings of the predictor"),
    ({"history_tolerance_secs": float("nan")}, "settings of the predictor"),
    ({"workspace": [[0, 0, 0], [1, 0, 1]]}, "workspace"),
    ({"workspace": [1, 2]}, "expected lowest and highest corner"),
    ({"device": "tpu"}, "device"),
    ({"robot": object()}, "is no setting"),
])
def test_wrong_settings(model, settings, told):
    with pytest.raises(fc.errors.InputError) as caught:
        fc.Predictor(model, **settings)
    assert told in str(caught.value)


def test_wrong_models(tmp_path, model):
    def problem(path):
        with pytest.raises(fc.errors.ForecloudError) as caught:
            fc.Model(path)
        return caught.value

    assert isinstance(problem(tmp_path / "none.safetensors"), (fc.errors.ModelError, fc.errors.FileError))
    good = (ROOT / "models/small.safetensors").read_bytes()
    later = tmp_path / "later.safetensors"
    # A version that is not there yet: in the header, of the same length.
    for number in (b'1', b'2', b'3', b'4', b'5', b'6', b'7', b'8', b'9'):
        for key in (b'"forecloud_version":"', b'"format":"', b'"version":"'):
            if key + number in good:
                later.write_bytes(good.replace(key + number, key + b"9", 1) if number != b"9" else good)
    later.exists() and problem(later)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(good[: len(good) // 2])
    assert "forecloud train" in str(problem(cut))
    garbage = tmp_path / "garbage.safetensors"
    garbage.write_bytes(b"\xff" * 1000)
    assert isinstance(problem(garbage), fc.errors.ModelError)
    with pytest.raises(fc.errors.InputError, match="expected a path"):
        fc.Model(5)


def test_wrong_recordings(tmp_path):
    with pytest.raises(fc.errors.ForecloudError, match="nowhere"):
        fc.Recording(tmp_path / "nowhere")
    (tmp_path / "a.mcap").write_bytes(b"no recording")
    with pytest.raises(fc.errors.RecordingError):
        fc.Recording(tmp_path / "a.mcap")
    with pytest.raises(fc.errors.RecordingError, match="front"):
        fc.Recording(TINY, cameras=["front"])
    for settings, told in [({"input": "video"}, "images, compressed, points"), ({"wrong": 1}, "--wrong"),
                           ({"remap": {"/nowhere": "/x"}}, "/nowhere is not read"),
                           ({"tolerance_secs": 11}, "expected a number in 0..=10"), ({"cameras": {1: 2}}, "no setting")]:
        with pytest.raises(fc.errors.ConfigError, match=told):
            fc.Recording(TINY, **settings)
    with pytest.raises(fc.errors.InputError):
        fc.Recording(None)


def test_wrong_robots_and_order_of_calls(model, frames):
    predictor = fc.Predictor(model, robot="required")
    with pytest.raises(fc.errors.RobotError, match="robot description"):
        predictor.step(frames[0])
    with pytest.raises(fc.errors.RobotError, match="URDF"):
        predictor.set_robot("<robot")
    with pytest.raises(fc.errors.InputError, match="either a frame"):
        predictor.step(frames[0], stamp=1.0)
    with pytest.raises(fc.errors.InputError, match="expected a forecloud.Frame"):
        predictor.step(7)
    with pytest.raises(fc.errors.StateError, match="no truth"):
        fc.Frame(1.0, [fc.Camera(GOOD["depth"], GOOD["intrinsics"], GOOD["poses"])]).bodies([0])


def test_the_tools_words_are_the_exceptions(tmp_path):
    with pytest.raises(fc.errors.ToolError, match="nowhere") as caught:
        fc.replay(tmp_path / "nowhere", progress=False)
    assert caught.value.exit_code == 1
    with pytest.raises(fc.errors.ConfigError, match="horizont"):
        fc.replay(TINY, horizont=3, progress=False)
    with pytest.raises(fc.errors.ConfigError, match="a number in 1..="):
        fc.train(tmp_path, tmp_path / "out", steps=0, progress=False)
    with pytest.raises(fc.errors.InputError, match="no recording"):
        fc.replay([])


def test_wrong_graphs(points=np.zeros((4, 3), np.float32)):
    far = points.copy()
    far[2, 1] = np.nan
    for call, told in [
        (lambda: fc.knn(points, k=4), "at least 5"), (lambda: fc.knn(points, k=0), "k: 0"),
        (lambda: fc.knn(far, k=1), "row 2 holds NaN"), (lambda: fc.knn(points[:, :2], k=1), "expected shape [n, 3]"),
        (lambda: fc.knn(points, k=2**60), "k: "), (lambda: fc.knn(points, k=1, bandwidth_m=-1.0), "bandwidth"),
        (lambda: fc.Graph.of_edges(2, [0], [2]), "node of an edge"),
        (lambda: fc.Graph.of_edges(2**40, [0], [1]), "at most"),
        (lambda: fc.knn(points, k=1).walks(10**9), "walks"), (lambda: fc.knn(points, k=1).walks(1, p_halt=2.0), "halting"),
        (lambda: fc.knn(points, k=1).walks(1, sampler="other"), "unknown variant `other`"),
        (lambda: fc.knn(points, k=3).features(60), "visits of a node's walks"),
        (lambda: fc.knn(points, k=1).mask("none"), "mask 'none': there are series"),
        (lambda: fc.knn(points, k=1).mask("series", points[:2]), "expected 4 rows"),
        (lambda: fc.knn(points, k=1).mask("series").apply(np.zeros(3, np.float32)), "expected [4, width]"),
        (lambda: fc.knn(points, k=1).mask("series").apply(np.zeros(4), params=[0.0]), "params: expected shape"),
        (lambda: fc.particles(points, np.zeros((3, 3), np.uint8)), "colors: expected shape [4, 3]"),
        (lambda: fc.particles(points, np.zeros((4, 3), np.uint8), n=-1), "n: -1"),
        (lambda: fc.hindsight([]), "0 frames"), (lambda: fc.hindsight([1, 2]), "expected forecloud.Particles"),
    ]:
        with pytest.raises(fc.errors.ForecloudError) as caught:
            call()
        assert told in str(caught.value)


class Fuzz:
    """Calls with arguments that are right, nearly right, and wrong."""

    def __init__(self, seed: int, model: fc.Model, frames: list[fc.Frame]) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.predictor = fc.Predictor(model, n_particles=64, horizon=1)
        self.frames = frames
        self.planner = fc.Predictor.of(fc.Recording(TINY), model, n_particles=64, horizon=1)
        [self.prediction, *_] = [told for frame in frames if (told := self.planner.step(frame)) is not None]
        self.joint, self.at = next(iter(frames[1].joints.items()))
        self.graph = fc.knn(np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32), k=2)
        self.mask = self.graph.mask("series")
        self.laplacian = fc.Laplacian(self.graph)
        # Drawn once: making them takes longer than the calls.
        self.values = [self.make() for _ in range(4000)]

    def value(self):
        return self.random.choice(self.values)

    def make(self):
        r = self.random
        return r.choice([
            lambda: None, lambda: r.choice([0, 1, -1, 3, 2**31, 2**63, -(2**63), 2**64, 2**200]),
            lambda: r.choice([0.0, -0.0, 1.0, 1e-45, 1e39, 1e308, float("nan"), float("inf"), -float("inf")]),
            lambda: r.choice(["", "a", "\0", "é" * 50, "series", "iid"]), lambda: b"\xff", lambda: [], lambda: {},
            lambda: [self.make() for _ in range(r.randrange(3))], lambda: {"a": self.make()}, lambda: object(),
            lambda: True, lambda: r.choice(self.frames), self.array, self.array, self.array, self.array,
        ])()

    def array(self):
        r = self.random
        shape = tuple(r.choice([0, 1, 2, 3, 4, 7, 12]) for _ in range(r.randrange(4)))
        dtype = r.choice(["f4", "f8", "f2", "u1", "u2", "u4", "u8", "i1", "i4", "i8", ">f4", ">u2", "?", "c8", "O", "U3", "M8[s]"])
        if dtype in ("O", "U3", "M8[s]"):
            return np.zeros(shape, dtype)
        with np.errstate(all="ignore"):
            given = self.numbers.normal(size=shape) if r.random() < 0.5 else self.numbers.integers(0, 300, shape)
            given = np.asarray(given).astype(dtype)
        if given.size and given.dtype.kind == "f" and r.random() < 0.3:
            given.reshape(-1)[r.randrange(given.size)] = r.choice([np.nan, np.inf, -np.inf])
        if r.random() < 0.2:
            given = given.T
        if r.random() < 0.2 and given.ndim:
            given = given[::-1]
        return given

    def mostly(self, *good):
        """One of these, or anything."""
        r = self.random
        return self.value() if r.random() < 0.15 else r.choice(good)

    def rows(self, width=3, dtype="f4"):
        """`[n, 3]` of few rows, mostly."""
        n = self.random.randrange(9)
        rows = self.numbers.normal(size=(n, width)) * 0.2
        return self.mostly((rows * 500).astype(dtype) if dtype != "f4" else rows.astype("f4"))

    def few(self, n=6):
        return self.mostly(*range(n))

    def frame(self):
        good = {name: self.mostly(given) for name, given in GOOD.items()}
        camera = fc.Camera(good["depth"], good["intrinsics"], good["poses"], good["color"],
                           distortion=self.mostly(("", ()), ("plumb_bob", [0.1, 0, 0, 0, 0])))
        plan = fc.Plan(self.mostly(["a"]), self.mostly([0.1, 0.2]), self.mostly([[1.0], [2.0]]), self.mostly(0, 1.0))
        return fc.Frame(good["stamp"], [camera], self.mostly(None, {"a": 0.0}), self.mostly([], [plan]), self.mostly(None))

    def goal(self) -> fc.Goal:
        mostly, box = self.mostly, [[-1, -1, -1], [1, 1, 1.5]]
        select = {"region": box, "body": (0, 0, 0), "pixels": np.ones((3, 4), "?"), "camera": 1}
        reach = {"box": box, "pose": (0, 0, 0, 0, 0, 0, 1), "cloud": np.zeros((2, 3))}
        name, where = mostly(*select), mostly(*reach)
        given = {"region": mostly(box)} if not isinstance(name, str) or name not in select else {name: mostly(select[name])}
        given |= {"box": mostly(box)} if not isinstance(where, str) or where not in reach else {where: mostly(reach[where])}
        return fc.Goal(**given, tolerance=mostly(None, 0.1), kappa=mostly(None, 1), keep_out=mostly((), [box]))

    def plan(self) -> fc.Plan:
        mostly = self.mostly
        return fc.Plan(mostly([self.joint]), mostly([0.0, 0.2]), mostly([[self.at], [self.at + 0.05]]), mostly(0))

    def solve(self):
        mostly, few, of = self.mostly, self.few, self.laplacian
        columns, delta = mostly(np.ones(12), np.ones((12, 2))), mostly(None, 0.1)
        return self.random.choice([
            lambda: of.electric_flow(columns, few(), delta), lambda: of.resistive_embedding(columns, few(), delta),
            lambda: of.heat_kernel(columns, mostly(0.1), few()), lambda: of.fast_heat_kernel(mostly(0.1), few()),
            lambda: of.fast_electric_flow(few(), delta), lambda: of.effective_resistance(few(), delta),
            lambda: of.effective_resistance_between(mostly([0, 1]), mostly([2, 3]), few(), delta),
            lambda: of.top_eigenvectors(columns, few()), lambda: of.bottom_eigenvectors(columns, few()),
            lambda: of.positional_encoding(few(), mostly([1.0]), few(), few(), few(), few()),
        ])()

    def call(self) -> None:
        r, v, mostly, rows, few = self.random, self.value, self.mostly, self.rows, self.few
        edges = self.numbers.integers(0, 6, (2, 5)).astype("u4")
        box = [[-1, -1, -1], [1, 1, 1.5]]
        r.choice([
            lambda: fc.knn(rows(), few(), mostly(None, 0.1)).rows(),
            lambda: fc.Graph.of_edges(mostly(6, 5), mostly(edges[0]), mostly(edges[1]), mostly(None), mostly(True, False))
            .normalized(mostly(1.0, 0.5)).rows(),
            lambda: fc.Graph.of_depth(mostly(np.ones((3, 4), "f4")), 0.1).features(few(3)),
            lambda: self.graph.walks(few(), p_halt=mostly(None, 0.5), max_hops=few(), seed=few(),
                                     sampler=mostly("iid", "repelling", "antithetic")),
            lambda: self.graph.features(few(4), mostly(None, 2), p_halt=mostly(None, 0.2)).dense(mostly(None)),
            lambda: self.graph.mask(mostly(*fc.masks()), mostly(np.zeros((12, 3), "f4")), n_hops=few(4),
                                    cell_m=mostly(0.1), walks=mostly(None, None, {"n_walks": 2})).dense(mostly(None)),
            lambda: self.mask.apply(mostly(np.ones((12, 2), "f4"), np.ones(12, "f4")), mostly(None), mostly(True, False)),
            lambda: fc.attention(mostly(np.ones((12, 2))), mostly(np.ones((12, 2))), mostly(np.ones((12, 4))),
                                 mostly(None, self.mask), mostly(None), mostly(1, 2)),
            lambda: fc.grf_attention(*(mostly(np.ones((12, 4))) for _ in range(3)), mostly(self.graph),
                                     mostly([1.0, -0.5, 0.2], np.ones((2, 3))), kernel=mostly("softmax", "linear"),
                                     walks=mostly(None, None, {"n_walks": 2, "n_hops": 2}), n_heads=mostly(1, 2)),
            lambda: fc.k_mip_attention(*(mostly(np.ones((9, 4))) for _ in range(3)), mostly(1, 9), mostly(1, 2)),
            lambda: fc.Mask.toeplitz(mostly((3, 4), (7, 2)), mostly((1, 1))).dense(mostly(None)),
            lambda: fc.Mask.grid_heat(mostly((3, 4), (7,))).dense(mostly(None)),
            lambda: fc.Mask.causal(mostly([0, 1, 1])).dense(),
            lambda: fc.Mask.low_rank(mostly(np.ones((3, 2))), mostly(np.ones((3, 2)))).dense(),
            lambda: fc.Mask.stochastic_positions(mostly(np.ones((3, 2))), mostly(np.ones((4, 2))), few(), few())
            .dense(mostly(None)),
            lambda: fc.Mask.tree(mostly(6, 5), mostly(edges[0]), mostly(edges[1]), few()).dense(mostly(None)),
            lambda: fc.Mask.packed(mostly([self.mask, fc.Open(few()), fc.Padding(few())])).dense(mostly(None)),
            lambda: fc.Mask.product(mostly(self.mask), mostly(self.mask)).dense(mostly(None)),
            lambda: self.solve(),
            lambda: fc.particles(rows(), mostly(np.zeros((8, 3), "u1"), np.zeros((4, 3), "u1")), mostly(None), few(),
                                 workspace=mostly(box), seed=few(), support_stride=few(3)),
            lambda: fc.hindsight([fc.Particles(p := rows(), mostly(np.zeros_like(p)), None, None, mostly(None, rows()))
                                  for _ in range(r.randrange(4))], mostly(None, [0, 0, 1])),
            lambda: self.frame().cloud(mostly(None, box)),
            lambda: self.frame().cameras[0].depth_m(),
            lambda: self.predictor.step(self.frame()) if r.random() < 0.1 else self.frame(),
            lambda: self.predictor.set_config(
                **{r.choice(["horizon", "seed", "workspace", "origin", "robot", "x"]): few(), "n_particles": 64, "horizon": 1}),
            lambda: self.predictor.set_robot(mostly("<robot name='a'><link name='b'/></robot>", "<robot", "")),
            lambda: fc.Frame(1.0, [fc.Camera(points=mostly((rows(), None), rows(), (rows(), np.zeros((4, 3), "u1"))),
                                             pose=mostly(np.eye(4)))]).cloud(mostly(None, box)),
            lambda: self.goal(),
            lambda: self.planner.evaluate(mostly([self.plan()]), mostly(self.goal()), steps=few(3), particles=few()),
            lambda: self.planner.plan(mostly(self.goal()), max_plans=few(3), budget=mostly(None, 0.01), steps=few(3),
                                      joints=mostly([], [self.joint])) if r.random() < 0.02 else None,
            lambda: fc.Model(mostly("", "\0", "/")),
            lambda: fc.Recording(mostly("", "\0", "/dev/null"), cameras=mostly(None, ["a"]), remap=mostly(None)),
            lambda: self.frames[0].bodies(mostly(np.arange(5), [2**32 - 1])),
            lambda: self.prediction.contacts(touch=mostly(0.01), min_probability=mostly(0.1)),
            lambda: self.prediction.occupied(mostly(None, 0.1), voxel=mostly(0.02), padding=mostly(0.0)),
            lambda: fc.set_threads(r.choice([0, 2**70, -1])) if r.random() < 0.01 else None,
        ])()


def test_fuzzed_calls_end_in_results_or_exceptions(request, model, frames):
    """`--fuzz 1000000 --seed 2` runs longer and others."""
    n, seed = request.config.getoption("--fuzz"), request.config.getoption("--seed")
    fuzz = Fuzz(seed, model, frames)
    n_refused = n_foreign = 0
    for i in range(n):
        try:
            fuzz.call()
        except fc.errors.InternalError as error:
            pytest.fail(f"--seed {seed}, call {i}: {error}")
        except fc.ForecloudError:
            n_refused += 1
        except (TypeError, ValueError, OverflowError, AttributeError, KeyError):
            # Python's own, of arguments that are of another kind.
            n_foreign += 1
        except BaseException as error:
            pytest.fail(f"--seed {seed}, call {i}: {type(error).__name__} {error}")
    # Neither all that is refused nor all that is taken.
    assert 0.1 * n < n_refused < 0.9 * n and n_foreign < 0.2 * n
    predictor = fc.Predictor(model)
    assert sum(predictor.step(frame) is not None for frame in frames) == 5
