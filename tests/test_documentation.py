"""Links that are written for the repository lead to pages of the site, or are told of."""

import logging
from types import SimpleNamespace

import pytest
from mkdocs.structure.files import File, Files


def on_site(tool, address, markdown):
    """The Markdown of a page on a site that has all of the pages."""
    addresses = [*tool.outside(), "engine.md", "tutorial.md"]
    files = Files([File(name, "docs", "site", use_directory_urls=False) for name in addresses])
    page = SimpleNamespace(file=files.get_file_from_path(address))
    return tool.on_page_markdown(markdown, page, None, files)


@pytest.mark.parametrize(
    ("address", "written", "shown"),
    [
        ("index.md", "[a](docs/engine.md#x)", "[a](engine.md#x)"),
        ("index.md", "![a](evidence/quick/figures/lejeune2024_fig1.png)", None),
        ("engine.md", "[a](../README.md)", "[a](index.md)"),
        ("engine.md", "[a](../src/feature_alignment/files.py)", "a"),
        ("engine.md", "[`a[0]`](https://example.org)", "[`a[0]`](https://example.org)"),
        ("engine.md", "```python\nx[0](y)\n```", "```python\nx[0](y)\n```"),
        ("deviations/lejeune2024.md", "[a](../../../../docs/engine.md)", "[a](../engine.md)"),
    ],
)
def test_links_lead_to_pages(tool, caplog, address, written, shown):
    shown = shown or written.replace("docs/", "")
    assert on_site(tool, address, written) == shown
    assert not caplog.records


def test_a_link_to_nothing_is_told(tool, caplog):
    with caplog.at_level(logging.WARNING):  # which ends a strict build
        on_site(tool, "engine.md", "[a](../src/nothing.py)")
    assert "docs/engine.md: links ../src/nothing.py, which does not exist" in caplog.text


def test_every_module_of_the_library_is_in_the_reference(tool):
    pages = "".join(tool.api_pages().values())
    for module in ("kernels.tangent", "pipeline.claims.evaluate", "errors", "instrument.monitor"):
        assert f"::: feature_alignment.{module}\n" in pages
    assert "papers." not in pages
    assert (
        "| [`fa.effective_rank`][feature_alignment.kernels.spectrum.effective_rank] | Eff" in pages
    )
