"""Griffe extension that prepares docstrings for MkDocs."""

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Shows the section `Example:` as code, and formulas such as E[a](x) not as links."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called with every object that has been read."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            prose = re.compile(r"^(?!\s*(?:>>>|\.\.\.)).*$", re.MULTILINE)
            obj.docstring.value = prose.sub(lambda line: line[0].replace("](", "]\\("), text)
