"""What a prediction tells of contacts to come, and of what the scene will occupy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Contact:
    """A link of the robot and a part of the scene that may touch."""

    link: str
    """Name of the link."""
    object: int | None
    """Number of the object; None of the scene that has no numbers."""
    time: float
    """Time from the frame's stamp until the expected ways touch, or where they don't, until they are nearest (s)."""
    min_distance: float
    """Smallest distance of the expected ways (m)."""
    place: np.ndarray
    """Where that particle is then, `[3]`, float32, world frame, m."""
    probability: float
    """Probability of a touch within the prediction, from sigma and sigma_90; of models that don't tell them, 1
    where the expected ways touch, else 0."""


@dataclass(frozen=True)
class Contacts:
    """Contacts to come, the most probable first: one for each link and object. Not a certified safety function."""

    has_robot: bool
    """Whether the prediction has the robot; without, nothing is known, and there are none."""
    horizon: float
    """How far the prediction looks ahead (s)."""
    contacts: list[Contact]
    """The contacts."""

    def __len__(self) -> int:
        """Number of contacts."""
        return len(self.contacts)

    def __iter__(self):
        """The contacts."""
        return iter(self.contacts)


@dataclass(frozen=True)
class Occupied:
    """Points that the scene sweeps between now and a time, by ascending time; a voxel has one point."""

    positions: np.ndarray
    """`[n, 3]`, float32, world frame, m."""
    times: np.ndarray
    """When each place is first occupied, from the frame's stamp, `[n]`, float32, s."""
    sigma: np.ndarray
    """Half of all errors of each position are no larger, `[n]`, float32, m; NaN of models that don't tell."""

    def __len__(self) -> int:
        """Number of points."""
        return len(self.positions)
