"""Recordings of two simulated arms that push, tumble, lift and carry things, as rosbag2 MCAP.

Importing the package chooses MuJoCo's OpenGL backend, which must happen before MuJoCo is imported.
"""

from sim import gl

gl.select()
