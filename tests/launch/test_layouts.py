"""The layouts of RViz and Foxglove show topics and fields that exist."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from conftest import ROOT

CAMERAS = ("camera_left", "camera_right")
RVIZ_CLASSES = {
    "PointCloud2": "sensor_msgs/PointCloud2",
    "MarkerArray": "visualization_msgs/MarkerArray",
    "RobotModel": "std_msgs/String",
}


def known_topics() -> set[str]:
    """Topics that the node publishes or subscribes, from its source."""
    files = [*ROOT.glob("crates/node/src/**/*.rs"), *ROOT.glob("src/vision/frames/**/*.rs")]
    sources = [path.read_text() for path in files if path.name != "tests.rs"]
    text = "\n".join(source.split("#[cfg(test)]\nmod tests {")[0] for source in sources)
    topics = set(re.findall(r'"((?:~?/[a-z_]+)+)"', text))
    below_camera = re.findall(r'"/\{name\}((?:/[a-z_]+)+)', text)
    topics |= {f"/{name}{topic}" for name in CAMERAS for topic in below_camera}
    return {topic.replace("~", "/forecloud", 1) for topic in topics}


def rviz() -> dict:
    return yaml.safe_load((ROOT / "config" / "forecloud.rviz").read_text())["Visualization Manager"]


def rviz_displays() -> dict[str, dict]:
    return {display["Name"]: display for display in rviz()["Displays"]}


def rviz_topics() -> set[str]:
    found = (d.get("Topic") or d.get("Description Topic") for d in rviz()["Displays"])
    return {topic["Value"] for topic in found if topic}


def foxglove() -> dict:
    return json.loads((ROOT / "config" / "forecloud.foxglove.json").read_text())


def foxglove_topics() -> set[str]:
    topics = set()
    for panel in foxglove()["configById"].values():
        topics |= panel.get("topics", {}).keys()
        topics |= {panel[key] for key in ("topicToRender",) if key in panel}
        topics |= {path["value"].split(".")[0] for path in panel.get("paths", [])}
    return topics


def test_the_known_topics_are_found():
    assert {"/forecloud/prediction", "/joint_states", "/camera_left/color/image_raw"} <= known_topics()
    assert "/forecloud/nonsense" not in known_topics()


@pytest.mark.parametrize("topics", [rviz_topics(), foxglove_topics()], ids=["rviz", "foxglove"])
def test_topics_are_the_nodes(topics):
    assert "/forecloud/predicted_points" in topics
    assert topics <= known_topics()


def test_rviz_displays_take_the_types_of_their_topics():
    displays = rviz_displays()
    classes = {name: display["Class"].split("/") for name, display in displays.items()}
    assert {package for package, _ in classes.values()} == {"rviz_default_plugins"}
    types = {
        "points": "PointCloud2",
        "occupied_points": "PointCloud2",
        "motion": "MarkerArray",
        "contact_markers": "MarkerArray",
        "object_markers": "MarkerArray",
        "robot_description": "RobotModel",
    }
    for name, display in displays.items():
        if topic := display.get("Topic") or display.get("Description Topic"):
            last = topic["Value"].rsplit("/", 1)[1].removeprefix("predicted_")
            assert classes[name][1] == types[last], name
    assert rviz()["Global Options"]["Fixed Frame"] == "world"


def test_rviz_hears_what_is_latched_and_what_is_best_effort():
    displays = rviz_displays()
    assert displays["Robot"]["Description Topic"]["Durability Policy"] == "Transient Local"
    for name, display in displays.items():
        if name.startswith("Cloud of"):
            # A reliable reader gets nothing from a best-effort driver.
            assert display["Topic"]["Reliability Policy"] == "Best Effort"


def test_a_prediction_is_coloured_by_a_field_that_it_has():
    source = (ROOT / "crates" / "node" / "src" / "publish.rs").read_text()
    names = re.search(r'let names = \[("x".*?)\];', source, re.DOTALL).group(1)
    fields = set(re.findall(r'"(\w+)"', names))
    by_step = rviz_displays()["Prediction, step by step"]
    assert by_step["Color Transformer"] == "Intensity"
    three_d = next(p for name, p in foxglove()["configById"].items() if name.startswith("3D!"))
    predicted = three_d["topics"]["/forecloud/predicted_points"]
    assert {by_step["Channel Name"], predicted["colorField"]} == {"step"} <= fields


def test_what_will_be_occupied_is_coloured_by_a_field_that_it_has():
    source = (ROOT / "crates" / "node" / "src" / "occupied.rs").read_text()
    fields = set(re.findall(r'"(\w+)"', re.search(r"const FIELDS.*?= \[(.*?)\];", source).group(1)))
    display = rviz_displays()["What will be occupied, by time"]
    three_d = next(p for name, p in foxglove()["configById"].items() if name.startswith("3D!"))
    shown = three_d["topics"]["/forecloud/occupied_points"]
    assert {display["Channel Name"], shown["colorField"]} == {"time"} <= fields


def test_plots_show_fields_of_the_timing_message():
    message = (ROOT / "msg" / "Timing.msg").read_text()
    fields = set(re.findall(r"^\w+ (\w+)$", message, re.MULTILINE))
    paths = [p["value"] for c in foxglove()["configById"].values() for p in c.get("paths", [])]
    # std_msgs/Float64.
    paths.remove("/forecloud/speed_scale.data")
    assert "/forecloud/timing.latency_ms" in paths
    assert {path.removeprefix("/forecloud/timing.") for path in paths} <= fields


def test_foxgloves_panels_are_all_laid_out():
    def leaves(node):
        if isinstance(node, str):
            return [node]
        assert node["direction"] in ("row", "column")
        return leaves(node["first"]) + leaves(node["second"])

    layout = foxglove()
    assert sorted(leaves(layout["layout"])) == sorted(layout["configById"])
    kinds = {name.split("!")[0] for name in layout["configById"]}
    assert kinds == {"3D", "Plot", "DiagnosticSummary", "RosOut"}
