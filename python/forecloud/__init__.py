"""Forecloud predicts where every point that RGB-D cameras see will be next, given what the robot is about
to do.

::

    import forecloud as fc

    recording = fc.Recording("data/demo_tumble")
    predictor = fc.Predictor.of(recording)
    for frame in recording:
        if prediction := predictor.step(frame):
            print(frame.stamp, prediction.displacements.shape)   # [steps, particles, 3], metres

World frame: z up, metres; times in seconds (`stamp`) and nanoseconds (`stamp_ns`). `docs/src/guide/python.md` has the
table of all there is.
"""

from __future__ import annotations

from . import errors
from ._native import __version__, n_threads, set_threads
from .ahead import Contact, Contacts, Occupied
from .attention import attention, grf_attention, k_mip_attention
from .errors import ForecloudError
from .graph import Features, Graph, Walks, knn
from .labels import NO_BODY, Flow, Hindsight, Particles, hindsight, particles
from .laplacian import Laplacian
from .masks import Mask, Open, Padding, masks
from .plans import Costs, Found, Goal
from .predictor import KINDS, SITUATIONS, Model, Object, Prediction, Predictor, shipped_model
from .recording import CLASSES, Camera, Frame, Plan, Recording, TrueMotion
from .tool import Table, check, replay, run, train
from .view import show

__all__ = [
    "CLASSES", "Camera", "Contact", "Contacts", "Costs", "Features", "Flow", "ForecloudError", "Found", "Frame", "Goal", "Graph",
    "Hindsight", "KINDS", "Laplacian", "Mask", "Model", "NO_BODY", "Object", "Occupied", "Open", "Padding", "Particles", "Plan",
    "Prediction", "Predictor", "Recording", "SITUATIONS", "Table", "TrueMotion", "Walks", "__version__", "attention", "check",
    "errors", "grf_attention", "hindsight", "k_mip_attention", "knn", "masks", "n_threads", "particles", "replay", "run", "set_threads",
    "shipped_model", "show", "train",
]
