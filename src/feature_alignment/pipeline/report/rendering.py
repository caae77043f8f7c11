"""Pages from templates, all in the style of `base.html.jinja`, and the pictures inside them."""

import base64
import io
from pathlib import Path
from typing import Any

import jinja2

from feature_alignment.pipeline.report.wording import (
    count_text,
    measured_text,
    number_text,
    stated_text,
)


def render(template: Path, **values: Any) -> str:
    """The page that a template makes from values; it may extend the templates of this folder."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number_text, "counted": count_text}
    environment.filters |= {"measured": measured_text, "stated": stated_text}
    return environment.get_template(template.name).render(**values)


def inline_picture(file: Path, widest: int = 960) -> dict[str, str | int]:
    """A PNG's `data` in base64 with its `width` and `height`, small enough for a page with many."""
    from PIL import Image  # a training's record is a page without pictures, and needs no Pillow

    with Image.open(file, formats=["PNG"]) as opened:
        picture = opened.convert("RGB")
    picture.thumbnail((widest, 2 * widest))
    written = io.BytesIO()
    palette = picture.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    palette.save(written, "PNG")  # optimising it would save 7 % in twice the time
    data = base64.b64encode(written.getvalue()).decode("ascii")
    return {"data": data, "width": picture.width, "height": picture.height}
