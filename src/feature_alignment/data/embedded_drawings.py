"""Drawn stand-ins: brush glyphs for KMNIST, traffic signs for GTSRB, faces for CelebA."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from feature_alignment.data import embedded_photos as photos
from feature_alignment.determinism import stream

Colour = tuple[int, ...]  # red, green and blue, 0 to 255

_STROKES, _POINTS_PER_STROKE = 3, 36
_FORMS = 2  # ways to write a class; cursive hiragana have several


def _glyph_forms(name: str, number: int) -> np.ndarray:
    """Fixed glyphs of a named alphabet: Bézier points in [−0.9, 0.9]², (number, strokes, 4, 2)."""
    return stream(0, f"embedded/glyphs/{name}").uniform(-0.9, 0.9, (number, _STROKES, 4, 2))


def _stroke_points(control: np.ndarray) -> np.ndarray:
    """Points along cubic Bézier strokes: (..., strokes, 4, 2) → (..., strokes · 36 points, 2)."""
    t = np.linspace(0.0, 1.0, _POINTS_PER_STROKE)
    weights = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], axis=1)
    points = np.einsum("tb,...sbx->...stx", weights, control)
    return points.reshape(*control.shape[:-3], -1, 2)


def _brush_ink(points: np.ndarray, radius: np.ndarray, size: int) -> np.ndarray:
    """Ink of round brushes (n,) that touch paper at points (n, q, 2), in pixels from its centre.

    Returns (n, size, size, 1) from 0 (paper) to 1 (ink), with edges smoothed over one pixel.
    """
    points = points.astype(np.float32)  # half the time, and the same after rounding
    axis = np.arange(size, dtype=np.float32) - np.float32((size - 1) / 2)
    ink = np.empty((len(points), size, size, 1), dtype=np.float32)
    for i, (one, r) in enumerate(zip(points, radius, strict=True)):
        dx2 = (axis[:, np.newaxis] - one[:, 0]) ** 2  # (size, q)
        dy2 = (axis[:, np.newaxis] - one[:, 1]) ** 2
        squared = (dy2[:, np.newaxis] + dx2[np.newaxis]).min(axis=-1)  # (size, size)
        ink[i, ..., 0] = np.clip(r + 0.5 - np.sqrt(squared), 0.0, 1.0)
    return ink


def _matrices(rows: list[list[np.ndarray]]) -> np.ndarray:
    """Matrices (n, 2, 2) from four entries (n,)."""
    return np.stack([np.stack(row, -1) for row in rows], -2)


def brush_glyphs(split: str, n: int, generator: Generator) -> photos.Drawn:
    """KMNIST: glyphs of ten classes, two forms each, in varying handwriting, (n, 28, 28, 1).

    Both splits are drawn in the same way.
    """
    labels = photos.balanced_labels(n, 10, generator)
    forms = _glyph_forms("kmnist", 10 * _FORMS)
    control = forms[_FORMS * labels + generator.integers(_FORMS, size=n)]
    control = control + generator.normal(0.0, 0.07, control.shape)
    turn, slant = generator.normal(0.0, 0.12, n), generator.normal(0.0, 0.15, n)
    width, height = generator.uniform(0.8, 1.0, (2, n))
    cos, sin = np.cos(turn), np.sin(turn)
    matrix = _matrices([[cos, -sin], [sin, cos]]) @ _matrices(
        [[width, slant], [np.zeros(n), height]]
    )
    shift = generator.normal(0.0, 0.05, (n, 1, 2))  # in units of half an image
    points = _stroke_points(control) @ matrix.transpose(0, 2, 1) + shift  # (n, q, 2)
    ink = _brush_ink(14 * points, generator.uniform(0.7, 1.5, n), 28)
    full = generator.uniform(190.0, 255.0, (n, 1, 1, 1))
    return np.rint(full * ink).astype(np.uint8), labels


_RED, _BLUE, _YELLOW = (190, 30, 40), (25, 80, 165), (240, 190, 40)
_WHITE, _BLACK, _GREY = (235, 235, 235), (30, 30, 30), (130, 130, 130)
_RIM = 0.24  # width of the rim, in units of the sign's radius
_ENDS_OF_RESTRICTIONS = (6, 32, 41, 42)
_WARNINGS = (11, *range(18, 32))


@dataclass(frozen=True)
class _Sign:
    """Appearance of the signs of a class."""

    corners: int = 0  # of the outline; a circle has none
    turn: float = 0.0  # of the outline, in radians
    rim: Colour = _RED
    field: Colour = _WHITE
    ink: Colour | None = _BLACK  # of the pictogram; None if the class has none


# The 43 classes as numbered in GTSRB; by default speed limits and prohibitions.
_SIGNS = dict.fromkeys(range(43), _Sign())
_SIGNS |= dict.fromkeys(_ENDS_OF_RESTRICTIONS, _Sign(rim=_WHITE, ink=_GREY))
_SIGNS |= dict.fromkeys(_WARNINGS, _Sign(3, -np.pi / 2))
_SIGNS |= dict.fromkeys(range(33, 41), _Sign(rim=_BLUE, field=_BLUE, ink=_WHITE))  # orders
_SIGNS |= {
    12: _Sign(4, 0.0, _WHITE, _YELLOW, None),  # priority road
    13: _Sign(3, np.pi / 2, ink=None),  # yield
    14: _Sign(8, np.pi / 8, _WHITE, _RED, _WHITE),  # stop
    15: _Sign(ink=None),  # closed to vehicles
    17: _Sign(field=_RED, ink=_WHITE),  # no entry
}


def _depth(style: _Sign, points: np.ndarray) -> np.ndarray:
    """Distance of points (..., 2) from the outline, positive inside, in units of its radius."""
    if style.corners == 0:
        return 1.0 - np.linalg.norm(points, axis=-1)
    # A side's normal points midway between two corners.
    angles = style.turn + np.pi * (2 * np.arange(style.corners) + 1) / style.corners
    normals = np.stack([np.cos(angles), np.sin(angles)])  # (2, corners)
    return np.cos(np.pi / style.corners) - (points @ normals).max(axis=-1)


def _pictogram(label: int) -> np.ndarray:
    """Points of a class's pictogram in the unit circle, (q, 2)."""
    if label == 17:
        x = np.linspace(-0.6, 0.6, 24)
        return np.stack([x, np.zeros_like(x)], axis=1)
    points = 0.55 * _stroke_points(_glyph_forms("signs", len(_SIGNS))[label])
    if label in _ENDS_OF_RESTRICTIONS:
        x = np.linspace(-0.7, 0.7, 24)
        points = np.concatenate([points, np.stack([x, -x], axis=1)])
    if label in _WARNINGS:
        points = 0.62 * points + np.array([0.0, 0.08])  # a triangle has less room
    return points


