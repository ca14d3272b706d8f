"""Faces by a cascade of three networks (Zhang et al. 2016): pyramid, proposals, refinement, landmarks."""

from dataclasses import dataclass

import numpy as np
from PIL import Image

CELL, STRIDE = 12, 2  # what a proposal sees of the picture, and how far apart proposals are
PYRAMID = 0.709  # from one scale to the next: half the area


@dataclass(frozen=True)
class Face:
    """A face: its box as left, top, right, bottom, and [5, 2] points as x, y: eyes, nose, mouth's ends."""

    box: np.ndarray
    points: np.ndarray
    score: float


def detect(picture, networks, smallest=40, scores=(0.6, 0.7, 0.7)):
    """The faces in an RGB picture, the surest first.

    Args:
        picture: A PIL image.
        networks: Three functions from float32 ``[n, width, height, 3]`` to their results, as
            shifts, (landmarks,) and ``[..., 2]`` probabilities of no face and a face.
        smallest: Pixels that a face has at least.
        scores: The least probability at each stage.
    """
    boxes = proposals(picture, networks[0], smallest, scores[0])
    if not len(boxes):
        return []
    boxes = whole_squares(boxes)
    shifts, sure = networks[1](crops(picture, boxes, 24))
    keep = sure[:, 1] > scores[1]
    boxes, sure, shifts = boxes[keep], sure[keep, 1], shifts[keep]
    keep = apart(boxes, sure, 0.7)
    if not len(keep):
        return []
    boxes = whole_squares(moved(boxes[keep], shifts[keep]))
    shifts, points, sure = networks[2](crops(picture, boxes, 48))
    keep = sure[:, 1] > scores[2]
    boxes, sure, shifts, points = boxes[keep], sure[keep, 1], shifts[keep], points[keep]
    # Five x, then five y, in parts of the box.
    points = points.reshape(-1, 2, 5).transpose(0, 2, 1)
    points = boxes[:, None, :2] + points * (boxes[:, 2:] - boxes[:, :2])[:, None]
    boxes = moved(boxes, shifts)
    return [
        Face(boxes[index], points[index], float(sure[index]))
        for index in apart(boxes, sure, 0.7, "smaller")
    ]


def proposals(picture, network, smallest, score):
    """Boxes ``[n, 4]`` that may hold a face, from all sizes of the picture."""
    boxes, sure = [np.zeros((0, 4))], [np.zeros(0)]
    scale = CELL / smallest
    while min(picture.size) * scale >= CELL:
        size = tuple(int(np.ceil(side * scale)) for side in picture.size)
        shifts, likely = network(pixels(picture.resize(size, Image.Resampling.BOX))[None])
        position = np.argwhere(likely[0, :, :, 1] >= score)
        result = np.concatenate([position * STRIDE, position * STRIDE + CELL], 1) / scale
        found_sure, found_shifts = likely[0, *position.T, 1], shifts[0, *position.T]
        keep = apart(result, found_sure, 0.5)
        boxes.append(moved(result[keep], found_shifts[keep]))
        sure.append(found_sure[keep])
        scale *= PYRAMID
    boxes, sure = np.concatenate(boxes), np.concatenate(sure)
    return boxes[apart(boxes, sure, 0.7)]


def pixels(picture):
    """float32 ``[width, height, 3]`` from -1 to 1: the networks were trained on transposed pictures."""
    return (np.asarray(picture, np.float32).transpose(1, 0, 2) - 127.5) / 128


def crops(picture, boxes, size):
    """Pieces ``[n, size, size, 3]`` of the picture; outside of it is black."""
    pieces = [picture.crop(tuple(int(edge) for edge in box)) for box in boxes]
    return np.stack([pixels(piece.resize((size, size), Image.Resampling.BOX)) for piece in pieces])


def moved(boxes, shifts):
    """Boxes with their edges shifted by parts of their sides."""
    return boxes + shifts * np.tile(boxes[:, 2:] - boxes[:, :2], 2)


def whole_squares(boxes):
    """Squares around the middles of boxes, as large as their longer sides, in whole pixels."""
    middle, side = (boxes[:, :2] + boxes[:, 2:]) / 2, np.max(boxes[:, 2:] - boxes[:, :2], 1)
    corner = middle - side[:, None] / 2
    return np.trunc(np.concatenate([corner, corner + side[:, None]], 1))


def overlap(box, others, over="union"):
    """The common area of a box and others in parts of their union, or of the smaller one's area."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.prod(np.maximum(sides, 0), 1)
    first, other = np.prod(box[2:] - box[:2]), np.prod(others[:, 2:] - others[:, :2], 1)
    return common / (np.minimum(first, other) if over == "smaller" else first + other - common)


def apart(boxes, sure, limit, over="union"):
    """Indices of boxes, the surest first, without those that overlap a surer one by more than ``limit``."""
    left, retained = np.argsort(-sure), []
    while len(left):
        retained.append(left[0])
        left = left[1:][overlap(boxes[left[0]], boxes[left[1:]], over) <= limit]
    return np.array(retained, int)
