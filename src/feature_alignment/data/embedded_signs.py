"""Traffic signs generated with the outlines and colours of GTSRB's 43 classes."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from feature_alignment.data.embedded_glyphs import brush_ink, glyph_forms, stroke_points
from feature_alignment.data.embedded_photos import (
    REGIONS,
    SIZE,
    Drawn,
    as_pixels,
    balanced_labels,
    photograph_backgrounds,
)

CLASSES = 43
_RED, _BLUE, _YELLOW = (190, 30, 40), (25, 80, 165), (240, 190, 40)
_WHITE, _BLACK, _GREY = (235, 235, 235), (30, 30, 30), (130, 130, 130)
_RIM = 0.24  # width of the rim, in units of the sign's radius


@dataclass(frozen=True)
class SignStyle:
    """How the signs of a class look.

    Attributes:
        corners: of the outline; 0 for a circle.
        turn: of the outline, in radians.
        rim: colour (red, green, blue), 0 to 255.
        field: colour inside the rim.
        ink: colour of the pictogram; None where the class has none.
    """

    corners: int
    turn: float
    rim: tuple[int, int, int]
    field: tuple[int, int, int]
    ink: tuple[int, int, int] | None


def sign_style(label: int) -> SignStyle:
    """Outline and colours of one of the 43 classes, 0 to 42 as in GTSRB."""
    down, up = np.pi / 2, -np.pi / 2
    if label == 12:  # priority road
        return SignStyle(4, 0.0, _WHITE, _YELLOW, None)
    if label == 13:  # yield
        return SignStyle(3, down, _RED, _WHITE, None)
    if label == 14:  # stop
        return SignStyle(8, np.pi / 8, _WHITE, _RED, _WHITE)
    if label == 15:  # closed to vehicles
        return SignStyle(0, 0.0, _RED, _WHITE, None)
    if label == 17:  # no entry
        return SignStyle(0, 0.0, _RED, _RED, _WHITE)
    if label in (6, 32, 41, 42):  # ends of restrictions
        return SignStyle(0, 0.0, _WHITE, _WHITE, _GREY)
    if label == 11 or 18 <= label <= 31:  # warnings
        return SignStyle(3, up, _RED, _WHITE, _BLACK)
    if 33 <= label <= 40:  # orders
        return SignStyle(0, 0.0, _BLUE, _BLUE, _WHITE)
    return SignStyle(0, 0.0, _RED, _WHITE, _BLACK)  # speed limits and prohibitions


def _depth(style: SignStyle, points: np.ndarray) -> np.ndarray:
    """Distance from the outline, positive inside, in units of the sign's radius.

    Args:
        style: outline; a polygon's corners lie on the unit circle.
        points: (..., 2).
    """
    if style.corners == 0:
        return 1.0 - np.linalg.norm(points, axis=-1)
    # A side's normal points halfway between two corners.
    angles = style.turn + np.pi * (2 * np.arange(style.corners) + 1) / style.corners
    normals = np.stack([np.cos(angles), np.sin(angles)])  # (2, corners)
    return np.cos(np.pi / style.corners) - (points @ normals).max(axis=-1)


def _pictogram(label: int) -> np.ndarray:
    """Points of a class's pictogram in the unit circle, (q, 2)."""
    if label == 17:
        x = np.linspace(-0.6, 0.6, 24)
        return np.stack([x, np.zeros_like(x)], axis=1)
    points = 0.55 * stroke_points(glyph_forms("signs", CLASSES)[label])
    if label in (6, 32, 41, 42):
        x = np.linspace(-0.7, 0.7, 24)
        points = np.concatenate([points, np.stack([x, -x], axis=1)])
    if label == 11 or 18 <= label <= 31:
        points = 0.62 * points + np.array([0.0, 0.08])  # a triangle has less room
    return points


def _signs_of_class(label: int, backgrounds: np.ndarray, generator: Generator) -> np.ndarray:
    """Signs of one class over backgrounds (n, SIZE, SIZE, 3), same shape."""
    n, style = len(backgrounds), sign_style(label)
    radius = generator.uniform(11.0, 15.0, (n, 1))  # pixels
    turn = generator.normal(0.0, 0.07, n)
    squeeze = generator.uniform(0.85, 1.0, n)  # seen from the side
    shift = generator.uniform(-1.5, 1.5, (n, 1, 2))
    cos, sin = np.cos(turn), np.sin(turn)
    rows = [np.stack([cos * squeeze, -sin], -1), np.stack([sin * squeeze, cos], -1)]
    matrix = radius[..., np.newaxis] * np.stack(rows, -2)  # (n, 2, 2), sign to pixels

    axis = np.arange(SIZE) - (SIZE - 1) / 2
    pixels = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(1, -1, 2)
    on_sign = (pixels - shift) @ np.linalg.inv(matrix).transpose(0, 2, 1)  # (n, SIZE², 2)
    depth = _depth(style, on_sign).reshape(n, SIZE, SIZE, 1) * radius[..., np.newaxis, np.newaxis]
    rim = _RIM * (0.6 if style.corners == 3 else 1.0) * radius[..., np.newaxis, np.newaxis]

    images = backgrounds
    layers = [(style.rim, np.clip(depth + 0.5, 0, 1)), (style.field, np.clip(depth - rim, 0, 1))]
    if style.ink is not None:
        points = _pictogram(label) @ matrix.transpose(0, 2, 1) + shift  # (n, q, 2)
        brush = 0.085 * radius[:, 0] * (1.6 if label == 17 else 1.0)
        layers.append((style.ink, brush_ink(points, brush, SIZE)[..., np.newaxis]))
    light = generator.uniform(0.35, 1.1, (n, 1, 1, 1))
    for colour, alpha in layers:
        images = (1 - alpha) * images + alpha * light * np.array(colour)
    return images


def traffic_signs(split: str, n: int, generator: Generator) -> Drawn:
    """Signs of 43 classes before photograph patches, in varied light and view.

    See `embedded.StandIn`. The splits share no patches; (n, 32, 32, 3).
    """
    labels = balanced_labels(n, CLASSES, generator)
    places = generator.integers(len(REGIONS), size=n)
    images = photograph_backgrounds(split, places, generator)
    for label in range(CLASSES):
        chosen = np.flatnonzero(labels == label)
        images[chosen] = _signs_of_class(label, images[chosen], generator)
    return as_pixels(images, generator), labels
