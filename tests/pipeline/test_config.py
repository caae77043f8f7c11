"""Configs are merged in the documented order, and every mistake is one clear sentence."""

import re
from pathlib import Path

import pytest
import yaml

from feature_alignment.errors import UserError
from feature_alignment.pipeline.config import PRESETS, load_schema, read_yaml, resolve_config
from feature_alignment.pipeline.plan import make_plan

CHAIN = "beaglehole2024_chain_monomial"

MALFORMED = yaml.safe_load((Path(__file__).parent / "malformed_configs.yaml").read_text())


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_config_is_one_clear_sentence(root, case):
    with pytest.raises(UserError) as caught:
        make_plan(resolve_config(yaml.safe_load(MALFORMED[case]["config"]), root / "workflow"))
    sentence = str(caught.value)
    assert re.search(MALFORMED[case]["says"], sentence), sentence
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


def test_a_key_given_twice_is_refused_and_a_merge_is_not(tmp_path):
    file = tmp_path / "twice.yaml"
    file.write_text("a: {x: 1, x: 2}\n")
    with pytest.raises(UserError, match=r"twice\.yaml.*the key 'x' is given twice"):
        read_yaml(file)
    file.write_text("a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\n")
    assert read_yaml(file) == {"a": {"x": 1}, "b": {"x": 2}}


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
