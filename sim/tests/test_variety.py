"""Varied scenes: what is drawn keeps to its split's ranges, moves, and is held where it is touched."""

import json
from pathlib import Path

import mujoco
import numpy as np
import pytest

from sim import episode, generate, scene, shapes, tasks, textures, things
from sim.flow import Recording
from sim.splits import seeds
from sim.tasks import grains, reach
from sim.tasks import steady as steady_
from sim.tests.conftest import VARIED, name_of
from sim.variety import CAMERAS, SEEN, UNSEEN, of_split

TINY = Path(__file__).parents[2] / "tests" / "data" / "tiny_push"
RANGES = (
    "mass_kg", "friction", "azimuth_deg", "elevation_deg", "front_elevation_deg", "distance_m",
    "fovy_deg",
)


def apart(one, other):
    """Whether two ranges share nothing."""
    return one[1] < other[0] or other[1] < one[0]


@pytest.mark.parametrize("what", RANGES)
def test_unseen_ranges_meet_none_of_training(what):
    assert apart(getattr(SEEN, what), getattr(UNSEEN, what))


def test_unseen_shapes_and_counts_meet_none_of_training():
    for use in ("compact", "long", "upright"):
        known = {*SEEN.compact, *SEEN.long, *SEEN.upright}
        assert not known & set(getattr(UNSEEN, use))
    assert set(SEEN.counts) == set(UNSEEN.counts) == set(tasks.RIGID)
    assert all(apart(SEEN.counts[task], UNSEEN.counts[task]) for task in SEEN.counts)


@pytest.mark.parametrize("name", VARIED, ids=name_of)
def test_scenes_keep_to_their_ranges(whole, name):
    """As built: masses are MuJoCo's, cameras are measured from their poses."""
    task, split = name
    made, drawn = whole(name), of_split(split)
    assert made.variety == drawn.name
    if split != "materials":
        assert drawn.counts[task][0] <= len(made.things) <= drawn.counts[task][1]
    for i, thing in enumerate(made.things):
        mass = made.model.body(scene.thing_name(i)).mass[0]
        if task == "grains":  # smaller and lighter than all else
            assert thing.kind in grains.KINDS and 0.002 < mass < 0.15
            assert thing.bounding_radius() < 0.04
            continue
        if thing.kind == "hand":  # as heavy as a forearm
            assert task in ("reach", "steady") and 0.8 < mass < 3.0
            continue
        if thing.kind == "disc":  # a turntable
            assert task == "steady" and i == 0
            continue
        assert thing.kind in {*drawn.compact, *drawn.long, *drawn.upright}
        assert drawn.mass_kg[0] * 0.999 < mass < drawn.mass_kg[1] * 1.001
        assert drawn.friction[0] <= thing.friction <= drawn.friction[1]
    for view in made.cameras:
        forward = view.rotation[:, 2]
        elevation = np.degrees(np.arcsin(-forward[2]))
        azimuth = np.degrees(np.arctan2(-forward[1], -forward[0]))
        if view.name == "camera_front":
            assert drawn.front_elevation_deg[0] < elevation < drawn.front_elevation_deg[1]
        else:
            assert drawn.elevation_deg[0] < elevation < drawn.elevation_deg[1]
            side = 1 if view.name == "camera_left" else -1
            assert drawn.azimuth_deg[0] < side * azimuth < drawn.azimuth_deg[1]
        assert drawn.fovy_deg[0] < view.fovy < drawn.fovy_deg[1]


@pytest.mark.parametrize("name", VARIED, ids=name_of)
def test_objects_move_and_the_recording_says_what_it_is(recorded, made, name):
    task, split = name
    shown, read = made(name), Recording(recorded(name))
    about = read.about
    assert (about["task"], about["split"], about["seed"]) == (task, split, seeds(split, 0, 1)[0])
    assert about["variety"] == of_split(split).name
    assert about["cameras"] == list(read.depth) == [view.name for view in shown.cameras]
    assert [o["shape"] for o in about["objects"]] == [thing.kind for thing in shown.things]
    assert about.get("soft") == (task if task in tasks.SOFT else None)
    steps = np.linalg.norm(np.diff(read.places[:, read.kinds == "object"], axis=0), axis=2)
    assert np.mean(steps.max(axis=1) > 0.002) > 0.5
    seen = sum(np.sum(read.kinds[read.ids[camera][0]] == "object") for camera in read.depth)
    assert seen > 300  # pixels


