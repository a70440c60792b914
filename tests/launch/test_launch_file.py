"""Arguments of the launch file → what the node, RViz and the bag are started with."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT

DEFAULTS = ROOT / "config" / "forecloud.yaml"
ADVANCED = ROOT / "config" / "advanced.yaml"
PROFILE = str(ROOT / "config" / "fastdds_large_clouds.xml")


def first_match(remaps, topic, namespace=""):
    """The name that rcl gives a topic: the first rule that names it decides."""

    def full(name):
        return name if name.startswith("/") else f"{namespace}/{name}"

    return next((full(new) for old, new in remaps if full(old) == topic), topic)


def test_arguments_are_declared_with_descriptions_and_are_empty_by_default(start):
    entities = start.module.generate_launch_description().entities
    declared = {entity.name: entity for entity in entities if hasattr(entity, "choices")}
    assert declared.keys() == start.module.ARGUMENTS.keys()
    assert all(declared[name].description for name in declared)
    assert set(declared["driver"].choices) == {"", *start.module.DRIVERS}
    assert list(declared["rviz"].choices) == ["true", "false"]


def test_empty_arguments_leave_to_the_parameter_file_what_it_says(start):
    node = start.node()
    assert node["parameters"] == [DEFAULTS]
    assert node["remappings"] == []
    assert node["namespace"] == ""
    assert "RUST_LOG" not in node["additional_env"]
    assert start().keys() == {"forecloud_node"}


def test_arguments_go_before_the_parameter_file(start, tmp_path):
    mine = tmp_path / "mine.yaml"
    model = tmp_path / "mine.safetensors"
    mine.touch()
    model.touch()
    node = start.node(
        params=str(mine), cameras="left, right", input="points", depth_registered="false",
        model=str(model), world_frame="base_link", namespace="robot1", log_level="debug",
        autostart="false", frame_prefix="robot1/",
    )
    assert node["parameters"] == [
        mine,
        {
            "cameras": ["left", "right"],
            "camera_inputs": ["points"],
            "depth_registered": False,
            "autostart": False,
            "model": str(model),
            "world_frame": "base_link",
            "frame_prefix": "robot1/",
        },
    ]
    assert node["namespace"] == "robot1"
    assert node["additional_env"]["RUST_LOG"] == "debug"


def test_params_names_one_file_or_several_of_which_the_last_counts(start, tmp_path):
    files = [tmp_path / "mine.yaml", tmp_path / "my_advanced.yaml"]
    for file in files:
        file.touch()
    assert start.node(params=f"{files[0]}, {files[1]}")["parameters"] == files
    # Arguments count more than any file.
    node = start.node(params=",".join(map(str, files)), world_frame="map")
    assert node["parameters"] == [*files, {"world_frame": "map"}]
    both = start.node(params=f"{DEFAULTS},{ADVANCED}")["parameters"]
    assert both == [DEFAULTS, ADVANCED]


def test_no_parameter_is_in_both_files_and_the_first_one_stays_short():
    basic, advanced = (
        re.findall(r"^    (\w+): ", file.read_text(), re.MULTILINE) for file in (DEFAULTS, ADVANCED)
    )
    assert 10 < len(basic) <= 20 and advanced
    assert len(set(basic + advanced)) == len(basic + advanced)


def test_the_parameters_that_it_sets_are_the_nodes(start, tmp_path):
    model = tmp_path / "mine.safetensors"
    model.touch()
    node = start.node(
        cameras="a", input="images", depth_registered="true", model=str(model), world_frame="world"
    )
    known = set(re.findall(r"^ +#? ?(\w+):", DEFAULTS.read_text(), re.MULTILINE))
    assert node["parameters"][1].keys() <= known


def test_inputs_are_one_for_all_cameras_or_one_for_each(start):
    for given, inputs in [("points", ["points"]), ("images, points", ["images", "points"])]:
        assert start.node(input=given)["parameters"][1] == {"camera_inputs": inputs}


@pytest.mark.parametrize("driver", ["realsense", "orbbec", "azure_kinect", "zed"])
def test_drivers_topic_names_are_those_of_its_page(start, driver):
    remaps = start.node(driver=driver, cameras="a/b,c")["remappings"]
    page = (ROOT / "docs" / "src" / "guide" / f"{driver}.md").read_text()
    assert remaps
    assert len({old for old, _ in remaps}) == len(remaps)
    for old, new in remaps:
        camera = next(name for name in ("a/b/", "c/") if old.startswith(name))
        assert new.startswith(camera)
        assert f"`{new.removeprefix(camera)}`" in page, new


def test_a_drivers_compressed_topics_are_remapped_too(start):
    remaps = start.node(driver="zed", cameras="zed/zed_node")["remappings"]
    assert first_match(remaps, "/zed/zed_node/depth/image_raw/compressedDepth") == (
        "/zed/zed_node/depth/depth_registered/compressedDepth"
    )
    assert first_match(remaps, "/zed/zed_node/color/image_raw/compressed") == (
        "/zed/zed_node/rgb/color/rect/image/compressed"
    )


@pytest.mark.parametrize(
    "driver, depth",
    [
        ("realsense", "/cam/depth/image_rect_raw"),
        ("orbbec", "/cam/depth/image_raw"),
        ("azure_kinect", "/cam/depth/image_raw"),
        ("zed", "/cam/depth/depth_registered"),
    ],
)
def test_depth_that_is_not_registered(start, driver, depth):
    remaps = start.node(driver=driver, cameras="cam", depth_registered="false")["remappings"]
    assert first_match(remaps, "/cam/depth/image_raw") == depth
    assert first_match(remaps, "/cam/depth/image_raw/compressedDepth") == f"{depth}/compressedDepth"
    assert all(old != new for old, new in remaps)


def test_cameras_are_in_the_namespace_unless_their_names_begin_with_a_slash(start):
    node = start.node(driver="orbbec", cameras="a,/b", namespace="robot1")
    remaps = node["remappings"]
    assert first_match(remaps, "/robot1/a/points", "/robot1") == "/robot1/a/depth_registered/points"
    assert first_match(remaps, "/b/points", "/robot1") == "/b/depth_registered/points"


def test_an_only_camera_of_a_driver_is_placed_by_what_it_sees(start):
    def level(**arguments):
        overrides = start.node(**arguments)["parameters"][1:]
        return overrides[0].get("level_camera") if overrides else None

    assert level(driver="realsense", cameras="camera/camera") is True
    assert level(driver="realsense", cameras="camera/camera", level_camera="false") is False
    # Two cameras, a world frame that others know, or nothing said of drivers: as the file says.
    assert level(driver="realsense", cameras="a,b") is None
    assert level(driver="realsense", cameras="a", world_frame="map") is None
    assert level(cameras="a") is None
    assert level(cameras="a", level_camera="true") is True


def test_remaps_of_the_user_go_before_those_of_the_driver(start):
    node = start.node(
        driver="realsense", cameras="cam", remap="/cam/depth/image_raw:=/mine  /joint_states:=/arm/j"
    )
    assert first_match(node["remappings"], "/cam/depth/image_raw") == "/mine"
    assert first_match(node["remappings"], "/joint_states") == "/arm/j"
    assert first_match(node["remappings"], "/cam/points") == "/cam/depth/color/points"


@pytest.mark.parametrize(
    "given, message",
    [
        ({"input": "pictures"}, "`input` is one of images, compressed, points, not pictures"),
        ({"input": "images,"}, "`input` has an empty name"),
        ({"cameras": "a,,b"}, "`cameras` has an empty name"),
        ({"driver": "zed"}, "`driver` needs `cameras`"),
        ({"remap": "/a=/b"}, "`remap` must be OLD:=NEW"),
        ({"remap": "/a:=/b:=/c"}, "`remap` must be OLD:=NEW"),
        ({"remap": "/a:="}, "`remap` must be OLD:=NEW"),
        ({"params": "/nowhere/a.yaml"}, "`params`: there is no file /nowhere/a.yaml"),
        ({"params": f"{DEFAULTS},/nowhere/a.yaml"}, "`params`: there is no file /nowhere/a.yaml"),
        ({"params": f"{DEFAULTS},"}, "`params` has an empty name"),
        ({"relay": "arm,"}, "`relay` has an empty name"),
        ({"relay_params": "/nowhere/a.yaml"}, "`relay_params`: there is no file /nowhere/a.yaml"),
        ({"model": "/nowhere/a.safetensors"}, "`model`: there is no file"),
        ({"dds_profile": "/nowhere/a.xml"}, "`dds_profile`: there is no file"),
        ({"bag_args": "--loop"}, "`bag_args` is given, but no `bag`"),
        ({"bag": "tests/data/tiny_push"}, "`bag` needs the package ros2bag"),
        ({"rviz": "true"}, "`rviz` needs the package rviz2"),
    ],
)
def test_refuses_with_the_argument_and_the_remedy(start, given, message):
    with pytest.raises(RuntimeError, match=re.escape(message)):
        start(**given)


def test_home_is_put_in(start, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.yaml").touch()
    assert start.node(params="~/mine.yaml")["parameters"][0] == tmp_path / "mine.yaml"


def test_bag_goes_before_clock_and_sets_sim_time(start, tmp_path):
    start.packages.add("ros2bag")
    started = start(bag=str(tmp_path), bag_args="--rate 0.5 --loop", cameras="a")
    # `--clock BAG` would be read as a frequency.
    assert started["ros2"].named["cmd"] == (
        ["ros2", "bag", "play", str(tmp_path), "--clock", "--rate", "0.5", "--loop"]
    )
    assert started["forecloud_node"].named["parameters"][1] == {
        "cameras": ["a"],
        "use_sim_time": True,
    }
    # The bag is played with the DDS profile: it is what sends the images.
    assert started["ros2"].named["additional_env"].keys() == set(start.module.PROFILE_VARIABLES)
    with pytest.raises(RuntimeError, match="`bag`: there is no /nowhere"):
        start(bag="/nowhere")


def test_relay_names_controllers_in_the_nodes_namespace(start, tmp_path):
    assert "forecloud_plan_relay" not in start()
    started = start(
        relay="arm_controller, /other/hand", namespace="robot1", log_level="debug",
        remap="/robot1/planned_joints:=/plans", driver="orbbec", cameras="cam",
    )
    relay = started["forecloud_plan_relay"].named
    assert relay["parameters"] == [
        ROOT / "config" / "plan_relay.yaml",
        {"controllers": ["arm_controller", "/other/hand"]},
    ]
    # Both go by the same name of the topic between them.
    assert relay["remappings"] == [("/robot1/planned_joints", "/plans")]
    assert relay["remappings"][0] in started["forecloud_node"].named["remappings"]
    assert (relay["namespace"], relay["additional_env"]["RUST_LOG"]) == ("robot1", "debug")
    # The node goes on without it.
    assert "on_exit" not in relay

    mine = tmp_path / "mine.yaml"
    mine.touch()
    assert start(relay_params=str(mine))["forecloud_plan_relay"].named["parameters"] == [mine]
    start.packages.add("ros2bag")
    with_bag = start(relay="arm", relay_params=str(mine), bag=str(tmp_path))
    assert with_bag["forecloud_plan_relay"].named["parameters"] == [
        mine,
        {"controllers": ["arm"], "use_sim_time": True},
    ]


def test_rviz_shows_the_topics_of_the_node_and_the_cameras(start):
    start.packages.add("rviz2")
    rviz = start(
        rviz="true",
        cameras="camera/camera,/other",
        driver="realsense",
        namespace="/robot1",
        world_frame="base",
    )["rviz2"].named
    assert rviz["arguments"] == ["-d", str(ROOT / "config" / "forecloud.rviz"), "-f", "base"]
    assert dict(rviz["remappings"]) == {
        "/camera_left/points": "/robot1/camera/camera/depth/color/points",
        "/camera_right/points": "/other/depth/color/points",
        "/forecloud/predicted_points": "/robot1/forecloud/predicted_points",
        "/forecloud/motion": "/robot1/forecloud/motion",
        "/robot_description": "/robot1/robot_description",
    }
    given = {"cameras": "camera_left", "remap": "/robot_description:=/arm/urdf"}
    rviz = start(rviz="true", **given)["rviz2"].named
    assert rviz["remappings"] == [("/robot_description", "/arm/urdf")]
    plain = start(rviz="true")["rviz2"].named
    assert plain["remappings"] == [] and plain["arguments"][2:] == []


def test_dds_profile_is_the_users_if_there_is_one(start, monkeypatch, tmp_path):
    names = start.module.PROFILE_VARIABLES
    assert start.node()["additional_env"] == dict.fromkeys(names, PROFILE)
    assert start.node(dds_profile="none")["additional_env"] == {}
    mine = tmp_path / "mine.xml"
    mine.touch()
    for name in names:
        with monkeypatch.context() as patch:
            patch.setenv(name, "/elsewhere.xml")
            assert start.node()["additional_env"] == {}
            # What is named in the arguments goes before the environment.
            env = start.node(dds_profile=str(mine))["additional_env"]
            assert env == dict.fromkeys(names, str(mine))
