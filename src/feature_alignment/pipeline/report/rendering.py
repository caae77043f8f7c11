"""Pages from templates, all in one style: `base.html.jinja`."""

from pathlib import Path
from typing import Any

import jinja2

from feature_alignment.pipeline.report.wording import count_text, measured_text, number_text


def render(template: Path, **values: Any) -> str:
    """The page that a template makes of values; it may extend the templates of this folder."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number_text, "counted": count_text, "measured": measured_text}
    return environment.get_template(template.name).render(**values)