def _signs_of_class(label: int, images: np.ndarray, generator: Generator) -> np.ndarray:
    """Signs of one class over backgrounds (n, SIZE, SIZE, 3), same shape."""
    n, style = len(images), _SIGNS[label]
    radius = generator.uniform(11.0, 15.0, (n, 1, 1))  # pixels
    turn = generator.normal(0.0, 0.07, n)
    squeeze = generator.uniform(0.85, 1.0, n)  # seen from the side
    shift = generator.uniform(-1.5, 1.5, (n, 1, 2))
    cos, sin = np.cos(turn), np.sin(turn)
    matrix = radius * _matrices([[cos * squeeze, -sin], [sin * squeeze, cos]])  # sign to pixels

    axis = np.arange(photos.SIZE) - (photos.SIZE - 1) / 2
    pixels = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(1, -1, 2)
    on_sign = (pixels - shift) @ np.linalg.inv(matrix).transpose(0, 2, 1)  # (n, SIZE², 2)
    depth = _depth(style, on_sign).reshape(*images.shape[:3], 1) * radius[..., np.newaxis]
    rim = _RIM * (0.6 if style.corners == 3 else 1.0) * radius[..., np.newaxis]

    layers = [(style.rim, np.clip(depth + 0.5, 0, 1)), (style.field, np.clip(depth - rim, 0, 1))]
    if style.ink is not None:
        points = _pictogram(label) @ matrix.transpose(0, 2, 1) + shift  # (n, q, 2)
        brush = 0.085 * radius[:, 0, 0] * (1.6 if label == 17 else 1.0)
        layers.append((style.ink, _brush_ink(points, brush, photos.SIZE)))
    light = generator.uniform(0.35, 1.1, (n, 1, 1, 1))
    for colour, alpha in layers:
        images = (1 - alpha) * images + alpha * light * np.array(colour)
    return images


