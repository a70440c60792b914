"""Predicted motion as arrows on ~/motion."""

from __future__ import annotations

import math

from conftest import Received, wait_for
from endless import Endless

MAX_ARROWS = 500
MIN_M = 0.002
ARROW, ADD = 0, 0


def test_arrows_lead_from_particles_to_where_they_will_be(ros, recording, start_node):
    start_node("-p", f"motion_min_m:={MIN_M}")
    arrows = Received(ros, "/forecloud/motion", "visualization_msgs/msg/MarkerArray")
    predictions = Received(ros, "/forecloud/prediction", "forecloud/msg/Prediction")
    for received in (arrows, predictions):
        received.wait_for_publisher()
    endless = Endless(ros, recording, period_secs=0.6)

    def pair():
        """Arrows, and the prediction that they are of."""
        by_stamp = {stamp(p): p for p in list(predictions.messages)}
        arrayed = [a.markers for a in list(arrows.messages) if a.markers]
        known = [(m, by_stamp[stamp(m[0])]) for m in arrayed if stamp(m[0]) in by_stamp]
        return known[0] if known else None

    markers, prediction = wait_for(pair, "arrows of a prediction")
    endless.stop()
    moving = ways(prediction)
    assert 0 < len(markers) == min(len(moving), MAX_ARROWS)
    expected = [moving[i * len(moving) // len(markers)] for i in range(len(markers))]
    for i, (marker, (start, end)) in enumerate(zip(markers, expected)):
        assert (marker.ns, marker.id, marker.type, marker.action) == ("motion", i, ARROW, ADD)
        assert marker.header == prediction.header
        assert marker.pose.orientation.w == 1.0
        points = [(p.x, p.y, p.z) for p in marker.points]
        for point, wanted in zip(points, (start, end), strict=True):
            assert math.dist(point, wanted) < 1e-5
        assert math.dist(*points) > 0.99 * MIN_M
        assert marker.lifetime.nanosec == round(2e9 * prediction.step_secs)
        assert marker.color.a == 1.0 and min(marker.scale.x, marker.scale.y, marker.scale.z) > 0


def stamp(message) -> tuple[int, int]:
    return (message.header.stamp.sec, message.header.stamp.nanosec)


def ways(prediction) -> list:
    """Where each particle that moves is, and where it will be."""
    n, steps = prediction.n_particles, prediction.n_steps
    found = []
    for i in range(n):
        start = prediction.positions[3 * i : 3 * i + 3]
        moved = [
            sum(prediction.displacements[3 * (step * n + i) + axis] for step in range(steps))
            for axis in range(3)
        ]
        if math.hypot(*moved) >= MIN_M:
            found.append((tuple(start), tuple(x + dx for x, dx in zip(start, moved))))
    return found


def test_particles_that_hardly_move_have_no_arrow(ros, recording, start_node):
    start_node("-p", "motion_min_m:=5.0")
    arrows = Received(ros, "/forecloud/motion", "visualization_msgs/msg/MarkerArray")
    arrows.wait_for_publisher()
    endless = Endless(ros, recording, period_secs=0.6)
    arrows.wait_for(3)
    endless.stop()
    assert all(not message.markers for message in arrows.messages)
