"""Configs are merged in the documented order, and every mistake is one clear sentence."""

import re

import pytest
import yaml

from feature_alignment.config import PRESETS, load_schema, resolve_config
from feature_alignment.errors import UserError
from feature_alignment.plan import make_plan

CHAIN = "beaglehole2024_chain_monomial"

# Each malformed config, and what its sentence must say.
MALFORMED = {
    "unknown top-level key": ("presett: quick", r"presett: unknown key; did you mean 'preset'\?"),
    "unknown preset": ("preset: quik", r"preset: found 'quik'; did you mean 'quick'\?"),
    "unknown paper": ("papers: [baratin2012]", r"papers: unknown paper .* mean 'baratin2021'\?"),
    "unknown figure": ("figures: [baratin2021_fig99]", r"figures: unknown figure"),
    "figure of another paper": (
        "{papers: [baratin2021], figures: [lejeune2024_fig2]}",
        r"figures: lejeune2024_fig2 is not a figure of the selected papers \(baratin2021\)",
    ),
    "empty selection": ("figures: []", r"figures: found \[\] .*write all, or a list"),
    "repeated figure": (
        "figures: [lejeune2024_fig2, lejeune2024_fig2]",
        r"figures: found .*; write all, or a list of different names",
    ),
    "selection of a wrong type": ("papers: 3", r"papers: found 3 \(integer\); write all"),
    "unknown device": ("device: gpu", r"device: found 'gpu'; allowed: auto, cpu, cuda"),
    "threads of zero": ("threads: 0", r"threads: found 0, at least 1 is needed"),
    "fractional threads": ("threads: 1.5", r"threads: found 1.5 \(number\), .* type integer"),
    "boolean for a number": ("threads: true", r"threads: found True \(boolean\), .* integer"),
    "section given as a number": (
        "resources: 8000",
        r"resources: found 8000 \(integer\), .*object",
    ),
    "unknown experiment": (
        "experiments: {baratin2021_disc: {}}",
        r"experiments\.baratin2021_disc: unknown key; did you mean 'baratin2021_disk'\?",
    ),
    "unknown parameter": (
        f"experiments: {{{CHAIN}: {{widht: 8}}}}",
        rf"experiments\.{CHAIN}\.widht: unknown key; did you mean 'width'\?",
    ),
    "1e-3, which YAML reads as text": (
        f"experiments: {{{CHAIN}: {{learning_rate: 1e-3}}}}",
        rf"experiments\.{CHAIN}\.learning_rate: found '1e-3' \(text\).* write 0\.001",
    ),
    "negative width": (
        f"experiments: {{{CHAIN}: {{width: -4}}}}",
        rf"experiments\.{CHAIN}\.width: found -4, at least 1 is needed",
    ),
    "infinite learning rate": (
        f"experiments: {{{CHAIN}: {{learning_rate: .inf}}}}",
        rf"experiments\.{CHAIN}\.learning_rate: found inf; a finite number is needed",
    ),
    "nothing for a number": (
        f"experiments: {{{CHAIN}: {{width: }}}}",
        rf"experiments\.{CHAIN}\.width: found nothing, .* integer",
    ),
    "one class of two": (
        "experiments: {lejeune2024_digit_regression: {classes: [2]}}",
        r"classes: found 1 items, at least 2 are needed",
    ),
    "momentum of one": (
        "experiments: {lejeune2024_digit_regression: {momentum: 1}}",
        r"momentum: found 1, a value below 1 is needed",
    ),
    "unknown dataset": (
        "datasets: {mnst: {source: npz}}",
        r"datasets\.mnst: unknown key; did you mean 'mnist'\?",
    ),
    "unknown source": ("datasets: {mnist: {source: hub}}", r"datasets\.mnist\.source: found 'hub'"),
    "source without its path": ("datasets: {mnist: {source: npz}}", r"datasets\.mnist\.path: "),
    "path that is not there": (
        "datasets: {mnist: {source: npz, path: not/here.npz}}",
        r"datasets\.mnist\.path: .*not/here\.npz",
    ),
}


@pytest.mark.parametrize(("text", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_config_is_one_clear_sentence(root, text, message):
    with pytest.raises(UserError) as caught:
        make_plan(resolve_config(yaml.safe_load(text), root / "workflow"))
    sentence = str(caught.value)
    assert re.search(message, sentence), sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


def test_the_sentence_names_the_file_that_holds_the_mistake(root, tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("threads: 2\n")
    second.write_text("threads: -1\n")
    with pytest.raises(UserError, match=rf"^{re.escape(str(second))}: threads: found -1"):
        resolve_config({"threads": -1}, root / "workflow", files=[first, second])
    with pytest.raises(UserError, match=r"^--config: device: "):
        resolve_config({"device": "gpu"}, root / "workflow", files=[first, second])


def test_later_settings_win(root):
    workflow = root / "workflow"
    default = resolve_config({"preset": "paper"}, workflow)["experiments"][CHAIN]
    preset = resolve_config({"preset": "smoke"}, workflow)["experiments"][CHAIN]
    user = resolve_config({"preset": "smoke", "experiments": {CHAIN: {"width": 7}}}, workflow)[
        "experiments"
    ][CHAIN]
    assert (default["samples"], default["width"]) == (384, 128)
    assert preset["width"] < default["width"]
    assert user["width"] == 7
    assert {**user, "width": preset["width"]} == preset


def test_sections_with_every_line_commented_out_are_empty(root):
    settings = yaml.safe_load("experiments:\n#  x: 1\ndatasets:\nresources: {mem_mb: 900}")
    merged = resolve_config(settings, root / "workflow")
    assert merged["resources"]["mem_mb"] == 900
    assert merged["experiments"][CHAIN]["samples"] == 384


def test_figures_may_be_listed_with_commas(root):
    merged = resolve_config({"figures": "lejeune2024_fig2, baratin2021_fig1"}, root / "workflow")
    assert make_plan(merged).figures == ("baratin2021_fig1", "lejeune2024_fig2")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_change_sizes_never_science(root, preset):
    settings = yaml.safe_load((root / "workflow" / "presets" / f"{preset}.yaml").read_text())
    science = re.compile(r"learning_rate|momentum|scale|bias|activation|rank|classes|precision")
    for name, section in (settings.get("experiments") or {}).items():
        assert not [key for key in section if science.search(key)], name


def schema_nodes(schema, path=""):
    yield path, schema
    for key, value in schema.get("properties", {}).items():
        yield from schema_nodes(value, f"{path}.{key}")


def test_the_schema_is_closed_and_every_key_is_described_and_has_a_default(root):
    schema = load_schema(root / "workflow" / "schemas" / "config.schema.yaml")
    for path, node in schema_nodes(schema):
        assert node.get("description"), path
        if "properties" in node:
            assert node["additionalProperties"] is False, path
        else:
            assert "default" in node, path
