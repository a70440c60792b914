"""Starts the Forecloud node: ros2 launch forecloud forecloud.launch.py cameras:=camera.

An argument that is given overrides the parameter files; an empty one does not. One file may hold parameters
of config/forecloud.yaml and of config/advanced.yaml; to keep them apart, name both:

    ros2 launch forecloud forecloud.launch.py params:=my.yaml,my_advanced.yaml

docs/src/guide/cameras.md has a line for each family of cameras.
"""

import os
from pathlib import Path

from ament_index_python.packages import (
    PackageNotFoundError,
    get_package_prefix,
    get_package_share_directory,
)
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction, Shutdown
from launch_ros.actions import Node

NODE = "forecloud"
RELAY = "forecloud_plan_relay"
INPUTS = ("images", "compressed", "points")
LOG_LEVELS = ("", "error", "warn", "info", "debug", "trace")
# Fast DDS reads the first one up to version 2 (Humble, Jazzy), the second one from version 3 on.
PROFILE_VARIABLES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
# Cameras whose clouds the RViz layout shows.
LAYOUT_CAMERAS = ("camera_left", "camera_right")

# Where drivers publish what the node looks for below the camera's name; a topic that is not named
# here has the same name on both sides.
DRIVERS = {
    "realsense": {
        "depth/image_raw": "aligned_depth_to_color/image_raw",
        "points": "depth/color/points",
    },
    "orbbec": {"points": "depth_registered/points"},
    "azure_kinect": {
        "color/image_raw": "rgb/image_raw",
        "color/camera_info": "rgb/camera_info",
        "depth/image_raw": "depth_to_rgb/image_raw",
        "points": "points2",
    },
    "zed": {
        "color/image_raw": "rgb/color/rect/image",
        "color/camera_info": "rgb/color/rect/camera_info",
        "depth/image_raw": "depth/depth_registered",
        "points": "point_cloud/cloud_registered",
    },
}
# The depth image as the depth sensor took it, for depth_registered:=false.
UNREGISTERED_DEPTH = {
    "realsense": "depth/image_rect_raw",
    "azure_kinect": "depth/image_raw",
}
COMPRESSED = {"color/image_raw": "compressed", "depth/image_raw": "compressedDepth"}

ARGUMENTS = {
    "params": "YAML files of the node's parameters, separated by commas; if two set a parameter, the "
    "last one counts. Empty: the defaults, config/forecloud.yaml (config/advanced.yaml has more)",
    "cameras": "Names of the cameras, separated by commas: what comes before /color/image_raw in "
    "their topics (camera, camera/camera, zed/zed_node, ...)",
    "input": "What the cameras send: images (raw), compressed (JPEG or PNG, and compressedDepth) or "
    "points (PointCloud2). One for all cameras, or one for each, separated by commas",
    "depth_registered": "Whether depth images are registered to the colour images: true or false",
    "driver": "Driver of the cameras, whose topic names the node then uses: " + ", ".join(DRIVERS)
    + ". Empty: the node's own names. Needs `cameras`",
    "remap": "Topics to remap, separated by spaces. They override those of `driver`: "
    'remap:="/camera/color/image_raw:=/rgb/image /joint_states:=/arm/joint_states"',
    "model": "Model file. Empty: the one in the parameter file, or the one that comes with the package",
    "world_frame": "Frame of the predictions: fixed to the ground, z up",
    "workspace_frame": "Frame of tf that the box to predict in is given in and goes with, such as base_link "
    "of a mobile base. Empty: as in the parameter file (world_frame)",
    "level_camera": "Whether to place a single camera by what it sees, if no transform places it "
    "within 2 s: the largest plane in view (table or floor) is taken as level. true or false. Empty: "
    "true if `driver` is given with one camera and no `world_frame`, otherwise as in the parameter file",
    "autostart": "Whether the node configures and activates itself. false: a lifecycle manager does, or "
    "`ros2 lifecycle set`. Empty: as in the parameter file (true)",
    "frame_prefix": "What the names of the robot's links begin with in tf, such as robot_1/: `frame_prefix` "
    "of its robot_state_publisher",
    "namespace": "Namespace of the node, of the topics that it publishes, and of those that it "
    "subscribes to, except /tf, /tf_static, and cameras whose names begin with a slash",
    "rviz": "Whether to start rviz2 with config/forecloud.rviz: true or false",
    "relay": "Controllers whose goals the plan relay passes on and publishes on planned_joints, "
    "separated by commas: joint_trajectory_controller,... Empty: those of `relay_params`, or no relay",
    "relay_params": "YAML file of the relay's parameters, for grippers and speed scaling. Empty: "
    "config/plan_relay.yaml",
    "bag": "Bag to play with `ros2 bag play --clock`; this sets the node's use_sim_time to true",
    "bag_args": 'More arguments for `ros2 bag play`: bag_args:="--rate 0.5 --loop"',
    "dds_profile": "Fast DDS profile for large messages. Empty: the one that this shell's "
    "FASTRTPS_DEFAULT_PROFILES_FILE names, or else config/fastdds_large_clouds.xml. none: no "
    "profile. The camera drivers need it too, because the sender's profile is what matters",
    "log_level": "Level of the node's log: error, warn, info, debug or trace. Empty: as RUST_LOG "
    "says, or else info",
}


