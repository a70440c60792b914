"""What cameras do in time, and a truth that follows the depth images. Needs OpenGL."""

import numpy as np
import pytest

from sim import episode, recording
from sim.flow import Recording
from sim.imaging import Exposure, Imaging, shots

NAME = ("tumble", 12)  # one arm with a three-finger hand of meshes
TORN = Imaging(torn=0.3, repeated=0.15, missing=0.1, late=1)


@pytest.fixture(scope="module")
def filmed(needs_gl, tmp_path_factory):
    """Recordings of the same short part of an episode, by imaging."""
    out = tmp_path_factory.mktemp("filmed")
    whole = episode.simulate(*NAME, frames=14, variety="real")
    way = np.convolve(whole.steps().max(axis=1), np.ones(5), "valid")
    part, done = whole.part(int(np.argmax(way)), 6), {}
    part.cameras = part.cameras[:1]

    def film(imaging):
        if imaging not in done:
            part.stage.imaging = imaging
            folder = out / f"film_{len(done)}"
            recording.write(part, folder)
            done[imaging] = folder, Recording(folder)
        return done[imaging]

    return film


def errors(read, kind="object"):
    """Errors of the flow from each frame to the next, as in Recording.flow_error."""
    rows = [
        read.flow_error(frame, camera, kind)
        for camera in read.depth
        for frame in range(len(read.places) - 1)
        if read.seen(frame, camera)
    ]
    return np.concatenate([row[1] for row in rows])


def test_thirty_frames_a_second(filmed):
    _, read = filmed(Imaging())
    assert len(read.places) == 16
    np.testing.assert_allclose(np.diff(read.secs), 1 / 30, atol=1e-8)
    assert "robot" in read.about and read.about["rate_hz"] == 30
    assert np.percentile(errors(read), 99) < 0.001


def test_truth_follows_torn_and_repeated_frames(filmed):
    """Each pixel's body is where it was at the pixel's moment; without late copies it is not."""
    _, clean = filmed(Imaging())
    _, read = filmed(TORN)
    late = [b for b in read.about["bodies"] if "of" in b]
    assert late
    for camera, pictures in read.depth.items():
        taken = [p for p in pictures if p is not None]
        assert len(taken) < len(pictures)  # some are missing
        same = [np.array_equal(p, q) for p, q in zip(pictures, clean.depth[camera]) if p is not None]
        assert 0.2 < np.mean(same) < 0.95
    assert np.percentile(carried(read), 99) < 0.001
    own = np.arange(len(read.about["bodies"]))
    for body in late:
        own[body["id"]] = body["of"]
    read.ids = {c: [None if p is None else own[p] for p in rows] for c, rows in read.ids.items()}
    assert np.percentile(carried(read), 99) > 0.001
    filmed(TORN)[1].__init__(filmed(TORN)[0])  # as it was


def carried(read):
    """How far points of frames, carried to the clean depth of the next whole frame, lie before it.

    Points of torn frames are carried too: that is what the late copies are for.
    """
    found = []
    for camera in read.depth:
        for frame in range(len(read.places) - 1):
            whole = read.depth[camera][frame + 1]
            if not read.seen(frame, camera) or np.any(read.ids[camera][frame + 1] >= whole_ids(read)):
                continue
            found.append(read.flow_error(frame, camera, "object")[1])
    return np.concatenate(found)


def whole_ids(read):
    """The number of bodies without copies."""
    return sum("of" not in body for body in read.about["bodies"])


def test_colour_is_late_by_whole_frames(filmed):
    _, clean = filmed(Imaging())
    _, late = filmed(Imaging(late=2))
    for camera, pictures in clean.colour.items():
        for frame in range(2, len(pictures)):
            np.testing.assert_array_equal(late.colour[camera][frame], pictures[frame - 2])
            np.testing.assert_array_equal(late.depth[camera][frame], clean.depth[camera][frame])


def test_blur_and_exposure_change_colour_alone(filmed):
    _, clean = filmed(Imaging())
    for imaging in (Imaging(blur=0.9), Imaging(exposure=1.0)):
        _, read = filmed(imaging)
        for camera, pictures in clean.colour.items():
            changed = [np.mean(a != b) for a, b in zip(pictures, read.colour[camera])]
            assert max(changed) > (0.5 if imaging.exposure else 0.001)
            for a, b in zip(clean.depth[camera], read.depth[camera]):
                np.testing.assert_array_equal(a, b)


def test_the_same_seed_gives_the_same_bytes(filmed, tmp_path):
    folder, _ = filmed(TORN)
    whole = episode.simulate(*NAME, frames=14, variety="real", imaging=TORN)
    way = np.convolve(whole.steps().max(axis=1), np.ones(5), "valid")
    part = whole.part(int(np.argmax(way)), 6)
    part.cameras = part.cameras[:1]
    recording.write(part, tmp_path / folder.name)
    names = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    assert any(name.parts[0] == "meshes" for name in names)
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / folder.name / name).read_bytes()


def test_meshes_lie_where_the_urdf_says(filmed):
    """`package://NAME_robot/meshes/X.stl` is `meshes/X.stl` beside the recording's metadata."""
    import xml.etree.ElementTree as ET

    from rosbags.highlevel import AnyReader

    folder, _ = filmed(Imaging())
    with AnyReader([folder]) as reader:
        wanted = [c for c in reader.connections if c.topic == "/robot_description"]
        text = next(reader.deserialize(raw, c.msgtype).data for c, _, raw in reader.messages(wanted))
    named = {m.get("filename") for m in ET.fromstring(text).iter("mesh")}
    assert named
    for name in named:
        assert (folder / name.removeprefix(f"package://{folder.name}_robot/")).is_file()


def test_shots_are_drawn_by_share():
    rng = np.random.default_rng(0)
    rows = shots(Imaging(torn=0.2, repeated=0.1, missing=0.1, late=1, late_change=0.5), 2000, rng)
    assert 0.05 < np.mean([r.missing for r in rows]) < 0.15
    assert 0.05 < np.mean([r.tear == 0 for r in rows]) < 0.15
    assert 0.1 < np.mean([0 < r.tear < 1 for r in rows]) < 0.25
    assert {r.late for r in rows} == {0, 1, 2}
    assert not any(r.age or r.missing or r.late for r in shots(Imaging(), 500, rng))


def test_exposure_evens_out_brightness_in_steps():
    adapt = Exposure(1.0, np.random.default_rng(1))
    means = [adapt(np.full((4, 4, 3), 60, np.uint8)).mean() for _ in range(40)]
    assert means[-1] == pytest.approx(adapt.target, rel=0.15)
    assert max(abs(b / a - 1) for a, b in zip(means, means[1:])) < 0.1


@pytest.mark.parametrize("text", ["lat=1", "torn=2", "torn=-0.1", "rate_hz=20", "torn=x", ""])
def test_imaging_that_makes_no_sense_is_an_error(text):
    with pytest.raises(ValueError):
        Imaging.parse(text)


def test_imaging_as_said():
    assert Imaging.parse("none") == Imaging()
    assert Imaging.parse("late=2,torn=0.1,rate_hz=10") == Imaging(10, 2.0, torn=0.1)
