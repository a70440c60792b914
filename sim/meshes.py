"""Meshes of links, drawn at random: turned and squared bodies in place of cylinders, boxes, balls."""

from dataclasses import replace

import numpy as np

from sim.rig import Solid

AROUND = 20  # corners of a cross-section


def stl(corners: np.ndarray, faces: np.ndarray) -> bytes:
    """Binary STL of triangles (faces × 3 indices into corners, m)."""
    triangles = corners[faces].astype("<f4")
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    kind = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("extra", "<u2")])
    rows = np.zeros(len(faces), kind)
    rows["normal"], rows["corners"] = normals, triangles
    return b"forecloud".ljust(80) + np.uint32(len(faces)).tobytes() + rows.tobytes()


def triangles_of(data: bytes) -> np.ndarray:
    """Corners (n × 3 × 3, m) of a binary STL."""
    kind = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("extra", "<u2")])
    return np.frombuffer(data, kind, offset=84)["corners"].astype(float)


def lathe(heights, radii, half, square: float) -> tuple[np.ndarray, np.ndarray]:
    """A body about z: at each height (m) a ring of this share of `half` (x and y, m).

    `square`: 1 makes rings ellipses, less squares them.
    """
    angles = 2 * np.pi * (np.arange(AROUND) + 0.5) / AROUND
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ring = np.sign(ring) * np.abs(ring) ** square
    rings = np.array(radii)[:, None, None] * ring * np.array(half)
    levels = np.repeat(np.array(heights)[:, None, None], AROUND, axis=1)
    corners = np.concatenate([rings, levels], axis=2).reshape(-1, 3)
    ends = np.array([[0, 0, heights[0]], [0, 0, heights[-1]]])
    n, faces = len(heights), []
    for level in range(n - 1):
        for k in range(AROUND):
            a, b = level * AROUND + k, level * AROUND + (k + 1) % AROUND
            faces += [(a, b, b + AROUND), (a, b + AROUND, a + AROUND)]
    low, high = n * AROUND, n * AROUND + 1
    for k in range(AROUND):
        after, top = (k + 1) % AROUND, (n - 1) * AROUND
        faces += [(low, after, k), (high, top + k, top + after)]
    return np.concatenate([corners, ends]), np.array(faces)


def like(solid: Solid, rng: np.random.Generator) -> bytes:
    """A mesh that fills about the room of a box, cylinder or ball."""
    stations = np.linspace(-1, 1, 7)
    if solid.kind == "sphere":
        stations, half, high = np.sin(stations * np.pi / 2), solid.size * 2, solid.size[0]
        radii, square = np.sqrt(np.maximum(1 - stations**2, 0.02)), float(rng.uniform(0.7, 1))
    elif solid.kind == "cylinder":
        half, high = (solid.size[0],) * 2, solid.size[1]
        radii = rng.uniform(0.84, 1.04) + rng.uniform(-0.2, 0.1) * stations**2
        radii = radii + rng.uniform(-0.08, 0.08) * stations
        square = float(rng.choice((1.0, 0.8, 0.6)))
    else:
        half, high = solid.size[:2], solid.size[2]
        radii = 1 - rng.uniform(0, 0.15) * (1 + stations) / 2
        square = float(rng.uniform(0.25, 0.5))
    if solid.kind != "sphere":  # rounded rims
        radii = radii * np.array([rng.uniform(0.75, 1), 1, 1, 1, 1, 1, rng.uniform(0.75, 1)])
        stations = stations * np.array([1, 1.3, 1, 1, 1, 1.3, 1])
    return stl(*lathe(stations * high, radii, half, square))


def meshed(links, meshes: dict[str, bytes], rng: np.random.Generator) -> tuple:
    """The links with a mesh for each of their solids, which are put into `meshes` by name."""
    done = []
    for link in links:
        solids = []
        for k, solid in enumerate(link.solids):
            name = f"{link.name}_{k}"
            meshes[name] = like(solid, rng)
            solids.append(replace(solid, kind="mesh", size=(), mesh=name))
        done.append(replace(link, solids=tuple(solids)))
    return tuple(done)
