"""Writes the compressed images that the decoders are tested against, with OpenCV as ROS does.

`compressed_image_transport` and `compressed_depth_image_transport` encode with cv2.imencode; the
files are the `data` of such messages. Regenerate:

    python3 -m venv /tmp/images-venv
    /tmp/images-venv/bin/pip install numpy==2.4.6 opencv-python-headless==5.0.0.93 rosbags==0.11.9
    /tmp/images-venv/bin/python tests/data/compressed/generate.py
"""

import struct
from pathlib import Path

import cv2
import numpy as np
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

FOLDER = Path(__file__).parent
WIDTH, HEIGHT = 37, 29  # no multiple of a JPEG block
DEPTH_MAX_M, DEPTH_QUANTIZATION_M = 10.0, 100.0  # defaults of compressed_depth_image_transport

v, u = np.mgrid[0:HEIGHT, 0:WIDTH]
RGB = np.stack([6 * u, 8 * v, 250 - 3 * u - 4 * v], axis=-1).astype(np.uint8)
DEPTH_MM = np.where((u + v) % 5 == 0, 0, 500 + 17 * u * v).astype(np.uint16)


def encode(name, image, *options):
    _, data = cv2.imencode(Path(name).suffix, image, options)
    (FOLDER / name).write_bytes(data.tobytes())
    return data.tobytes()


def bgr(rgb):
    return np.ascontiguousarray(rgb[..., ::-1])


def jpegs():
    encode("color.jpg", bgr(RGB), cv2.IMWRITE_JPEG_QUALITY, 95)
    encode("progressive.jpg", bgr(RGB), cv2.IMWRITE_JPEG_QUALITY, 95, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    encode("grey.jpg", RGB[..., 0], cv2.IMWRITE_JPEG_QUALITY, 95)
    decoded = cv2.imread(str(FOLDER / "color.jpg"))
    (FOLDER / "color.rgb").write_bytes(bgr(decoded).tobytes())


def pngs():
    alpha = (u + v).astype(np.uint8)
    encode("rgb8.png", bgr(RGB))
    encode("rgba8.png", np.dstack([bgr(RGB), alpha]))
    encode("rgb16.png", bgr(RGB).astype(np.uint16) * 256 + 77)
    encode("grey8.png", RGB[..., 0])
    encode("depth16.png", DEPTH_MM)


def compressed_depths():
    """A header (format, two quantization parameters) before the PNG; 32FC1 as inverse depth."""
    png = encode("depth16.png", DEPTH_MM)
    (FOLDER / "depth_16UC1.bin").write_bytes(struct.pack("<iff", 0, 0.0, 0.0) + png)
    a = np.float32(DEPTH_QUANTIZATION_M * (DEPTH_QUANTIZATION_M + 1.0))
    b = np.float32(1.0 - a / DEPTH_MAX_M)
    metres = DEPTH_MM.astype(np.float32) * np.float32(1e-3)
    with np.errstate(divide="ignore"):
        inverse = np.where((metres > 0) & (metres < DEPTH_MAX_M), a / metres + b, 0)
    _, png = cv2.imencode(".png", inverse.astype(np.uint16))
    (FOLDER / "depth_32FC1.bin").write_bytes(struct.pack("<iff", 0, a, b) + png.tobytes())


def picture():
    """A picture of 640 x 480 for the benchmark: four images of the demo recording."""
    bag = FOLDER.parents[2] / "data" / "demo_tumble"
    images = []
    with AnyReader([bag], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as reader:
        for connection, _, raw in reader.messages():
            if connection.topic.endswith("color/image_raw") and len(images) < 4:
                message = reader.deserialize(raw, connection.msgtype)
                images.append(message.data.reshape(message.height, message.width, 3))
    picture = np.vstack([np.hstack(images[:2]), np.hstack(images[2:])])
    encode("picture.jpg", bgr(picture), cv2.IMWRITE_JPEG_QUALITY, 95)


jpegs()
pngs()
compressed_depths()
picture()
