"""Configs are merged in the documented order, and every mistake is one clear sentence."""

import re
from pathlib import Path

import pytest
import yaml

from feature_alignment.errors import UserError
from feature_alignment.pipeline.config import (
    PRESETS,
    config_model,
    describe_keys,
    load_preset,
    resolve_config,
)
from feature_alignment.pipeline.parameters import Geometric, Section, Several, check
from feature_alignment.pipeline.plan import make_plan
from feature_alignment.pipeline.yaml_files import read_entries, read_mapping, read_yaml
from hostile_configs import LAUGHS, planned, told

WIDE = (
    "b: &b {" + ", ".join(f"k{i}: 1" for i in range(2000)) + "}\nc: {<<: [" + "*b, " * 2000 + "]}"
)
MERGED = "\n".join(
    ["a0: &a0 {b: 1}", *(f"a{i + 1}: &a{i + 1} {{<<: [*a{i}, *a{i}]}}" for i in range(40))]
)
MALFORMED = yaml.safe_load((Path(__file__).parent / "malformed_configs.yaml").read_text())


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_config_is_one_clear_sentence(root, tmp_path, case):
    """Told as the command tells it, which tests/workflow has some of these and any others for."""
    config = tmp_path / "mine.yaml"
    config.write_text(MALFORMED[case]["config"])
    sentence = told(lambda: planned([root / "config.yaml", config], root / "workflow"))
    assert sentence is not None
    assert re.search(MALFORMED[case]["says"], sentence), sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


def test_a_figure_must_be_of_a_selected_paper(root):
    user = {"papers": ["example2030"], "figures": ["baz2000_fig1"]}
    with pytest.raises(UserError, match="figures: unknown figure 'baz2000_fig1'"):
        make_plan(resolve_config(user, root / "workflow"))
    first = make_plan(resolve_config({}, root / "workflow")).figures[0]
    user = {"papers": ["example2030"], "figures": [first]}
    with pytest.raises(UserError, match=rf"{first} is not a figure of the selected papers"):
        make_plan(resolve_config(user, root / "workflow"))


def test_the_sentence_names_the_file_that_holds_the_mistake(root, tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("threads: 2\n")
    second.write_text("threads: -1\n")
    with pytest.raises(UserError, match=rf"^{re.escape(str(second))}: threads: found -1"):
        resolve_config({"threads": -1}, root / "workflow", files=[first, second])
    with pytest.raises(UserError, match=r"^--config: device: "):
        resolve_config({"device": "gpu"}, root / "workflow", files=[first, second])


def test_what_is_typed_wins_and_is_blamed(root, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("device: cuda\nthreads: 2\n")
    typed = read_entries(["device=gpu", "experiments={example2030_coin: {throws: 3}}", "name='7'"])
    assert typed["experiments"] == {"example2030_coin": {"throws": 3}}
    with pytest.raises(UserError, match=r"^--config: device: found 'gpu'"):
        resolve_config(read_yaml(file), root / "workflow", files=[file], typed=typed)
    typed["device"] = "cpu"
    config = resolve_config(read_yaml(file), root / "workflow", files=[file], typed=typed)
    assert (config.device, config.threads, config.name) == ("cpu", 2, "7")
    assert config.experiments.example2030_coin.throws == 3
    with pytest.raises(UserError, match=r"^--config: figures: '\[a' is not valid YAML"):
        read_entries(["figures=[a"])


@pytest.mark.parametrize("text", ["a: 1\n\tb: 2", "a: b: c", "a: [1", "a: 'b"])
def test_what_is_no_yaml_is_told_with_its_line_and_the_cure(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        read_yaml(file)
    assert re.fullmatch(
        rf"{file}: is not valid YAML \([^\n]+ at line \d, column \d+\); indent by spaces, .*\.",
        str(caught.value),
    )


def test_a_key_given_twice_is_refused_and_a_merge_is_not(tmp_path):
    file = tmp_path / "twice.yaml"
    file.write_text("a: {x: 1, x: 2}\n")
    with pytest.raises(UserError, match=r"twice\.yaml.*the key 'x' is given twice"):
        read_yaml(file)
    file.write_text("a: &a {x: 1}\nb:\n  <<: *a\n  x: 2\n")
    assert read_yaml(file) == {"a": {"x": 1}, "b": {"x": 2}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LAUGHS, "holds more than 100000 values"),
        (MERGED, "merges more than 100000 keys"),
        (WIDE, "merges more than 100000 keys"),
        ("a: &a {b: *a}", "or more than 40 levels"),
        ("a: &a [*a, *a]", "or more than 40 levels"),
        ("[" * 50 + "]" * 50, "or more than 40 levels"),
        ("a: " + "9" * 5000, r"is not valid YAML \(Exceeds the limit"),
        ("a: 2001-99-99", r"is not valid YAML \(month must be"),
        ("a: !!bool maybe", r"is not valid YAML \('maybe'\)"),
        ("a: !!python/object/apply:os.abort []", "could not determine a constructor for the tag"),
    ],
)
def test_what_yaml_would_make_endless_or_fails_at_is_refused(tmp_path, text, says):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UserError, match=says):
        read_yaml(tmp_path / "c.yaml")


