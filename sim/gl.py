"""The choice of an OpenGL backend for rendering without a screen."""

import ctypes.util
import os

REMEDY = (
    "rendering needs OpenGL without a screen, and neither OSMesa nor EGL was found: "
    "install OSMesa (Debian, Ubuntu: apt-get install libosmesa6) or EGL "
    "(apt-get install libegl1 libgl1-mesa-dri), or name a backend in MUJOCO_GL"
)


def select() -> None:
    """Sets MUJOCO_GL where nobody did: OSMesa (no driver needed), else EGL, else off."""
    if os.environ.get("MUJOCO_GL"):
        return
    if ctypes.util.find_library("OSMesa"):
        backend = "osmesa"
    elif ctypes.util.find_library("EGL"):
        backend = "egl"
    else:
        backend = "disable"
    os.environ["MUJOCO_GL"] = backend
    if backend != "disable":
        os.environ.setdefault("PYOPENGL_PLATFORM", backend)


def problem() -> str | None:
    """Why this machine can't render, with the remedy; None where it can."""
    if os.environ["MUJOCO_GL"] in ("disable", "off", "0", "false"):
        return REMEDY
    try:
        import mujoco

        context = mujoco.GLContext(16, 16)
        context.make_current()
        context.free()
    except Exception as error:  # each backend fails in its own way
        return f"{REMEDY} (MUJOCO_GL={os.environ['MUJOCO_GL']}: {error})"
    return None
