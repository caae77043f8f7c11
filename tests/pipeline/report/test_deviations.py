import re

import pytest

from feature_alignment.pipeline.papers import all_figures, paper_files
from feature_alignment.pipeline.report.deviations import FIGURES, sections

PAGE = """# Where we differ

Before all.

## Figures 1 and 2: noise

<!-- figures: fig1 fig2 -->

| | ours |
|---|---|
| x < y | **2** |

### More <b>

## Theory

Nothing named.
"""


def test_a_page_is_cut_into_sections_that_name_their_figures(tmp_path):
    file = tmp_path / "deviations.md"
    file.write_text(PAGE, encoding="utf-8")
    before, noise, theory = sections(file)
    assert [part.title for part in (before, noise, theory)] == [
        "Where we differ",
        "Figures 1 and 2: noise",
        "Theory",
    ]
    assert [part.figures for part in (before, noise, theory)] == [[], ["fig1", "fig2"], []]
    assert "<strong>2</strong>" in noise.html
    assert "x &lt; y" in noise.html
    assert "<h4>More &lt;b&gt;</h4>" in noise.html
    assert "figures:" not in noise.html
    assert list(sections(tmp_path / "none.md")) == []


@pytest.mark.parametrize("file", paper_files("deviations.md"), ids=lambda file: file.parent.name)
def test_sections_name_figures_that_there_are(file):
    named = " ".join(re.findall(FIGURES, file.read_text(encoding="utf-8"))).split()
    assert {f"{file.parent.name}_{name}" for name in named} <= set(all_figures())
