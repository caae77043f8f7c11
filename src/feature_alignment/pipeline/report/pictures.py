"""Pictures as pages carry them: inline, in 256 colours."""

import base64
import io
from pathlib import Path

from PIL import Image


def inline_picture(file: Path, widest: int = 960) -> dict[str, str | int]:
    """A PNG's `data` in base64 with its `width` and `height`, small enough for a page of many.

    Raises:
        ValueError: if it is not a PNG file.
    """
    try:
        with Image.open(file, formats=["PNG"]) as opened:
            picture = opened.convert("RGB")
    except OSError:
        raise ValueError(f"{file} is not a PNG file") from None
    picture.thumbnail((widest, 2 * widest))
    written = io.BytesIO()
    palette = picture.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    palette.save(written, "PNG", optimize=True)
    data = base64.b64encode(written.getvalue()).decode("ascii")
    return {"data": data, "width": picture.width, "height": picture.height}
