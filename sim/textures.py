"""Procedural textures and light: the look of a scene, drawn at random."""

import colorsys
import struct
import zlib
from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np

from sim import robot

SIDE = 64  # px of a drawn texture
KINDS = ("flat", "checker", "gradient", "stripes", "clouds", "spots")


@dataclass(frozen=True)
class Texture:
    """Two colours and how they are laid out; `pixels` (SIDE × SIDE × 3, uint8) where drawn here."""

    kind: str
    light: np.ndarray
    dark: np.ndarray
    pixels: np.ndarray | None = None
    width: int = SIDE  # px, of a built-in pattern

    def mjcf(self, name: str, flat: bool, repeat: int = 1) -> str:
        """Texture and material `name` for a table top (`flat`) or a solid."""
        shape = "2d" if flat else "cube"
        if self.pixels is not None:
            source = f'file="{name}.png"'
        else:
            source = (
                f'builtin="{self.kind}" rgb1="{robot.text(self.light)}" '
                f'rgb2="{robot.text(self.dark)}" width="{self.width}" height="{self.width}"'
            )
        tiles = f' texrepeat="{repeat} {repeat}" texuniform="false"' if flat else ""
        return (
            f'<texture name="{name}" type="{shape}" {source}/>'
            f'<material name="{name}" texture="{name}"{tiles}/>'
        )

    def files(self, name: str) -> dict[str, bytes]:
        """What `mjcf` names beside itself."""
        return {} if self.pixels is None else {f"{name}.png": png(self.pixels)}


@dataclass(frozen=True)
class Light:
    """A light far off that shines on the table's middle."""

    position: tuple[float, float, float]
    diffuse: tuple[float, float, float] = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Look:
    """Table, floor, rim and light; objects bring their own textures."""

    table: Texture
    lights: tuple[Light, ...]
    repeat: int = 6
    floor: tuple[float, ...] = (0.45, 0.45, 0.47)
    rim: tuple[float, ...] = (0.5, 0.38, 0.26)
    ambient: tuple[float, ...] = (0.35, 0.35, 0.35)
    head: tuple[float, ...] = (0.35, 0.35, 0.35)


def light_from(turn: float, tilt: float = 0.6, diffuse=(0.5, 0.5, 0.5)) -> Light:
    """A light 1.8 m above the table, `tilt` m off its middle in direction `turn` (rad)."""
    return Light((tilt * cos(turn), tilt * sin(turn), 1.8), tuple(float(v) for v in diffuse))


def plain(rng: np.random.Generator) -> Look:
    """A checked table of random colours, one light from a random side."""
    one, two = (rng.uniform(0.25, 0.75, 3) for _ in range(2))
    checks = Texture("checker", one, 0.8 * one + 0.2 * two, width=128)
    return Look(checks, (light_from(rng.uniform(0, 2 * pi)),))


def varied(rng: np.random.Generator) -> Look:
    """Any table, one or two lights of any strength and tint, any floor."""
    tone = rng.uniform(0.2, 0.85, 3)
    table = texture(rng, tone, np.clip(tone + rng.uniform(-0.18, 0.18, 3), 0, 1))
    lights = [
        light_from(rng.uniform(0, 2 * pi), rng.uniform(0, 1.6), rng.uniform(0.2, 0.6) * tint(rng))
        for _ in range(int(rng.integers(1, 3)))
    ]
    return Look(
        table, tuple(lights), int(rng.integers(2, 7)),
        tuple(rng.uniform(0.15, 0.7, 3)), tuple(rng.uniform(0.15, 0.8, 3)),
        tuple(rng.uniform(0.25, 0.45) * tint(rng)), tuple(rng.uniform(0.15, 0.45) * tint(rng)),
    )


def tint(rng: np.random.Generator) -> np.ndarray:
    """Nearly white."""
    return rng.uniform(0.85, 1.0, 3)


def colours(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two colours of a surface: bright, pale or dark."""
    hue, saturation = rng.uniform(), rng.uniform(0.05, 0.95)
    light = colorsys.hsv_to_rgb(hue, saturation, rng.uniform(0.45, 1.0))
    other = (hue + rng.uniform(0, 0.4)) % 1
    dark = colorsys.hsv_to_rgb(other, saturation, rng.uniform(0.15, 0.7))
    return np.array(light), np.array(dark)


def texture(rng: np.random.Generator, light: np.ndarray, dark: np.ndarray) -> Texture:
    """A random pattern of the two colours, coarse enough not to flicker in small pictures."""
    kind = str(rng.choice(KINDS))
    if kind in ("flat", "checker", "gradient"):
        return Texture(kind, light, dark)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    if kind == "stripes":  # whole periods both ways: tiles and cube faces meet
        turns = rng.integers(0, 3, 2) + (1, 0)
        share = (np.sin(2 * pi * (turns[0] * rows + turns[1] * columns)) > 0).astype(float)
    elif kind == "clouds":
        share = sum(
            a * np.sin(2 * pi * (u * rows + v * columns) + p)
            for a, u, v, p in zip(
                rng.uniform(0.1, 0.25, 6), rng.integers(-3, 4, 6), rng.integers(-3, 4, 6),
                rng.uniform(0, 2 * pi, 6),
            )
        )
        share = np.clip(0.5 + share, 0, 1)
    else:
        share = np.zeros((SIDE, SIDE))
        for x, y, radius in zip(*rng.uniform(0.15, 0.85, (2, 6)), rng.uniform(0.06, 0.15, 6)):
            share[(columns - x) ** 2 + (rows - y) ** 2 < radius**2] = 1
    mix = light + share[:, :, None] * (dark - light)
    return Texture(kind, light, dark, np.rint(255 * mix).astype(np.uint8))


def png(pixels: np.ndarray) -> bytes:
    """An RGB picture as PNG."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