THOUSAND = "- &a [" + "1, " * 998 + "1]\n"  # a list and what is in it


@pytest.mark.parametrize(
    ("most", "more"),
    [
        (THOUSAND + "- *a\n" * 98 + "- 1\n" * 999, "- 1"),  # and the outermost list
        ("a:\n" + "- " * 39 + "1\n", "b: [" + "[" * 39 + "1" + "]" * 40),
    ],
)
def test_a_file_may_hold_as_much_as_it_is_told(tmp_path, most, more):
    file = tmp_path / "c.yaml"
    file.write_text(most)
    assert read_yaml(file)
    file.write_text(most + more)
    with pytest.raises(UserError, match="more than 100000 values, or more than 40 levels"):
        read_yaml(file)


def test_later_settings_win(root):
    def descent(**user):
        return resolve_config(user, root / "workflow").experiments.example2030_descent

    default, preset = descent(preset="paper"), descent(preset="smoke")
    user = descent(preset="smoke", experiments={"example2030_descent": {"steps": 7}})
    assert (default.samples, default.steps, preset.steps, user.steps) == (50, 100, 20, 7)
    assert user.but(steps=20) == preset


def test_a_preset_in_the_place_of_the_users_makes_the_result_of_its_own_name(root):
    user = {"preset": "quick", "name": "mine"}
    assert resolve_config(user, root / "workflow").result == "mine"
    assert resolve_config(user, root / "workflow", preset="smoke").result == "smoke"


class Nested(Section):
    """A section whose schedule has other defaults than the schedule's own."""

    measure_at: Geometric = Geometric(first=10, ratio=2.0)
    widths: Several[int] = (1, 2)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"measure_at": {"ratio": 0.5}}, r"measure_at\.ratio: found 0.5, a value above 1"),
        ({"widths": [1, 1]}, r"widths: found \[1, 1\], in which an item is repeated"),
        ({"widths": []}, "widths: found an empty list, at least one item"),
        ({"widths": [1, 2.0]}, r"widths\.1: found 2.0 \(number\), .*integer"),
        ([1], r"holds \[1\] \(list\) where a mapping of keys is needed"),
    ],
)
def test_sections_and_lists_are_checked_inside(values, says):
    with pytest.raises(UserError, match=says):
        check(Nested, values, lambda _: "mine.yaml")


