"""Drawn faces with and without glasses: the stand-in of CelebA's eyeglasses."""

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

from feature_alignment.data.embedded_photos import Drawn, as_pixels, balanced_labels

SIZE = 96
_OVERSAMPLING = 2
_SKIN = ((250, 220, 195), (225, 180, 145), (190, 140, 105), (140, 95, 65), (95, 65, 45))
_HAIR = ((30, 25, 25), (80, 50, 30), (150, 105, 60), (200, 170, 110), (130, 130, 130))
_FRAMES = ((20, 20, 20), (70, 40, 25), (120, 20, 25), (60, 60, 75), (165, 150, 110))

Colour = tuple[int, int, int]


class _Canvas:
    """An image to draw on in pixels of the final image, from the centre of the face."""

    def __init__(self, background: Colour, centre: tuple[float, float], scale: float) -> None:
        side = SIZE * _OVERSAMPLING
        self.image = Image.new("RGB", (side, side), background)
        self._draw = ImageDraw.Draw(self.image)
        self._centre = centre
        self._scale = scale

    def _box(self, x: float, y: float, rx: float, ry: float) -> list[float]:
        (cx, cy), s = self._centre, self._scale
        corners = (cx + s * (x - rx), cy + s * (y - ry), cx + s * (x + rx), cy + s * (y + ry))
        return [_OVERSAMPLING * value for value in corners]

    def _thickness(self, width: float) -> int:
        return max(1, round(_OVERSAMPLING * self._scale * width))

    def ellipse(self, x: float, y: float, rx: float, ry: float, colour: Colour) -> None:
        self._draw.ellipse(self._box(x, y, rx, ry), fill=colour)

    def box(self, x: float, y: float, rx: float, ry: float, colour: Colour) -> None:
        self._draw.rectangle(self._box(x, y, rx, ry), fill=colour)

    def ring(self, shape: str, x: float, y: float, rx: float, ry: float, colour: Colour) -> None:
        box, width = self._box(x, y, rx, ry), self._thickness(1.6)
        if shape == "round":
            self._draw.ellipse(box, outline=colour, width=width)
        else:
            self._draw.rounded_rectangle(
                box, radius=self._thickness(3), outline=colour, width=width
            )

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: Colour, w: float) -> None:
        left, top, right, bottom = self._box(
            (x0 + x1) / 2, (y0 + y1) / 2, (x1 - x0) / 2, (y1 - y0) / 2
        )
        self._draw.line([left, top, right, bottom], fill=colour, width=self._thickness(w))

    def arc(self, x: float, y: float, rx: float, ry: float, colour: Colour, w: float) -> None:
        self._draw.arc(self._box(x, y, rx, ry), 20, 160, fill=colour, width=self._thickness(w))

    def pixels(self) -> np.ndarray:
        small = self.image.resize((SIZE, SIZE), Image.Resampling.BOX)
        return np.asarray(small, dtype=np.float64)


def _shaded(colour: Colour, factor: float) -> Colour:
    red, green, blue = (min(255, round(factor * value)) for value in colour)
    return red, green, blue


def _pick(colours: tuple[Colour, ...], generator: Generator) -> Colour:
    return _shaded(colours[generator.integers(len(colours))], generator.uniform(0.85, 1.1))


def _any_colour(lowest: int, below: int, generator: Generator) -> Colour:
    red, green, blue = (int(value) for value in generator.integers(lowest, below, size=3))
    return red, green, blue


def _face(glasses: bool, generator: Generator) -> np.ndarray:
    """One face, float64 (SIZE, SIZE, 3), 0 to 255."""
    background = _any_colour(40, 230, generator)
    x, y = 48 + generator.normal(0.0, 2.0, size=2) + np.array([0.0, 4.0])
    canvas = _Canvas(background, (x, y), generator.uniform(0.9, 1.08))
    skin, hair = _pick(_SKIN, generator), _pick(_HAIR, generator)
    width, height = generator.uniform(24, 29), generator.uniform(31, 36)
    eye_y, eye_x = generator.uniform(-8, -5), generator.uniform(10.5, 13)
    dark = _shaded(skin, 0.72)

    canvas.box(0, 48, generator.uniform(8, 13), 22, _shaded(skin, 0.85))  # neck
    canvas.ellipse(0, 66, 38, 18, _any_colour(20, 235, generator))
    canvas.ellipse(0, -10, width + 4, height * generator.uniform(0.85, 1.0), hair)
    if generator.random() < 0.45:  # long hair
        canvas.box(-width, 14, 6, 26, hair)
        canvas.box(width, 14, 6, 26, hair)
    for side in (-1, 1):
        canvas.ellipse(side * width, 0, 4, 7, dark)  # ears
    canvas.ellipse(0, 0, width, height, skin)
    canvas.ellipse(0, -height + 3, width * 0.8, generator.uniform(5, 13), hair)  # fringe
    brow = eye_y - generator.uniform(6, 8.5)
    open_eye = generator.uniform(1.6, 3.2)
    for side in (-1, 1):
        x = side * eye_x
        canvas.ellipse(x, eye_y, 5, open_eye, (240, 240, 240))
        canvas.ellipse(x + generator.normal(0, 0.5), eye_y, 2.2, min(2.2, open_eye), (50, 40, 40))
        canvas.line(x - 6, brow, x + 6, brow, hair, generator.uniform(1.2, 2.6))
    canvas.line(0, eye_y + 3, generator.uniform(-2, 2), 7, dark, 1.6)  # nose
    if generator.random() < 0.25:  # beard
        canvas.ellipse(0, 24, width * 0.6, 10, hair)
    lips = _shaded((185, 80, 80), generator.uniform(0.7, 1.2))
    canvas.arc(0, generator.uniform(8, 12), generator.uniform(7, 12), 9, lips, 2.2)
    if glasses:
        _draw_glasses(canvas, eye_x, eye_y, width, generator)
    return canvas.pixels()


def _draw_glasses(
    canvas: _Canvas, eye_x: float, eye_y: float, width: float, generator: Generator
) -> None:
    colour = _pick(_FRAMES, generator)
    shape = "round" if generator.random() < 0.5 else "square"
    rx, ry = generator.uniform(7.5, 9.5), generator.uniform(5.5, 8)
    y = eye_y + generator.uniform(0, 1.5)
    sunglasses = generator.random() < 0.25
    for side in (-1, 1):
        if sunglasses:
            canvas.ellipse(side * eye_x, y, rx, ry, _shaded(colour, 0.7))
        canvas.ring(shape, side * eye_x, y, rx, ry, colour)
    canvas.line(-eye_x + rx, y - 1, eye_x - rx, y - 1, colour, 1.6)  # bridge
    canvas.line(-width, y - 2, -eye_x - rx, y - 1, colour, 1.3)
    canvas.line(eye_x + rx, y - 1, width, y - 2, colour, 1.3)


def drawn_faces(split: str, n: int, generator: Generator) -> Drawn:
    """Faces of many colours and shapes, half of them with glasses, see `embedded.StandIn`.

    Both splits are drawn alike; (n, 96, 96, 3), label 1 with glasses.
    """
    labels = balanced_labels(n, 2, generator)
    x = np.empty((n, SIZE, SIZE, 3), dtype=np.uint8)
    for i, label in enumerate(labels):
        light = generator.uniform(0.7, 1.15)
        x[i] = as_pixels(light * _face(bool(label), generator), generator)
    return x, labels
