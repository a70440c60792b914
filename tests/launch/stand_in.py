"""Stands in for `launch` and `launch_ros` where they are not installed: records what is made."""

from __future__ import annotations

import sys
import types


class Made:
    """Anything that a launch file makes: the values it was made with."""

    def __init__(self, *values, **named):
        self.values = values
        self.named = named


class DeclareLaunchArgument(Made):
    def __init__(self, name, **named):
        super().__init__(name, **named)
        self.name = name
        self.description = named["description"]
        self.choices = named["choices"]


class LaunchDescription:
    def __init__(self, entities):
        self.entities = entities


def install() -> None:
    """Puts the modules where `import` finds them."""
    kinds = {name: type(name, (Made,), {}) for name in ("ExecuteProcess", "OpaqueFunction", "Shutdown")}
    contents = {
        "launch": {"LaunchDescription": LaunchDescription},
        "launch.actions": {"DeclareLaunchArgument": DeclareLaunchArgument, **kinds},
        "launch_ros": {},
        "launch_ros.actions": {"Node": type("Node", (Made,), {})},
    }
    for name, content in contents.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        sys.modules[name] = module