def test_an_empty_file_is_an_empty_mapping_and_nothing_else_is(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("# nothing yet\n")
    assert read_mapping(path) == {}
    for text in ("[]", "0", "false", "''"):
        path.write_text(text)
        with pytest.raises(UserError, match=r"mine\.yaml: holds .* where a mapping of keys"):
            read_mapping(path)


def test_a_section_that_is_changed_is_checked_again():
    assert Nested().but(widths=[3]).widths == (3,)
    assert Nested().measure_at.first == 10
    with pytest.raises(UserError, match="Nested: hights: unknown key; allowed"):
        Nested().but(hights=[3])
    with pytest.raises(UserError, match=r"Nested: widths: found an empty list"):
        Nested().but(widths=[])


def test_keys_of_a_section_that_are_not_given_keep_its_defaults(root):
    model = config_model()
    for name, field in model.model_fields["experiments"].annotation.model_fields.items():
        section = field.get_default(call_default_factory=True)
        schedule = getattr(section, "measure_at", None)
        if isinstance(schedule, Geometric):
            user = {"preset": "paper", "experiments": {name: {"measure_at": {"ratio": 1.7}}}}
            found = getattr(resolve_config(user, root / "workflow").experiments, name)
            assert found.measure_at == schedule.but(ratio=1.7)


def test_sections_with_every_line_commented_out_are_empty(root):
    settings = yaml.safe_load("experiments:\n#  x: 1\ndatasets:\nresources: {mem_mb: 900}")
    merged = resolve_config(settings, root / "workflow")
    assert merged.resources.mem_mb == 900
    assert merged.experiments.example2030_descent.samples == 50


def test_an_empty_section_leaves_that_of_an_earlier_file(root, tmp_path):
    texts = "experiments: {example2030_descent: {steps: 25}}", "device: cpu\nexperiments:\n#  x: 1"
    files = [tmp_path / "config.yaml", tmp_path / "mine.yaml"]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    merged = {**read_yaml(files[0]), **read_yaml(files[1])}  # as by Snakemake
    for typed in ({}, {"experiments": {"example2030_descent": {"samples": 7}}}):
        user = {**merged, **typed}
        config = resolve_config(user, root / "workflow", files=files, typed=typed)
        assert config.device == "cpu"
        assert config.experiments.example2030_descent.steps == 25
    assert config.experiments.example2030_descent.samples == 7
    of_a_module = resolve_config({}, root / "workflow", files=files)
    assert of_a_module.experiments.example2030_descent.steps == 100


def test_figures_may_be_listed_with_commas(root):
    user = {"figures": "example2030_fig2, example2030_fig1"}
    merged = resolve_config(user, root / "workflow")
    assert make_plan(merged).figures == ("example2030_fig1", "example2030_fig2")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_change_sizes_never_science(root, preset):
    settings, origin = load_preset(root / "workflow", preset)
    science = re.compile(r"learning_rate|momentum|scale|bias|activation|rank|classes|precision")
    for name, section in settings["experiments"].items():
        assert not [key for key in section if science.search(key)], origin[name]


def test_every_key_has_a_description_and_a_default():
    for line in describe_keys():
        assert re.match(r"[\w.]+( = .+)?: \S", line), line
        assert "PydanticUndefined" not in line, line


class Described(Section):
    width: int = 4
    """Units of a layer,
    the same for all."""


def test_a_docstring_describes_its_key_on_one_line():
    assert list(describe_keys(Described)) == ["width = 4: Units of a layer, the same for all."]
    described = Described.model_json_schema()["properties"]["width"]["description"]
    assert described == "Units of a layer, the same for all."


class Redescribed(Described):
    width: int = 8
    depth: int = 2
    """Layers."""
    inner: Described = Described()
    """What differs."""


def test_docstrings_are_those_of_the_class_that_defines_the_key_last():
    schema = Redescribed.model_json_schema()["properties"]
    about = {key: schema[key].get("description") for key in schema}
    assert about == {"width": None, "depth": "Layers.", "inner": "What differs."}


def test_the_schema_for_editors_is_closed():
    schema = config_model().model_json_schema()
    for name, part in {"": schema, **schema["$defs"]}.items():
        if part.get("type") == "object":
            assert part["additionalProperties"] is False, name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("laptop", "name: laptop is the folder of what preset laptop makes; choose another"),
        ("Quick", "name: Quick is the folder of what preset quick makes; choose another"),
        ("by_hand", "name: by_hand is the folder of other files; choose another"),
        ("README.md", "name: README.md is the folder of other files; choose another"),
        ("a/b", "name: found 'a/b', which does not fit the pattern"),
        ("", "name: found '', which does not fit the pattern"),
    ],
)
def test_a_name_that_is_no_folder_of_ones_own_is_refused(root, name, says):
    with pytest.raises(UserError, match=re.escape(says)):
        resolve_config({"preset": "smoke", "name": name}, root / "workflow")
