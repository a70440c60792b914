"""Pictures of an episode: colour, clean depth and body ids of each camera."""

from dataclasses import dataclass

import mujoco
import numpy as np

from sim.scene import HEIGHT, WIDTH, Camera
from sim.truth import Truth

ZNEAR, ZFAR = 0.05, 8.0  # m, as in the model (its extent is 1 m)


@dataclass
class View:
    """What a camera saw. Rows from the top; `depth` in mm along the optical axis, 0 = none."""

    colour: np.ndarray  # rows × columns × 3, uint8
    depth: np.ndarray  # rows × columns, uint16
    body_ids: np.ndarray  # rows × columns, uint16, as in Truth


class Painter:
    """Draws a model off screen. Close it before making the next.

    `scale`: metres in a unit of the model.
    """

    def __init__(self, model: mujoco.MjModel, truth: Truth, scale: float = 1.0):
        self.model, self.truth, self.scale = model, truth, scale
        self.gl = mujoco.GLContext(model.vis.global_.offwidth, model.vis.global_.offheight)
        self.gl.make_current()
        self.context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self.context)
        self.context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR
        self.size = (WIDTH, HEIGHT)
        self.scene = mujoco.MjvScene(model, 200 + model.ngeom + (truth.faces.count if truth.faces else 0))
        self.option = mujoco.MjvOption()
        self.option.flexgroup[:] = 0  # a cloth is drawn here, triangle by triangle
        self.camera = mujoco.MjvCamera()
        self.camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self.scene.flags[flag] = 0

    def __enter__(self) -> "Painter":
        return self

    def __exit__(self, *_) -> None:
        self.context.free()
        self.gl.free()

    def view(self, data: mujoco.MjData, camera: Camera) -> View:
        """Draws the state of `data`, whose poses must be up to date (mj_forward)."""
        return View(self.colour(data, camera), *self.depth(data, camera, anew=False))

    def colour(self, data: mujoco.MjData, camera: Camera) -> np.ndarray:
        """The colour picture alone."""
        self.look(data, camera)
        return self.read(segments=False)[0]

    def depth(self, data: mujoco.MjData, camera: Camera, anew: bool = True):
        """Depth and body ids alone; `anew`: not of what was drawn last."""
        if anew:
            self.look(data, camera)
        marks, nearness = self.read(segments=True)
        metres = ZNEAR * ZFAR / (ZNEAR + nearness.astype(np.float64) * (ZFAR - ZNEAR))
        depth = np.where(nearness > 0, np.rint(1000 * self.scale * metres), 0).astype(np.uint16)
        return depth, self.body_ids(marks)

    def look(self, data: mujoco.MjData, camera: Camera) -> None:
        """Sets the scene as a camera sees it."""
        self.size = (camera.width, camera.height)
        self.camera.fixedcamid = self.model.camera(camera.name).id
        mujoco.mjv_updateScene(
            self.model, data, self.option, None, self.camera, mujoco.mjtCatBit.mjCAT_ALL, self.scene
        )
        if self.truth.faces:
            self.add_faces(data)

    def add_faces(self, data: mujoco.MjData) -> None:
        """Adds the triangles of a cloth to the scene, each turned to the camera."""
        eye = data.cam_xpos[self.camera.fixedcamid]
        faces = self.truth.faces
        a, b, c = faces.points(data)
        normal = np.cross(b - a, c - a)
        away = np.einsum("ni,ni->n", normal, eye - a) < 0
        b[away], c[away], normal[away] = c[away].copy(), b[away].copy(), -normal[away]
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        frames = np.stack([b - a, c - a, normal], axis=2)
        for face in range(faces.count):
            colour = np.array([*self.truth.soft.colours[faces.tone[face]], 1], np.float32)
            geom = self.scene.geoms[self.scene.ngeom]
            mujoco.mjv_initGeom(
                geom, mujoco.mjtGeom.mjGEOM_TRIANGLE, np.ones(3), a[face],
                frames[face].reshape(9), colour,
            )
            geom.segid = self.scene.ngeom
            geom.objtype, geom.objid = mujoco.mjtObj.mjOBJ_FLEX, self.truth.solid + face
            self.scene.ngeom += 1

    def read(self, segments: bool) -> tuple[np.ndarray, np.ndarray]:
        """Draws the scene; colour and reversed depth (1 near, 0 far)."""
        self.scene.flags[mujoco.mjtRndFlag.mjRND_SEGMENT] = segments
        self.scene.flags[mujoco.mjtRndFlag.mjRND_IDCOLOR] = segments
        width, height = self.size
        rect = mujoco.MjrRect(0, 0, width, height)
        mujoco.mjr_render(rect, self.scene, self.context)
        colour = np.empty((height, width, 3), np.uint8)
        depth = np.empty((height, width), np.float32)
        mujoco.mjr_readPixels(colour, depth, rect, self.context)
        return np.ascontiguousarray(colour[::-1]), depth[::-1]

    def body_ids(self, marks: np.ndarray) -> np.ndarray:
        """Body of each pixel from the picture of segment numbers; 0 (the world) where nothing is."""
        weights = np.array([1, 1 << 8, 1 << 16], np.uint32)
        numbers = marks.astype(np.uint32) @ weights
        bodies = np.zeros(self.scene.ngeom + 1, np.uint16)
        for geom in self.scene.geoms[: self.scene.ngeom]:
            if geom.segid >= 0 and geom.objtype == mujoco.mjtObj.mjOBJ_GEOM:
                bodies[geom.segid + 1] = self.model.geom_bodyid[geom.objid]
            elif geom.objtype == mujoco.mjtObj.mjOBJ_FLEX:
                bodies[geom.segid + 1] = geom.objid
        return bodies[numbers]
