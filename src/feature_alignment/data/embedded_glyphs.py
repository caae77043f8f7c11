"""Brush glyphs made of smooth strokes: the stand-in of KMNIST, and pictograms for signs."""

import numpy as np
from numpy.random import Generator

from feature_alignment.data.embedded_photos import Drawn, balanced_labels
from feature_alignment.determinism import stream

STROKES = 3
_POINTS_PER_STROKE = 36
_FORMS = 2  # ways to write a class, as cursive hiragana have several


def glyph_forms(name: str, number: int) -> np.ndarray:
    """Fixed random glyphs: Bézier control points in [−0.9, 0.9]².

    Args:
        name: of the random stream, one per alphabet.
        number: of glyphs.

    Returns:
        float64 (number, STROKES, 4 control points, 2 coordinates x and y, y downwards).
    """
    generator = stream(0, f"embedded/glyphs/{name}")
    return generator.uniform(-0.9, 0.9, (number, STROKES, 4, 2))


def stroke_points(control: np.ndarray) -> np.ndarray:
    """Points along cubic Bézier strokes: (..., STROKES, 4, 2) → (..., STROKES · 36 points, 2)."""
    t = np.linspace(0.0, 1.0, _POINTS_PER_STROKE)
    weights = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], axis=1)
    points = np.einsum("tb,...sbx->...stx", weights, control)
    return points.reshape(*control.shape[:-3], -1, 2)


def brush_ink(points: np.ndarray, radius: np.ndarray, size: int) -> np.ndarray:
    """Ink of a round brush that touches the paper at the points.

    Args:
        points: (n, q, 2) x and y in pixels from the centre of the image.
        radius: (n,) of the brush, in pixels.
        size: side of the square image, in pixels.

    Returns:
        (n, size, size), 0 (paper) to 1 (ink), edges smooth over one pixel.
    """
    points = points.astype(np.float32)  # half the time, and no difference after rounding
    axis = np.arange(size, dtype=np.float32) - np.float32((size - 1) / 2)
    ink = np.empty((len(points), size, size), dtype=np.float32)
    for i, (one, r) in enumerate(zip(points, radius, strict=True)):
        dx2 = (axis[:, np.newaxis] - one[:, 0]) ** 2  # (size, q)
        dy2 = (axis[:, np.newaxis] - one[:, 1]) ** 2
        squared = (dy2[:, np.newaxis] + dx2[np.newaxis]).min(axis=-1)  # (size, size)
        ink[i] = np.clip(r + 0.5 - np.sqrt(squared), 0.0, 1.0)
    return ink


def hand_movements(n: int, generator: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random turns, sizes, slants and shifts.

    Returns:
        Matrices (n, 2, 2) and shifts (n, 1, 2) in units of half an image.
    """
    turn = generator.normal(0.0, 0.12, n)
    slant = generator.normal(0.0, 0.15, n)
    width, height = generator.uniform(0.8, 1.0, (2, n))
    cos, sin = np.cos(turn), np.sin(turn)
    rotation = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)
    zero = np.zeros(n)
    shape = np.stack([np.stack([width, slant], -1), np.stack([zero, height], -1)], -2)
    return rotation @ shape, generator.normal(0.0, 0.05, (n, 1, 2))


def brush_glyphs(split: str, n: int, generator: Generator) -> Drawn:
    """Glyphs of ten classes, two forms each, in ever different hands, see `embedded.StandIn`.

    Both splits are drawn alike; (n, 28, 28, 1).
    """
    labels = balanced_labels(n, 10, generator)
    forms = glyph_forms("kmnist", 10 * _FORMS)
    control = forms[_FORMS * labels + generator.integers(_FORMS, size=n)]
    control = control + generator.normal(0.0, 0.07, control.shape)
    matrix, shift = hand_movements(n, generator)
    points = stroke_points(control) @ matrix.transpose(0, 2, 1) + shift  # (n, q, 2)
    ink = brush_ink(14 * points, generator.uniform(0.7, 1.5, n), 28)
    full = generator.uniform(190.0, 255.0, (n, 1, 1))
    return np.rint(full * ink).astype(np.uint8)[..., np.newaxis], labels
