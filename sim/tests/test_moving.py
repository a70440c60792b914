"""Cameras that move: tf leads to where each picture was taken, or errs as it was asked to. Needs OpenGL."""

import numpy as np
import pytest
from rosbags.highlevel import AnyReader

from sim import recording
from sim.flow import Recording
from sim.moving import MovingCamera, MovingMessages, PoseErrors, inverse, joined

ERRORS = PoseErrors.parse("5,0.5,50")
NAME = ("push", "test")


def camera(made, *args, **kwargs) -> MovingMessages:
    """The messages of an episode."""
    return MovingMessages(made(NAME), MovingCamera(*args, **kwargs))


def test_what_is_asked_for_is_checked():
    assert PoseErrors.parse("0,0,0") == PoseErrors()
    for text in ("1,2", "a,b,c", "-1,0,0", "1,0,9999"):
        with pytest.raises(ValueError):
            PoseErrors.parse(text)


@pytest.mark.parametrize("kind", ["wrist", "base"])
def test_it_moves_unless_it_is_to_be_still_and_errs_by_what_was_asked_for(made, kind):
    moving, still = camera(made, kind), camera(made, kind, still=True)
    places = np.array([place for place, _ in moving.camera_poses])
    assert np.linalg.norm(np.diff(places, axis=0), axis=1).max() > 0.002
    assert np.ptp([place for place, _ in still.camera_poses], axis=0).max() == 0
    poses = moving.camera_poses
    for frame, pose in enumerate(poses):
        told = moving.told(poses, frame)
        assert np.allclose(told[0], pose[0]) and np.allclose(told[1], pose[1])
    errors = ERRORS.drawn(4000, 0.1, np.random.default_rng(1))
    sizes = [np.sqrt((part**2).sum(axis=1).mean()) for part in (errors[:, :3], errors[:, 3:])]
    assert 0.6 < sizes[0] / ERRORS.shift < 1.6 and 0.6 < sizes[1] / ERRORS.turn < 1.6, sizes


@pytest.mark.parametrize("kind", ["wrist", "base"])
def test_points_of_what_rests_stay_where_they_are(needs_gl, made, tmp_path, kind):
    folder = tmp_path / kind
    recording.write(made(NAME), folder, moving=MovingCamera(kind))
    seen = Recording(folder)
    assert len(seen.about["cameras"]) == 1
    mover = camera(made, kind)
    static = [body["id"] for body in seen.about["bodies"] if body["kind"] == "static"]
    view, messages = mover.view, {}
    with AnyReader([folder]) as reader:
        for connection, _, raw in reader.messages():
            messages.setdefault(connection.topic, []).append(reader.deserialize(raw, connection.msgtype))
    focal = messages[f"/{view.name}/color/camera_info"][0].k[0]
    for frame in (0, len(mover.camera_poses) - 1):
        depth, ids = (
            np.frombuffer(messages[topic][frame].data, np.uint16).reshape(view.height, view.width)
            for topic in (f"/{view.name}/depth/image_raw", f"/truth/{view.name}/body_ids")
        )
        place, turn = mover.camera_poses[frame]
        rows, columns = np.nonzero(np.isin(ids, static) & (depth > 0) & (depth < 2000))
        z = depth[rows, columns] / 1e3
        rays = np.stack([(columns - 159.5) / focal, (rows - 119.5) / focal, np.ones(len(z))], axis=1)
        heights = (place + (rays * z[:, None]) @ turn.T)[:, 2]
        assert (np.abs(heights) < 0.004).mean() > 0.3, "the table lies at z = 0"
    # tf leads there, too.
    moved = [t for t in messages["/tf"][-1].transforms if t.child_frame_id in ("base_link", f"{view.name}_optical_frame")]
    assert len(moved) == 1
    if kind == "base":
        assert np.allclose(vector(moved[0]), mover.base[-1][0])
    else:
        mover.state(len(mover.camera_poses) - 1)
        hand = mover.model.body(mover.rig.arms[0].hand).id
        at = (mover.data.xpos[hand], mover.data.xmat[hand].reshape(3, 3))
        assert np.allclose(vector(moved[0]), joined(inverse(at), mover.camera_poses[-1])[0])


def vector(transform) -> np.ndarray:
    """The translation of a transform."""
    t = transform.transform.translation
    return np.array((t.x, t.y, t.z))
