"""Starts the Forecloud node: ros2 launch forecloud forecloud.launch.py params:=my.yaml."""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, SetEnvironmentVariable
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node


def generate_launch_description():
    share = Path(get_package_share_directory("forecloud"))
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "params",
                default_value=str(share / "config" / "forecloud.yaml"),
                description="YAML file of the node's parameters",
            ),
            DeclareLaunchArgument("namespace", default_value="", description="Namespace of the node"),
            DeclareLaunchArgument(
                "dds_profile",
                default_value=str(share / "config" / "fastdds_large_clouds.xml"),
                description="Fast DDS profile; the camera drivers need it too",
            ),
            SetEnvironmentVariable(
                "FASTRTPS_DEFAULT_PROFILES_FILE", LaunchConfiguration("dds_profile")
            ),
            Node(
                package="forecloud",
                executable="forecloud_node",
                name="forecloud",
                namespace=LaunchConfiguration("namespace"),
                parameters=[LaunchConfiguration("params")],
                output="screen",
            ),
        ]
    )
