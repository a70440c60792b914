"""A contact sheet of recordings: `python -m sim.sheet --out sheet.png FOLDER…`.

A row for each camera of each recording, frames from first to last. With `--draw TASK_SEED…` of
episodes that are simulated for it, with nothing recorded. Needs Pillow.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from sim.flow import Recording


def row(pictures: list[np.ndarray], title: str, width: int) -> Image.Image:
    """Pictures side by side under a line of text."""
    height = width * 3 // 4
    strip = Image.new("RGB", (len(pictures) * width, height))
    for column, picture in enumerate(pictures):
        small = Image.fromarray(picture).resize((width, height), Image.Resampling.BILINEAR)
        strip.paste(small, (column * width, 0))
    ImageDraw.Draw(strip).text((4, 2), title, fill=(255, 255, 255))
    return strip


def recorded(folder: Path, count: int, width: int, first_only: bool) -> list[Image.Image]:
    """Rows of a recording: frames evenly spread."""
    recording, rows = Recording(folder), []
    about = recording.about
    for camera in list(recording.colour)[: 1 if first_only else None]:
        taken = [picture for picture in recording.colour[camera] if picture is not None]
        chosen = np.linspace(0, len(taken) - 1, count).round().astype(int)
        title = f"{about['split']} {about['task']} {about['seed']} {camera}"
        rows.append(row([taken[k] for k in chosen], title, width))
    return rows


def drawn(name: str, count: int, width: int, first_only: bool) -> list[Image.Image]:
    """Rows of a real-like episode TASK_SEED, drawn as it is simulated."""
    import mujoco

    from sim import episode
    from sim.render import Painter
    from sim.truth import Truth

    task, seed = name.split("_")
    made = episode.simulate(task, int(seed), variety="real")
    data, rows = mujoco.MjData(made.model), []
    with Painter(made.model, Truth(made.model, made.soft, made.rig)) as painter:
        for camera in made.cameras[: 1 if first_only else None]:
            pictures = []
            for k in np.linspace(0, len(made.qpos) - 1, count).round().astype(int):
                data.qpos[:] = made.qpos[k]
                mujoco.mj_forward(made.model, data)
                pictures.append(painter.colour(data, camera))
            about = made.rig.about
            what = about.get("name") or about.get("kind") or f"{about['hand']}, {about['joints']} joints"
            title = f"{name} {what}, x {made.stage.scale:.1f}"
            rows.append(row(pictures, title, width))
    return rows


def main() -> None:
    """Writes the sheet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="PNG or JPEG")
    parser.add_argument("--frames", type=int, default=8, help="a row; default: %(default)s")
    parser.add_argument("--width", type=int, default=200, help="px a frame; default: %(default)s")
    parser.add_argument("--first-camera", action="store_true", help="one row a recording")
    parser.add_argument("--columns", type=int, default=1, help="rows side by side; default: %(default)s")
    parser.add_argument("--colours", type=int, help="at most so many, for a small file")
    parser.add_argument("--draw", nargs="+", default=[], metavar="TASK_SEED", help="of --variety real")
    parser.add_argument("folders", type=Path, nargs="*")
    args = parser.parse_args()
    more = (args.frames, args.width, args.first_camera)
    rows = [r for folder in args.folders for r in recorded(folder, *more)]
    rows += [r for name in args.draw for r in drawn(name, *more)]
    if not rows:
        parser.error("name folders, or TASK_SEED after --draw")
    width, height, columns = rows[0].width, rows[0].height, args.columns
    sheet = Image.new("RGB", (columns * width, -(-len(rows) // columns) * height))
    for k, each in enumerate(rows):
        sheet.paste(each, (k % columns * width, k // columns * height))
    if args.colours:
        sheet = sheet.quantize(args.colours, dither=Image.Dither.NONE)
    sheet.save(args.out, optimize=True)


if __name__ == "__main__":
    main()