def traffic_signs(split: str, n: int, generator: Generator) -> photos.Drawn:
    """GTSRB: signs of 43 classes on photograph patches, with varying light and view.

    The splits share no patches; (n, 32, 32, 3).
    """
    labels = photos.balanced_labels(n, len(_SIGNS), generator)
    images = photos.backgrounds(split, generator.integers(len(photos.REGIONS), size=n), generator)
    for label in _SIGNS:
        chosen = np.flatnonzero(labels == label)
        images[chosen] = _signs_of_class(label, images[chosen], generator)
    return photos.as_pixels(images, generator), labels


_FACE_SIZE, _OVERSAMPLING = 96, 2
_SKIN = ((250, 220, 195), (225, 180, 145), (190, 140, 105), (140, 95, 65), (95, 65, 45))
_HAIR = ((30, 25, 25), (80, 50, 30), (150, 105, 60), (200, 170, 110), (130, 130, 130))
_FRAMES = ((20, 20, 20), (70, 40, 25), (120, 20, 25), (60, 60, 75), (165, 150, 110))


class _Canvas:
    """An image to draw on, in pixels of the final image relative to the centre of the face."""

    def __init__(self, background: Colour, centre: tuple[float, float], scale: float) -> None:
        side = _FACE_SIZE * _OVERSAMPLING
        self.image = Image.new("RGB", (side, side), background)
        self._draw = ImageDraw.Draw(self.image)
        self._centre, self._scale = centre, scale

    def shape(self, kind: str, x: float, y: float, rx: float, ry: float, **options: Any) -> None:
        """Draw one of Pillow's shapes around (x, y); a width or corner radius is scaled."""
        (cx, cy), s = self._centre, self._scale
        corners = (cx + s * (x - rx), cy + s * (y - ry), cx + s * (x + rx), cy + s * (y + ry))
        for key in options.keys() & {"width", "radius"}:
            options[key] = max(1, round(_OVERSAMPLING * s * options[key]))
        getattr(self._draw, kind)([_OVERSAMPLING * value for value in corners], **options)

    def line(self, x0: float, y0: float, x1: float, y1: float, fill: Colour, width: float) -> None:
        """Draw a straight line between two points."""
        half = (x1 - x0) / 2, (y1 - y0) / 2
        self.shape("line", (x0 + x1) / 2, (y0 + y1) / 2, *half, fill=fill, width=width)

    def pixels(self) -> np.ndarray:
        """The image, float64 (96, 96, 3), 0 to 255."""
        small = self.image.resize((_FACE_SIZE, _FACE_SIZE), Image.Resampling.BOX)
        return np.asarray(small, dtype=np.float64)


def _shaded(colour: Colour, factor: float) -> Colour:
    return tuple(min(255, round(factor * value)) for value in colour)


def _pick(colours: tuple[Colour, ...], generator: Generator) -> Colour:
    return _shaded(colours[generator.integers(len(colours))], generator.uniform(0.85, 1.1))


def _any_colour(lowest: int, below: int, generator: Generator) -> Colour:
    return tuple(generator.integers(lowest, below, size=3).tolist())