def test_there_are_one_to_three_cameras():
    rng = np.random.default_rng(3)
    drawn = [tuple(view.name for view in SEEN.cameras(rng)) for _ in range(60)]
    assert {len(names) for names in drawn} == {1, 2, 3}
    assert {names for names in drawn if len(names) == 1} == {(name,) for name in CAMERAS}


@pytest.mark.parametrize("drawn", [SEEN, UNSEEN], ids=lambda drawn: drawn.name)
@pytest.mark.parametrize("use", ["compact", "long", "upright"])
def test_all_shapes_have_a_size(drawn, use):
    rng = np.random.default_rng(4)
    for thing in (drawn.thing(use, rng) for _ in range(400)):
        assert min(min(part.size) for part in thing.parts) > 0.004, thing.kind
        assert 0.05 < thing.bounding_radius() < (0.32 if use == "long" else 0.22), thing.kind


@pytest.mark.parametrize("kind", sorted(shapes.BUILDERS))
def test_shapes_weigh_and_rest_as_computed(kind):
    """Volume, centre of mass and lowest point against MuJoCo's."""
    rng = np.random.default_rng(5)
    thing = SEEN.thing("compact", rng)
    thing.kind, thing.parts = kind, shapes.build(kind, 0.08, rng)
    things.lie(thing, np.zeros(2), 0.7)
    model = scene.build([thing], scene.cameras(rng), textures.plain(rng))
    body = model.body("object_0")
    volume = sum(part.volume() for part in thing.parts)
    assert body.mass[0] == pytest.approx(thing.density * volume, rel=1e-6)
    np.testing.assert_allclose(body.ipos, 0, atol=1e-6)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    first = body.geomadr[0]
    geoms = range(first, first + body.geomnum[0])
    top = model.geom("top").id
    gap = min(mujoco.mj_geomDistance(model, data, top, geom, 1, None) for geom in geoms)
    assert gap == pytest.approx(0.0005, abs=2e-5)
    for part, geom in zip(thing.parts, geoms):
        far = np.linalg.norm(part.position) + model.geom_rbound[geom]
        assert part.bounding_radius() == pytest.approx(far, rel=1e-6)


@pytest.mark.parametrize("task", ["can", "lift"])
def test_grips_hold_what_they_touch(monkeypatch, task):
    """While a grip is closed a finger stays within reach of the surface, and the object rises."""
    gaps, heights = [], []
    advance = episode.Attempt.advance

    def watched(self, now):
        advance(self, now)
        for side, thing in self.held:
            fingers, body = self.geoms(self.hands[side])[-2:], self.bodies[thing]
            gaps.append(
                min(
                    mujoco.mj_geomDistance(self.model, self.data, finger, geom, 0.3, None)
                    for finger in fingers
                    for geom in self.geoms(body)
                )
            )
            heights.append(self.data.xpos[body][2])

    monkeypatch.setattr(episode.Attempt, "advance", watched)
    episode.simulate(task, 200_001, frames=40)
    assert len(gaps) > 20
    assert max(gaps) < episode.FINGER_RANGE + 0.015
    assert max(heights) > min(heights) + 0.05


def test_what_lies_on_the_belt_goes_with_it_and_the_belt_stays(whole):
    """Its surface runs: objects end with its speed, and the table is where it was."""
    made = whole(("belt", "materials"))
    speeds = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        drawn = tasks.MATERIALS["belt"](rng, SEEN)
        drawn.things()
        speeds.append(np.hypot(*drawn.belt))
    assert len(set(speeds)) == 3 and 0.06 <= min(speeds) and max(speeds) <= 0.15
    last = np.diff(made.places[-10:], axis=0) / episode.FRAME_SECS
    sideways = np.median(last[..., 1])
    assert 0.06 < abs(sideways) < 0.15 and abs(np.median(last[..., 0])) < 0.01
    slides = [made.model.joint(name).qposadr[0] for name in ("belt_x", "belt_y")]
    assert np.abs(made.qpos[:, slides]).max() < 1e-3