def generate_launch_description():
    choices = {
        "depth_registered": ["", "true", "false"],
        "driver": ["", *DRIVERS],
        "level_camera": ["", "true", "false"],
        "autostart": ["", "true", "false"],
        "rviz": ["true", "false"],
        "log_level": list(LOG_LEVELS),
    }
    declared = [
        DeclareLaunchArgument(
            name,
            default_value="false" if name == "rviz" else "",
            description=description,
            choices=choices.get(name),
        )
        for name, description in ARGUMENTS.items()
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])


def start(context):
    """The processes to start, with the arguments as the user gave them."""
    given = {name: context.launch_configurations[name].strip() for name in ARGUMENTS}
    share = Path(get_package_share_directory("forecloud"))
    environment = profile(given["dds_profile"], share)
    log_level = {"RUST_LOG": given["log_level"]} if given["log_level"] else {}
    cameras = names("cameras", given["cameras"])
    remaps = pairs(given["remap"]) + driver_remaps(given, cameras)
    sim_time = {"use_sim_time": True} if given["bag"] else {}

    node = Node(
        package="forecloud",
        executable="forecloud_node",
        name=NODE,
        namespace=given["namespace"],
        parameters=[
            *parameter_files(given["params"], share),
            *([overrides] if (overrides := parameters(given, cameras) | sim_time) else []),
        ],
        remappings=remaps,
        additional_env=environment | log_level,
        output="screen",
        on_exit=Shutdown(reason="the node has ended"),
    )
    actions = [node]
    if given["relay"] or given["relay_params"]:
        actions.append(relay(given, sim_time, share, environment | log_level))
    if given["rviz"] == "true":
        actions.append(rviz(given, cameras, remaps, sim_time, share, environment))
    if given["bag"]:
        actions.append(play(given["bag"], given["bag_args"], environment))
    elif given["bag_args"]:
        raise RuntimeError("`bag_args` is given, but no `bag`")
    return actions


def parameter_files(text, share):
    """The files that `params` names, or the one with the defaults; the last ones count most."""
    found = [existing_file("params", path) for path in names("params", text)]
    return found or [existing_file("params", share / "config" / "forecloud.yaml")]


def parameters(given, cameras):
    """The parameters that the arguments set; they override those of the parameter files."""
    inputs = names("input", given["input"])
    if wrong := [name for name in inputs if name not in INPUTS]:
        raise RuntimeError(f"`input` is one of {', '.join(INPUTS)}, not {', '.join(wrong)}")
    found = {"cameras": cameras, "camera_inputs": inputs}
    found |= {name: given[name] for name in ("world_frame", "workspace_frame", "frame_prefix")}
    if given["depth_registered"]:
        found["depth_registered"] = given["depth_registered"] == "true"
    is_only = len(cameras) == 1 and given["driver"] and not given["world_frame"]
    if level_camera := given["level_camera"] or ("true" if is_only else ""):
        found["level_camera"] = level_camera == "true"
    if given["autostart"]:
        found["autostart"] = given["autostart"] == "true"
    if given["model"]:
        found["model"] = str(existing_file("model", given["model"]))
    return {name: value for name, value in found.items() if value not in ("", [])}


def names(argument, text):
    """The names in a list with commas."""
    found = [name.strip() for name in text.split(",")] if text else []
    if "" in found:
        raise RuntimeError(f"`{argument}` has an empty name: '{text}'")
    return found


def pairs(text):
    """(old, new) of each remap in `text`."""
    found = [tuple(remap.split(":=")) for remap in text.split()]
    for remap in found:
        if len(remap) != 2 or "" in remap:
            raise RuntimeError(f"`remap` must be OLD:=NEW, separated by spaces, not '{':='.join(remap)}'")
    return found


