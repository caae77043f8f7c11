"""What the README says can be typed, can be."""

import re
from pathlib import Path

import pandas as pd
import pytest
import torch

from feature_alignment.pipeline.papers import all_figures, papers

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_python_runs():
    torch.manual_seed(0)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(block, names)  # each block goes on from those before it
    assert names["monitor"].measured == {0, 10, 20, 30}
    assert names["solver"].coefficients_


def test_the_figures_and_papers_it_names_exist():
    named = set(re.findall(rf"\b(?:{'|'.join(papers())})_fig\w+", README))
    assert named
    own = {"baratin2021_fig_mine"}  # what a reader adds
    assert named <= set(all_figures()) | own


# The cases of the benchmark in the order of the README's table of speeds, by model and samples.
SPEEDS = (
    *(("MLP, width 256", 100), ("MLP, width 1024", 30)),
    *(("timm-ResNet18", 16), ("ResNet18, width 16", 50)),
    *(("VGG19, width 16", 25), ("VGG19, width 16", 100)),
    *((name, 24) for name in ("ConvNeXt", "MobileNetV3")),
    ("GPT, width 64", 50),
    *((name, 24) for name in ("GPT-2", "LLaMA", "BERT", "ViT")),
    ("LSTM", 50),
    *((name, 24) for name in ("TransformerEncoder", "Mixer")),
)


@pytest.mark.parametrize(("column", "folder"), [(2, ""), (3, "intel")])
def test_its_speeds_are_those_that_were_measured(column, folder):
    rows = pd.read_csv(ROOT / "benchmarks" / folder / "tangent_kernel.csv")
    peers = rows[rows["way"].isin(["torch.func", "loop"])]
    best = peers.groupby(["model", "n"])["times_ours"].min()
    table = README.partition("| model | AMD EPYC | Intel Xeon |")[2].partition("\n\n")[0]
    told = [cell for row in table.splitlines()[2:] for cell in row.split("|")[column].split(",")]
    assert sorted(SPEEDS) == sorted(best.index)
    assert [cell.strip() for cell in told] == [
        f"{best[case]:.{0 if best[case] > 10 else 1}f}" for case in SPEEDS
    ]


def test_its_memory_is_the_most_that_a_packed_run_took():
    told = dict(re.findall(r"([\d.]+) GB(?: of memory)? at `(\w+)`", README))
    assert len(told) == 3
    for most, preset in told.items():
        runs = pd.read_csv(ROOT / "evidence" / preset / "runs.csv")
        assert f"{runs['peak_memory_mib'].max() * 2**20 / 1e9:.1f}" == most


def test_the_files_it_links_exist():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