def test_the_hand_reaches_about_meets_the_arms_and_yields(monkeypatch):
    """It goes at a hand's pace; where an arm is in its way it stays behind where it is led, and pushes no harder."""
    advance, gaps, behind = episode.Attempt.advance, [], []

    def watched(self, now):
        advance(self, now)
        body = self.model.body(f"object_{self.task.driven}").id
        force = np.linalg.norm(self.data.xfrc_applied[body, :3] + self.model.body_mass[body] * self.model.opt.gravity)
        assert force < reach.FORCE + 0.01
        pairs = self.data.contact.geom
        is_hand = np.isin(pairs, list(self.geoms(body)))
        touches = bool(np.any(is_hand[:, 0] & self.is_arm[pairs[:, 1]] | is_hand[:, 1] & self.is_arm[pairs[:, 0]]))
        gaps.append(touches)
        behind.append(np.linalg.norm(self.data.xipos[body] - self.task.lead(now + 0.02)[:3]))

    monkeypatch.setattr(episode.Attempt, "advance", watched)
    made = [episode.simulate("reach", seed) for seed in (400_000, 400_004)]
    for one in made:
        assert np.ptp(one.places[:, -1], axis=0).max() > 0.15  # the hand is the last
        assert one.steps()[:, -1].max() < 0.18
    gaps, behind = np.array(gaps), np.array(behind)
    assert 5 < gaps.sum() < 0.5 * len(gaps)
    assert behind[gaps].max() > 0.02 and np.median(behind[~gaps]) < 0.01


def steady(seed: int) -> tuple[episode.Episode, steady_.Steady]:
    """The episode, and the task that it was made by."""
    tasks_made = []
    begin = steady_.Steady.__init__

    def kept(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        tasks_made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady_.Steady, "__init__", kept)
        made = episode.simulate("steady", seed)
    return made, tasks_made[-1]


def test_what_is_led_goes_on_at_one_speed_whatever_it_meets():
    """Until there is no room, and with a rest on its way where it stops; what it pushes or carries comes along."""
    seen = {}
    for seed in range(400_000, 400_020):
        made, task = steady(seed)
        seen.setdefault(task.kind, []).append(seed)
        times = np.arange(len(made.places)) * episode.FRAME_SECS
        for i, (place, _) in task.led.items():
            way = np.linalg.norm(made.places[:, i] - place, axis=1)
            if task.kind == "turn":
                assert way.max() < 1e-4
                continue
            np.testing.assert_allclose(way, [task.gone(t) for t in times], atol=2e-4)
            goes = (times > task.begin + 0.1) & (way < task.room - 1e-3)
            if task.kind != "stop":
                np.testing.assert_allclose(np.diff(way)[goes[1:] & goes[:-1]], 0.1 * task.speed, atol=2e-4)
        moved = np.ptp(made.places, axis=0).max(axis=1)
        assert moved[-1] < 1e-6, "it stands in the air"
        if task.kind in ("push", "turn"):
            assert moved[1] > 0.03, "it comes along"
    assert set(seen) == set(steady_.KINDS)


def test_splits_have_their_own_tasks():
    assert set(tasks.of("train")) == set(tasks.of("unseen")) == {"can", "lift", "push", "tumble"}
    assert set(tasks.of("materials")) == {"belt", "cloth", "grains", "reach", "rope", "steady"}
    assert set(tasks.possible("train")) - set(tasks.of("train")) == {"cloth", "rope", "steady"}
    assert tasks.possible("unseen") == tasks.of("unseen")
    for task, seed, variety in (("grains", 0, "split"), ("reach", 0, "split"), ("steady", 300_000, "split"), ("belt", 0, "split"), ("rope", 300_000, "split"), ("rope", 0, "real"), ("push", 400_000, "split"), ("can", 0, "plain")):
        with pytest.raises(ValueError, match="no task"):
            episode.simulate(task, seed, variety=variety)


def test_what_can_not_be_made_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(episode, "ATTEMPTS", 0)
    assert "push 7: no attempt" in generate.make(("push", 7, "split", tmp_path, None, True, None))
    assert not list(tmp_path.iterdir())


def test_the_plain_scene_is_still_that_of_the_samples():
    """Poses of the committed tiny_push, simulated anew."""
    read = Recording(TINY)
    again = episode.simulate("push", read.about["seed"], variety="plain")
    way = np.convolve(again.steps()[:, 0], np.ones(len(read.places) - 1), "valid")
    part = again.part(int(np.argmax(way)), len(read.places))
    objects = read.kinds == "object"
    # The same bytes here; on other processors contact lets last bits grow, but not to millimetres.
    np.testing.assert_allclose(part.places, read.places[:, objects], atol=5e-3)
    assert json.loads(json.dumps(read.about)).keys() == {"task", "seed", "split", "bodies"}
