"""The exact motion of what the cameras see, read back from a recording."""

import json
from pathlib import Path

import numpy as np
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

CROP = ((-0.45, -0.5, -0.015), (0.55, 0.5, 0.65))  # the workspace, m


def rotations(quaternions: np.ndarray) -> np.ndarray:
    """Matrices of unit quaternions (… × 4, x y z w)."""
    x, y, z, w = np.moveaxis(quaternions, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def xyzw(q) -> list[float]:
    """A message's quaternion as a list."""
    return [q.x, q.y, q.z, q.w]


def stamp_of(message) -> int:
    """Its header's stamp, ns."""
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec


class Recording:
    """Pictures and truth of a recording, as arrays by frame; None where a camera gave none."""

    def __init__(self, folder: Path):
        self.depth, self.ids, self.colour = {}, {}, {}  # by camera; depth in mm
        self.cameras, self.k, places, turns, stamps = {}, {}, [], [], []
        store = get_typestore(Stores.ROS2_JAZZY)
        with AnyReader([Path(folder)], default_typestore=store) as reader:
            for connection, _, raw in reader.messages():
                parts = connection.topic.strip("/").split("/")
                message = reader.deserialize(raw, connection.msgtype)
                if connection.topic == "/tf_static":
                    self.cameras = self.camera_poses(message)
                elif connection.topic == "/truth/bodies":
                    self.about = json.loads(message.data)
                elif connection.topic == "/truth/body_poses":
                    places.append([[p.position.x, p.position.y, p.position.z] for p in message.poses])
                    stamps.append(stamp_of(message))
                    turns.append([xyzw(p.orientation) for p in message.poses])
                elif parts[-1] == "camera_info":
                    self.k[parts[0]] = message.k
                elif parts[-1] == "body_ids":
                    self.ids.setdefault(parts[1], {})[stamp_of(message)] = self.pixels(message)
                elif parts[1:] == ["depth", "image_raw"]:
                    self.depth.setdefault(parts[0], {})[stamp_of(message)] = self.pixels(message)
                elif parts[1:] == ["color", "image_raw"]:
                    shape = (message.height, message.width, 3)
                    picture = message.data.reshape(shape)
                    self.colour.setdefault(parts[0], {})[stamp_of(message)] = picture
        for pictures in (self.depth, self.ids, self.colour):
            for camera, found in pictures.items():
                pictures[camera] = [found.get(stamp) for stamp in stamps]
        self.secs = (np.array(stamps) - stamps[0]) / 1e9
        self.places, self.turns = np.array(places), rotations(np.array(turns))
        rows = self.about["bodies"]
        self.own = np.array([body.get("of", body["id"]) for body in rows])  # copies → their bodies
        self.kinds = np.array([body["kind"] for body in self.about["bodies"]])

    @staticmethod
    def camera_poses(message) -> dict:
        """Rotation and position of each optical frame in the world."""
        poses = {}
        for t in message.transforms:
            at, q = t.transform.translation, np.array(xyzw(t.transform.rotation))
            name = t.child_frame_id.removesuffix("_optical_frame")
            poses[name] = (rotations(q), np.array([at.x, at.y, at.z]))
        return poses

    @staticmethod
    def pixels(message) -> np.ndarray:
        """A 16UC1 image."""
        return message.data.view("<u2").reshape(message.height, message.width)

    def points(self, frame: int, camera: str) -> tuple[np.ndarray, np.ndarray]:
        """World points (n × 3, m) of a frame, and the body of each."""
        depth, ids = self.depth[camera][frame], self.ids[camera][frame]
        rows, columns = np.nonzero(depth)
        focal_x, _, cx, _, focal_y, cy = self.k[camera][:6]
        z = depth[rows, columns] / 1000
        local = np.stack([(columns - cx) / focal_x * z, (rows - cy) / focal_y * z, z], axis=1)
        rotation, place = self.cameras[camera]
        return local @ rotation.T + place, ids[rows, columns].astype(int)

    def moved(self, points: np.ndarray, ids: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Where points on bodies at frame `start` are at frame `stop`."""
        local = np.einsum("nji,nj->ni", self.turns[start][ids], points - self.places[start][ids])
        return np.einsum("nij,nj->ni", self.turns[stop][ids], local) + self.places[stop][ids]

    def seen(self, frame: int, camera: str) -> bool:
        """Whether the camera gave this frame and the next."""
        return all(self.depth[camera][f] is not None for f in (frame, frame + 1))

    def flow_error(self, frame: int, camera: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Depth errors (m) of points that move, against the next picture, where the body is seen.

        The first: against the depth between four pixels, which is not exact over an edge of the
        body, or where another part of it hides the point (over 2 cm are left out). The second:
        how far the point lies before the nearest of the four, where it would have to be seen.
        `kind`: of the bodies, `robot` or `object`.
        """
        points, ids = self.points(frame, camera)
        ahead = self.moved(points, ids, frame, frame + 1)
        rotation, place = self.cameras[camera]
        local = (ahead - place) @ rotation
        focal_x, _, cx, _, focal_y, cy = self.k[camera][:6]
        depth, seen = self.depth[camera][frame + 1], self.ids[camera][frame + 1]
        columns = local[:, 0] / local[:, 2] * focal_x + cx
        rows = local[:, 1] / local[:, 2] * focal_y + cy
        left, top = np.floor(columns).astype(int), np.floor(rows).astype(int)
        shown = (top >= 0) & (top < depth.shape[0] - 1) & (left >= 0) & (left < depth.shape[1] - 1)
        shown &= np.linalg.norm(ahead - points, axis=1) > 0.002
        shown &= self.kinds[ids] == kind
        left, top, ids = left[shown], top[shown], self.own[ids[shown]]
        right, low = (columns[shown] - left)[None], (rows[shown] - top)[None]
        corners = [(top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)]
        same = np.all([seen[corner] == ids for corner in corners], axis=0)
        depths = np.array([depth[corner] for corner in corners]) / 1000
        weights = np.concatenate(
            [(1 - low) * (1 - right), (1 - low) * right, low * (1 - right), low * right]
        )
        # Linear between pixels is exact for 1 / z on a plane.
        away = local[shown, 2]
        gaps = np.abs(1 / np.sum(weights / np.maximum(depths, 1e-3), axis=0) - away)
        before = np.maximum(depths.min(axis=0) - away, 0)
        hidden = gaps > 0.02
        return gaps[same & ~hidden], before[same]