def _face(glasses: bool, generator: Generator) -> np.ndarray:
    """One face, float64 (96, 96, 3), 0 to 255."""
    background = _any_colour(40, 230, generator)
    x, y = 48 + generator.normal(0.0, 2.0, size=2) + np.array([0.0, 4.0])
    canvas = _Canvas(background, (x, y), generator.uniform(0.9, 1.08))
    skin, hair = _pick(_SKIN, generator), _pick(_HAIR, generator)
    width, height = generator.uniform(24, 29), generator.uniform(31, 36)
    eye_y, eye_x = generator.uniform(-8, -5), generator.uniform(10.5, 13)
    dark = _shaded(skin, 0.72)

    neck = _shaded(skin, 0.85)
    canvas.shape("rectangle", 0, 48, generator.uniform(8, 13), 22, fill=neck)
    canvas.shape("ellipse", 0, 66, 38, 18, fill=_any_colour(20, 235, generator))
    crown = height * generator.uniform(0.85, 1.0)
    canvas.shape("ellipse", 0, -10, width + 4, crown, fill=hair)
    if generator.random() < 0.45:  # long hair
        canvas.shape("rectangle", -width, 14, 6, 26, fill=hair)
        canvas.shape("rectangle", width, 14, 6, 26, fill=hair)
    for side in (-1, 1):
        canvas.shape("ellipse", side * width, 0, 4, 7, fill=dark)  # ears
    canvas.shape("ellipse", 0, 0, width, height, fill=skin)
    fringe = generator.uniform(5, 13)
    canvas.shape("ellipse", 0, -height + 3, width * 0.8, fringe, fill=hair)
    brow = eye_y - generator.uniform(6, 8.5)
    open_eye = generator.uniform(1.6, 3.2)
    for side in (-1, 1):
        x = side * eye_x
        canvas.shape("ellipse", x, eye_y, 5, open_eye, fill=(240, 240, 240))
        pupil = x + generator.normal(0, 0.5)
        canvas.shape("ellipse", pupil, eye_y, 2.2, min(2.2, open_eye), fill=(50, 40, 40))
        canvas.line(x - 6, brow, x + 6, brow, hair, generator.uniform(1.2, 2.6))
    canvas.line(0, eye_y + 3, generator.uniform(-2, 2), 7, dark, 1.6)  # nose
    if generator.random() < 0.25:  # beard
        canvas.shape("ellipse", 0, 24, width * 0.6, 10, fill=hair)
    lips = {"fill": _shaded((185, 80, 80), generator.uniform(0.7, 1.2)), "width": 2.2}
    mouth = generator.uniform(8, 12), generator.uniform(7, 12)
    canvas.shape("arc", 0, *mouth, 9, start=20, end=160, **lips)
    if glasses:
        _draw_glasses(canvas, eye_x, eye_y, width, generator)
    return canvas.pixels()


def _draw_glasses(
    canvas: _Canvas, eye_x: float, eye_y: float, width: float, generator: Generator
) -> None:
    colour = _pick(_FRAMES, generator)
    round_ = generator.random() < 0.5
    kind, corner = ("ellipse", {}) if round_ else ("rounded_rectangle", {"radius": 3})
    rx, ry = generator.uniform(7.5, 9.5), generator.uniform(5.5, 8)
    y = eye_y + generator.uniform(0, 1.5)
    sunglasses = generator.random() < 0.25
    for side in (-1, 1):
        if sunglasses:
            canvas.shape("ellipse", side * eye_x, y, rx, ry, fill=_shaded(colour, 0.7))
        canvas.shape(kind, side * eye_x, y, rx, ry, outline=colour, width=1.6, **corner)
    canvas.line(-eye_x + rx, y - 1, eye_x - rx, y - 1, colour, 1.6)  # bridge
    canvas.line(-width, y - 2, -eye_x - rx, y - 1, colour, 1.3)
    canvas.line(eye_x + rx, y - 1, width, y - 2, colour, 1.3)


def drawn_faces(split: str, n: int, generator: Generator) -> photos.Drawn:
    """CelebA: faces of many colours and shapes, half of them with glasses (label 1).

    Both splits are drawn in the same way; (n, 96, 96, 3).
    """
    labels = photos.balanced_labels(n, 2, generator)
    x = np.empty((n, _FACE_SIZE, _FACE_SIZE, 3), dtype=np.uint8)
    for i, label in enumerate(labels):
        light = generator.uniform(0.7, 1.15)
        x[i] = photos.as_pixels(light * _face(bool(label), generator), generator)
    return x, labels
