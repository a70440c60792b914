"""Particles and link poses of real robots, against trimesh (meshes) and yourdfpy (kinematics).

`python -m pytest tests/robots` in the environment of requirements.txt; FORECLOUD_ROBOT_POINTS names
the built example (crates/lab/examples/robot_points.rs).
"""

import importlib.util
import json
import os
import re
import subprocess
import urllib.parse
from pathlib import Path

import lxml.etree
import numpy as np
import pytest
import trimesh
import yourdfpy

ROOT = Path(__file__).parents[2]
N_POINTS = 600
N_CASES = 3
# Positions come as float32, and meshes are kept so.
SURFACE_M = 1e-5
POSE_M = 1e-6


def package(name):
    """Folder of an installed package; none if it isn't there."""
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec else None


def example_robot_data():
    folder = Path(np.__file__).parents[1] / "cmeel.prefix/share"
    return folder if (folder / "example-robot-data").is_dir() else None


def rtb(*parts):
    folder = package("rtbdata")
    return folder and folder.joinpath("xacro", *parts)


ERD = "example-robot-data/robots/"
# Name: folder of the wheel, description, folder to be searched for meshes (both relative to it), and
# the package that this one is, where neither its name nor a package.xml says so.
ROBOTS = {
    "Franka Panda": (example_robot_data(), ERD + "panda_description/urdf/panda.urdf", ""),
    "UR5, gripper": (example_robot_data(), ERD + "ur_description/urdf/ur5_gripper.urdf", ""),
    "Kinova Jaco": (example_robot_data(), ERD + "kinova_description/robots/kinova.urdf", ""),
    "xArm7": (example_robot_data(), ERD + "xarm_description/urdf/xarm7.urdf", ""),
    "Unitree Z1": (example_robot_data(), ERD + "z1_description/urdf/z1.urdf", ""),
    "SO-101": (example_robot_data(), ERD + "so_arm_description/urdf/so101.urdf", ""),
    "Baxter": (example_robot_data(), ERD + "baxter_description/urdf/baxter.urdf", ""),
    "Allegro hand": (
        example_robot_data(), ERD + "allegro_hand_description/urdf/allegro_right_hand.urdf", "",
    ),
    "UR5e": (package("airo_models"), "arms/ur5e/ur5e.urdf", "arms/ur5e"),
    "Robotiq 2F-85": (
        package("airo_models"), "grippers/robotiq_2f_85/urdf/robotiq_2f_85.urdf",
        "grippers/robotiq_2f_85/urdf",
    ),
    "KUKA iiwa": (
        rtb("kuka_description"), "kuka_lbr_iiwa/urdf/lbr_iiwa_14_r820.urdf", "kuka_lbr_iiwa",
        "kuka_lbr_iiwa_support",
    ),
    "PUMA 560": (rtb(), "unimation_puma560_description/urdf/puma560_robot.urdf", ""),
    "ABB IRB 140": (
        rtb(), "abb_irb140_description/urdf/irb140.urdf", "abb_irb140_description",
        "abb_irb140_support",
    ),
}


def binary():
    named = os.environ.get("FORECLOUD_ROBOT_POINTS")
    built = [ROOT / f"target/{kind}/examples/robot_points" for kind in ("release", "debug")]
    found = [Path(named)] if named else [path for path in built if path.exists()]
    if not found:
        pytest.skip("robot_points is not built: cargo build --release -p forecloud-lab --example robot_points")
    return found[0]


def ask(urdf, positions, *folders):
    """What robot_points says of a description at some joint positions."""
    command = [str(binary()), str(urdf), str(N_POINTS), *map(str, folders)]
    text = json.dumps(positions)
    told = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def pose(element):
    origin = element.find("origin")
    values = {} if origin is None else origin.attrib
    numbers = lambda key: [float(x) for x in values.get(key, "0 0 0").split()]
    matrix = trimesh.transformations.euler_matrix(*numbers("rpy"), axes="sxyz")
    matrix[:3, 3] = numbers("xyz")
    return matrix


def mesh_file(folder, name):
    """The file of a <mesh>, in the folder that is searched."""
    path = folder / urllib.parse.unquote(name.removeprefix("package://"))
    assert path.is_file(), path
    return path


def triangles_of(folder, mesh):
    """Triangles (m, frame of the geometry) of a <mesh>, as trimesh reads it."""
    path = mesh_file(folder, mesh.get("filename"))
    scene = trimesh.load_scene(path, process=False)
    triangles = scene.to_geometry().triangles if len(scene.geometry) else np.zeros((0, 3, 3))
    if path.suffix.lower() == ".dae":
        # trimesh leaves the unit to the caller.
        unit = re.search(rb'<unit[^>]*\bmeter="([^"]*)"', path.read_bytes())
        triangles = triangles * (float(unit[1]) if unit else 1.0)
    return triangles * [float(x) for x in mesh.get("scale", "1 1 1").split()]


