"""What cameras do to pictures in time: late colour, torn, repeated and missing frames, automatic
exposure and motion blur. Each is off at 0. What a depth image shows belongs to moments of its own,
which the truth follows.
"""

from dataclasses import asdict, dataclass, fields, replace

import numpy as np

RATE_HZ = 30
SUBFRAMES = 3  # pictures that a blurred one is the mean of
GAIN_STEP = 0.06  # by which exposure changes from one frame to the next, at most


@dataclass(frozen=True)
class Imaging:
    """`late`: frames by which colour trails depth, 0 to 2 (any number may be given); `late_change`:
    share of frames in which it trails by one frame more or less. `torn`, `repeated`, `missing`:
    share of a camera's frames; a torn frame's rows are of two moments, a repeated one shows the
    frame before. `exposure`: 0 none, 1 evens out all brightness. `blur`: exposure time, in frames.
    """

    rate_hz: int = RATE_HZ
    late: float = 0.0
    late_change: float = 0.0
    torn: float = 0.0
    repeated: float = 0.0
    missing: float = 0.0
    exposure: float = 0.0
    blur: float = 0.0

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> "Imaging":
        """Some of all that, as cameras differ; a quarter of the episodes have none of it."""
        row = rng.uniform(size=6)
        values = cls(
            late=float(rng.choice((0, 1, 2))) if row[0] < 0.6 else 0.0,
            late_change=float(rng.uniform(0.02, 0.2)) if row[1] < 0.4 else 0.0,
            torn=float(rng.uniform(0.005, 0.03)) if row[2] < 0.25 else 0.0,
            repeated=float(rng.uniform(0.005, 0.03)) if row[3] < 0.25 else 0.0,
            missing=float(rng.uniform(0.005, 0.05)) if row[3] > 0.75 else 0.0,
            exposure=float(rng.uniform(0.3, 1)) if row[4] < 0.4 else 0.0,
            blur=float(rng.uniform(0.2, 0.9)) if row[5] < 0.25 else 0.0,
        )
        return cls() if rng.uniform() < 0.25 else values

    @classmethod
    def parse(cls, text: str) -> "Imaging":
        """From `none`, or `name=value,…`; raises ValueError on what it does not know."""
        known = {f.name: f.type for f in fields(cls)}
        values = {}
        for pair in () if text == "none" else text.split(","):
            name, _, value = pair.partition("=")
            if name not in known:
                raise ValueError(f"imaging {pair!r}: expected none or NAME=VALUE of {', '.join(known)}")
            values[name] = int(value) if name == "rate_hz" else float(value)
            if values[name] < 0 or name in ("torn", "repeated", "missing", "late_change") and values[name] > 1:
                raise ValueError(f"imaging {pair!r}: out of range")
        made = replace(cls(), **values)
        if made.rate_hz not in (10, 30):
            raise ValueError("imaging rate_hz: expected 10 or 30")
        return made

    def about(self) -> dict:
        """As numbers."""
        return asdict(self)


@dataclass(frozen=True)
class Shot:
    """How one camera takes one frame. Moments in frames before it.

    `tear`: rows from this share of the height on are of the moment `age` frames before (1: none);
    `missing`: nothing comes.
    """

    late: int = 0
    tear: float = 1.0
    age: int = 0
    missing: bool = False


def shots(imaging: Imaging, frames: int, rng: np.random.Generator) -> list[Shot]:
    """All frames of a camera; the first two are whole."""
    out = []
    for frame in range(frames):
        torn, repeated, missing, change, where, sign = rng.uniform(size=6)
        late = imaging.late
        if change < imaging.late_change:
            late += 1 if sign < 0.5 or late == 0 else -1
        shot = Shot(late=int(round(late)))
        if frame >= 2:
            if missing < imaging.missing:
                shot = replace(shot, missing=True)
            elif repeated < imaging.repeated:
                shot = replace(shot, tear=0.0, age=1)
            elif torn < imaging.torn:
                shot = replace(shot, tear=0.1 + 0.8 * float(where), age=1)
        out.append(shot)
    return out


class Exposure:
    """Automatic exposure: a gain that follows the picture's brightness, in steps."""

    def __init__(self, strength: float, rng: np.random.Generator):
        self.strength = strength
        self.target = float(rng.uniform(90, 140))
        self.gain = float(rng.uniform(0.7, 1.4)) if strength else 1.0
        self.adapting = True

    def __call__(self, picture: np.ndarray) -> np.ndarray:
        """The picture as it is exposed, after all before it."""
        if not self.strength:
            return picture
        mean = max(float(picture.mean()), 1.0)
        wanted = float(np.clip((self.target / mean) ** self.strength, 0.4, 2.5))
        off = np.log(wanted / self.gain)
        # Cameras wait until it is worth while, then go on until it is right.
        self.adapting = abs(off) > (0.02 if self.adapting else 0.12)
        if self.adapting:
            self.gain *= float(np.exp(np.clip(off, -GAIN_STEP, GAIN_STEP)))
        return np.clip(np.rint(picture * self.gain), 0, 255).astype(np.uint8)
