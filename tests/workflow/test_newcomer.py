"""A newcomer's walk through the README: its commands, files and an own figure, as they stand there.

The preset is the smallest one, since the README's own takes minutes; nothing else is changed.
"""

import re
import shlex

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from feature_alignment.data.embedded import embedded_images

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def readme(root):
    """The README's text, for the smallest preset."""
    return (root / "README.md").read_text(encoding="utf-8").replace("/quick/", "/smoke/")


@pytest.fixture(scope="module")
def walked(tmp_path_factory, pipeline_class):
    copy = pipeline_class(tmp_path_factory.mktemp("newcomer") / "pipeline")
    config = copy.folder / "config.yaml"
    config.write_text(config.read_text().replace("preset: quick", "preset: smoke"))
    return copy


def blocks(text, kind):
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def commands(text):
    """The Snakemake commands of shell blocks, as lists of arguments."""
    lines = "".join(blocks(text, "sh")).splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("snakemake")]


def section(text, title):
    return re.search(rf"^##+ {title}$(.*?)(?=^##)", text, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.exhaustive
def test_the_recipes_work_one_after_the_other(readme, walked):
    recipes = section(readme, "Recipes")
    (walked.folder / "wide.yaml").write_text(blocks(recipes, "yaml")[0])
    one_figure, one_knob, compare, verify, replay, elsewhere, _ = commands(recipes)
    walked.succeed(*one_figure)
    baseline = walked.results()
    walked.succeed(*one_knob)
    walked.succeed(*compare)
    assert "are as they were written" in walked.succeed(*verify)
    assert "same" in walked.succeed(*replay)
    assert {name: walked.results()[name] for name in baseline} == baseline
    page = (walked.folder / "results/smoke/compare/wide.html").read_text(encoding="utf-8")
    assert "baratin2021_fourier: width" in page
    verdicts = pd.read_csv(walked.folder / "results/wide/selected/claims.csv")
    assert set(verdicts["changed"]) == {"width = 32"}
    figure = one_figure[-1].partition("=")[2]
    walked.succeed(*elsewhere, "--config", f"figures={figure}")
    other = walked.folder.parent / "elsewhere" / f"figures/smoke/{figure}.png"
    assert other.read_bytes() == baseline[f"figures/smoke/{figure}.png"]


def test_own_files_are_read_from_where_the_readme_names_them(readme, walked):
    settings = yaml.safe_load(blocks(section(readme, "Data"), "yaml")[0])
    # The published MNIST is not at hand: a file of one's own stands in for it.
    settings["datasets"]["mnist"] = {"source": "npz", "path": "mnist.npz"}
    (walked.folder / "own.yaml").write_text(yaml.safe_dump({"name": "own", **settings}))
    for name, options in settings["datasets"].items():
        path = walked.folder / options["path"]
        if options["source"] == "file":
            path.write_text("To read or not to read. " * 500)
            continue
        arrays, _ = embedded_images(name)
        if options["source"] == "npz":
            np.savez(path, **arrays)
        else:
            write_folder(path, arrays)
    targets = [
        f"results/own/data/{name}.{options['source']}.npz"
        for name, options in settings["datasets"].items()
    ]
    walked.succeed("--cores", "2", "--configfile", "own.yaml", "--", *targets)
    for target in targets:
        assert (walked.folder / target).exists()


def write_folder(folder, arrays):
    for split in ("train", "test"):
        counts = dict.fromkeys(range(10), 0)
        for image, label in zip(arrays[f"x_{split}"], arrays[f"y_{split}"], strict=True):
            if counts[int(label)] < 3:
                counts[int(label)] += 1
                file = folder / split / f"class{label}" / f"{counts[int(label)]}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image.squeeze()).save(file)


def test_an_own_figure_with_its_claim(readme, walked):
    text = section(readme, "Adding a figure, or a paper")
    paper = walked.folder / "src/feature_alignment/papers/baratin2021"
    (paper / "figures" / "mine.py").write_text('"""Mine."""\n\n' + blocks(text, "python")[0])
    with (paper / "claims.yaml").open("a", encoding="utf-8") as ledger:
        ledger.write(blocks(text, "yaml")[0])
    (command,) = commands(text)
    walked.succeed(*command)
    verdicts = pd.read_csv(walked.folder / "results/smoke/selected/claims.csv")
    assert verdicts["verdict"].tolist() == ["reproduced"]
    assert (walked.folder / "figures/smoke/baratin2021_fig_mine.png").exists()
    mine = paper / "figures" / "mine.py"
    mine.write_text(
        mine.read_text().replace('table.rows(metric="eigen', 'table.rows(metirc="eigen')
    )
    done = walked.run(*command)
    assert done.returncode != 0
    told = done.stdout + done.stderr
    assert re.search(r"draw of feature_alignment\.papers\.baratin2021\.figures\.mine failed", told)
    assert told.count("Traceback") == 1
