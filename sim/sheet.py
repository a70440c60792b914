"""A contact sheet of recordings: `python -m sim.sheet --out sheet.png FOLDER…`.

A row for each camera of each recording, frames from first to last. Needs Pillow.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from sim.flow import Recording


def row(recording: Recording, camera: str, count: int, width: int) -> Image.Image:
    """Frames of one camera, evenly spread, under a line of text."""
    frames = np.linspace(0, len(recording.places) - 1, count).round().astype(int)
    height = width * 3 // 4
    strip = Image.new("RGB", (count * width, height))
    for column, frame in enumerate(frames):
        picture = Image.fromarray(recording.colour[camera][frame])
        strip.paste(picture.resize((width, height), Image.Resampling.BILINEAR), (column * width, 0))
    about = recording.about
    title = f"{about['split']} {about['task']} {about['seed']} {camera}"
    ImageDraw.Draw(strip).text((4, 2), title, fill=(255, 255, 255))
    return strip


def main() -> None:
    """Writes the sheet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="PNG or JPEG")
    parser.add_argument("--frames", type=int, default=8, help="a row; default: %(default)s")
    parser.add_argument("--width", type=int, default=200, help="px a frame; default: %(default)s")
    parser.add_argument("--first-camera", action="store_true", help="one row a recording")
    parser.add_argument("--colours", type=int, help="at most so many, for a small file")
    parser.add_argument("folders", type=Path, nargs="+")
    args = parser.parse_args()
    rows = []
    for folder in args.folders:
        recording = Recording(folder)
        cameras = list(recording.colour)[: 1 if args.first_camera else None]
        rows += [row(recording, camera, args.frames, args.width) for camera in cameras]
    sheet = Image.new("RGB", (rows[0].width, sum(r.height for r in rows)))
    top = 0
    for each in rows:
        sheet.paste(each, (0, top))
        top += each.height
    if args.colours:
        sheet = sheet.quantize(args.colours, dither=Image.Dither.NONE)
    sheet.save(args.out, optimize=True)


if __name__ == "__main__":
    main()