def surface_of(folder, link):
    """Triangles of a link in its frame; none where its particles are not on meshes alone."""
    visuals, collisions = link.findall("visual"), link.findall("collision")
    shapes = [(pose(shape), shape.find("geometry/mesh")) for shape in visuals or collisions]
    if not shapes or any(mesh is None for _, mesh in shapes):
        return None
    placed = [trimesh.transform_points(triangles_of(folder, mesh).reshape(-1, 3), at)
              for at, mesh in shapes]
    return np.concatenate(placed).reshape(-1, 3, 3)


def gaps(triangles, points):
    """Distance (m) of each point from the nearest of the triangles; at most about 1 cm."""
    # In millimetres: trimesh's tolerances are absolute, and too coarse for slivers in metres.
    triangles, points = triangles * 1000, points * 1000
    low, high = triangles.min(axis=1).T - 1, triangles.max(axis=1).T + 1
    for point in points:
        near = np.arange(len(triangles))
        for axis in range(3):
            near = near[(low[axis][near] <= point[axis]) & (point[axis] <= high[axis][near])]
        if not len(near):
            yield 0.01
            continue
        closest = trimesh.triangles.closest_point(triangles[near], np.tile(point, (len(near), 1)))
        yield np.linalg.norm(closest - point, axis=1).min() / 1000


def parsed(path):
    """The description's root; some use prefixes that they don't declare."""
    return lxml.etree.parse(path, lxml.etree.XMLParser(recover=True, remove_comments=True)).getroot()


def without_visuals(root):
    for link in root.findall("link"):
        for visual in link.findall("visual"):
            link.remove(visual)
    return lxml.etree.tostring(root)


@pytest.fixture(params=ROBOTS)
def robot(request, tmp_path):
    """Path of a description, and the folder that is searched for its meshes."""
    base, urdf, meshes, *package = ROBOTS[request.param]
    if base is None:
        pytest.skip("its package is not installed: tests/robots/requirements.txt")
    if not package:
        return base / urdf, base / meshes
    (tmp_path / package[0]).symlink_to(base / meshes)
    return base / urdf, tmp_path


def random_positions(names):
    draws = np.random.default_rng(5).uniform(-1.5, 1.5, (N_CASES, len(names)))
    return [dict(zip(names, map(float, row))) for row in draws]


@pytest.mark.parametrize("model", ["as it is", "collisions alone"])
def test_particles_lie_on_the_meshes_in_proportion_to_their_areas(robot, model, tmp_path):
    path, folder = robot
    root = parsed(path)
    if model == "collisions alone":
        if not root.findall("link/collision"):
            pytest.skip("it has no collision model")
        path = tmp_path / "collisions.urdf"
        path.write_bytes(without_visuals(root))
    told = ask(path, [{}], folder)
    assert not [line for line in told["warnings"] if "mesh" in line], told["warnings"]
    links = {link.get("name"): link for link in root.findall("link")}
    points, names = np.array(told["cases"][0]["points"]), np.array(told["links"])
    assert len(points) == len(names) == N_POINTS
    areas, counts = [], []
    for name in dict.fromkeys(told["links"]):
        triangles = surface_of(folder, links[name])
        if triangles is None:
            continue
        link_from_world = np.linalg.inv(np.reshape(told["cases"][0]["poses"][name], (4, 4)))
        of_link = trimesh.transform_points(points[names == name], link_from_world)
        largest = max(gaps(triangles, of_link))
        assert largest < SURFACE_M, f"{name}: {largest} m"
        areas.append(trimesh.triangles.area(triangles).sum())
        counts.append(len(of_link))
    if model == "as it is":
        assert len(counts) > 0, "no link of meshes"
    if len(counts) > 1:
        expected = np.array(areas) / sum(areas) * sum(counts)
        assert np.abs(expected - counts).max() < 2.5, (expected, counts)


def test_link_poses_are_those_of_yourdfpy(robot):
    path, _ = robot
    names = ask(path, [])["joints"]
    positions = random_positions(names)
    told = ask(path, positions)
    other = yourdfpy.URDF.load(str(path), load_meshes=False, build_scene_graph=True)
    n_links = 0
    for case, at in zip(told["cases"], positions):
        other.update_cfg(at)
        for link, found in case["poses"].items():
            expected = other.get_transform(link)
            np.testing.assert_allclose(np.reshape(found, (4, 4)), expected, atol=POSE_M)
            n_links += 1
    assert n_links == N_CASES * len(other.link_map)
