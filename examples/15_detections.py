"""Draws the boxes of a detector on a picture of any size.

usage: python examples/15_detections.py [picture.jpg] [--model detector.onnx] [--device auto] [--save boxes.png]

A model takes pictures ``[1, 3, height, width]`` or ``[3, height, width]`` in 0 to 1, and gives boxes ``[count, 4]`` as two corners in
pixels and scores ``[count]`` first, as torchvision's detectors do. Without one, a small detector finds bright spots; without a
picture, one is made. Needs pip install pillow.
"""

import argparse
import sys
import time

import numpy as np

import rlx

try:
    from PIL import Image, ImageDraw
except ImportError:
    sys.exit("this example draws with Pillow: pip install pillow")

# Pixels between the places that the small detector looks at, and the sides of what it looks for.
STEP, SIDES = 4, (16, 32)


def spots():
    """A detector of bright spots: how much brighter a square is than the ring around it, then the best that do not overlap."""
    g = rlx.Graph("bright spots")
    height, width = (rlx.Dim(name, min=64) for name in ("height", "width"))
    picture = g.input("picture", (1, 3, height, width))
    light = g.mean(picture, [1], keepdims=True)
    boxes, scores = [], []
    for side in SIDES:
        # The ring's square has twice the side; the inner one is in its middle.
        ring = g.avg_pool(light, 2 * side, STEP)
        inner = g.avg_pool(light[:, :, side // 2 :, side // 2 :], side, STEP)
        rows, columns = ring.shape[2], ring.shape[3]
        inner = inner[:, :, :rows, :columns]
        scores.append(g.reshape(inner - ring, (rows * columns,)))
        top, left = (g.arange(0, n, 1, "f32") * float(STEP) + side / 2 for n in (rows, columns))
        grid = (rows, columns, 1)
        corner = [
            g.expand(g.reshape(left, (1, columns, 1)), grid),
            g.expand(g.reshape(top, (rows, 1, 1)), grid),
        ]
        square = g.concat([*corner, *(value + float(side) for value in corner)], 2)
        boxes.append(g.reshape(square, (rows * columns, 4)))
    box, score = g.concat(boxes, 0), g.concat(scores, 0)
    kept = g.non_max_suppression(g.unsqueeze(box, 0), score[None, None], 50, 0.1, 0.15)
    places = g.reshape(kept[:, 2:], (kept.shape[0],))
    g.set_outputs([g.gather(box, places), g.gather(score, places)])
    return g


def made_up(rng):
    """A picture of grey noise with a few bright discs, of a size of its own."""
    height, width = rng.integers(160, 480, 2)
    rows, columns = np.mgrid[:height, :width]
    picture = rng.random((height, width)) * 0.2
    for _ in range(rng.integers(1, 9)):
        middle, radius = rng.integers(20, (height - 20, width - 20)), rng.integers(6, 18)
        picture[(rows - middle[0]) ** 2 + (columns - middle[1]) ** 2 < radius**2] = 0.9
    return np.repeat(picture[None], 3, 0).astype(np.float32)


def drawn(picture, boxes, scores):
    """The picture with its boxes and their scores."""
    image = Image.fromarray((np.moveaxis(picture, 0, -1) * 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for box, score in zip(boxes.tolist(), scores.tolist(), strict=True):
        draw.rectangle(box, outline="red", width=2)
        draw.text((box[0] + 3, box[1] + 2), f"{score:.2f}", fill="yellow")
    return image


def detector(path, device):
    """A function from a picture to boxes and scores."""
    if path is None:
        compiled = rlx.compile(spots(), device)
        return lambda picture: compiled.run(picture[None])
    model = rlx.onnx.Model(path, device)
    (port,) = model.inputs
    batch = port.dims is None or len(port.dims) == 4
    return lambda picture: model.run({port.name: picture[None] if batch else picture})[:2]


def main():
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("picture", nargs="?")
    parser.add_argument("--model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--save")
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    pictures = [made_up(rng) for _ in range(4)]
    if asked.picture:
        image = Image.open(asked.picture).convert("RGB")
        pictures = [np.moveaxis(np.asarray(image, np.float32) / 255, -1, 0).copy()]
    detect = detector(asked.model, asked.device)
    for picture in pictures:
        began = time.perf_counter()
        boxes, scores = detect(picture)
        took = (time.perf_counter() - began) * 1e3
        print(f"{picture.shape[2]} x {picture.shape[1]} pixels: {len(boxes)} boxes, {took:.1f} ms")
    if asked.save:
        drawn(picture, boxes, scores).save(asked.save)


if __name__ == "__main__":
    try:
        main()
    except (rlx.RlxError, OSError) as error:
        sys.exit(f"15_detections.py: {error}")
