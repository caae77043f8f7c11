"""Run the blocks of docs/tutorial.md; write what they print into it, and the pictures next to it.

    python tools/tutorial.py

The blocks run one after the other; their earlier output is replaced.
"""

import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tutorial.md"
PICTURES = PAGE.with_suffix("")  # the folder of the pictures
PRINTED = re.compile(r"\n\n```text\n.*?^```$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def executed(markdown: str) -> tuple[str, dict[str, bytes], dict[str, Any]]:
    """A page with what each of its Python blocks prints below it.

    Args:
        markdown: the page; each block continues from those before it.

    Returns:
        the page, the pictures that the blocks save, by name, and the variables that they define.
    """
    matplotlib.use("agg")
    pictures: dict[str, bytes] = {}
    names: dict[str, Any] = {}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block[1], names)
        text = "\n".join(map(str.rstrip, printed.getvalue().splitlines()))
        return block[0] + (f"\n\n```text\n{text}\n```" if text else "")

    with (
        tempfile.TemporaryDirectory() as scratch,
        contextlib.chdir(scratch),
        matplotlib.rc_context(),
    ):
        matplotlib.rcdefaults()
        page = BLOCK.sub(run, PRINTED.sub("", markdown))
        pictures |= {path.name: path.read_bytes() for path in sorted(Path().glob("*.png"))}
    return page, pictures, names


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    page, pictures, _ = executed(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for name, content in pictures.items():
        (PICTURES / name).write_bytes(content)