def driver_remaps(given, cameras):
    """(old, new) of each topic of the cameras, raw and compressed, that the driver names otherwise."""
    driver = given["driver"]
    if not driver:
        return []
    if not cameras:
        raise RuntimeError("`driver` needs `cameras`: the names that its topics begin with")
    topics = dict(DRIVERS[driver])
    if given["depth_registered"] == "false":
        topics["depth/image_raw"] = UNREGISTERED_DEPTH.get(driver, topics.get("depth/image_raw"))
    for topic, transport in COMPRESSED.items():
        if topics.get(topic):
            topics[f"{topic}/{transport}"] = f"{topics[topic]}/{transport}"
    # Relative names, as the node's: in its namespace unless the camera's name begins with a slash.
    return [
        (f"{camera}/{old}", f"{camera}/{new}")
        for camera in cameras
        for old, new in topics.items()
        if new and old != new
    ]


def relay(given, sim_time, share, environment):
    """The plan relay between a client, such as MoveIt, and the controllers."""
    controllers = names("relay", given["relay"])
    overrides = ({"controllers": controllers} if controllers else {}) | sim_time
    file = given["relay_params"] or share / "config" / "plan_relay.yaml"
    return Node(
        package="forecloud",
        executable=RELAY,
        name=RELAY,
        namespace=given["namespace"],
        parameters=[existing_file("relay_params", file), *([overrides] if overrides else [])],
        remappings=pairs(given["remap"]),
        additional_env=environment,
        output="screen",
    )


def existing_file(argument, path):
    """`path`, with ~ replaced, or an error that names the argument."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise RuntimeError(f"`{argument}`: there is no file {path}")
    return path


def profile(wanted, share):
    """The environment in which Fast DDS sends and takes large messages."""
    if wanted == "none" or (not wanted and any(map(os.environ.get, PROFILE_VARIABLES))):
        return {}
    path = existing_file("dds_profile", wanted or share / "config" / "fastdds_large_clouds.xml")
    return {name: str(path.absolute()) for name in PROFILE_VARIABLES}


def require_package(argument, package, remedy):
    try:
        get_package_prefix(package)
    except PackageNotFoundError:
        distro = os.environ.get("ROS_DISTRO", "DISTRO")
        remedy = remedy.replace("DISTRO", distro)
        raise RuntimeError(
            f"`{argument}` needs the package {package}, which was not found. Remedy: {remedy}"
        ) from None


def rviz(given, cameras, remaps, sim_time, share, environment):
    """RViz with the layout, whose topics are turned to the node's and the cameras'."""
    require_package("rviz", "rviz2", "apt install ros-DISTRO-rviz2, or rviz:=false")
    namespace = given["namespace"].strip("/")

    def full(name):
        return name if name.startswith("/") else "/".join(["", *filter(None, [namespace, name])])

    replaced = {full(old): full(new) for old, new in reversed(remaps)}
    topics = {f"/{NODE}/{name}": full(f"{NODE}/{name}") for name in ("predicted_points", "motion")}
    topics["/robot_description"] = full("robot_description")
    topics |= {f"/{a}/points": full(f"{b}/points") for a, b in zip(LAYOUT_CAMERAS, cameras)}
    shown = {name: replaced.get(topic, topic) for name, topic in topics.items()}
    fixed_frame = ["-f", given["world_frame"]] if given["world_frame"] else []
    return Node(
        package="rviz2",
        executable="rviz2",
        arguments=["-d", str(share / "config" / "forecloud.rviz"), *fixed_frame],
        parameters=[sim_time] if sim_time else [],
        remappings=[pair for pair in shown.items() if pair[0] != pair[1]],
        additional_env=environment,
    )


def play(bag, more, environment):
    """`ros2 bag play`. The bag goes before --clock, which would take it for a frequency."""
    require_package(
        "bag", "ros2bag", "apt install ros-DISTRO-ros2bag ros-DISTRO-rosbag2-storage-mcap, or play "
        "the bag elsewhere: ros2 bag play BAG --clock"
    )
    path = Path(bag).expanduser()
    if not path.exists():
        raise RuntimeError(f"`bag`: there is no {path}")
    return ExecuteProcess(
        cmd=["ros2", "bag", "play", str(path), "--clock", *more.split()],
        additional_env=environment,
        output="screen",
    )
