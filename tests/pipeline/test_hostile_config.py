"""Whatever stands in a configuration: it is valid, or one short sentence says why it is not."""

import functools
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_alignment.pipeline import config, plan
from hostile_configs import (
    SETTINGS,
    broken,
    configurations,
    general_keys,
    must_be_short,
    planned,
    told,
)

EXAMPLES = int(os.environ.get("HOSTILE_CONFIGS", "5000"))


@pytest.fixture(scope="module")
def at_work(tmp_path_factory, root):
    """A working folder; ledgers and presets, which no configuration changes, are read once."""
    patch = pytest.MonkeyPatch()
    patch.chdir(tmp_path_factory.mktemp("hostile"))
    patch.setattr(plan, "check_ledgers", lambda *files: None)
    patch.setattr(config, "load_preset", functools.cache(config.load_preset))
    yield Path("c.yaml")
    patch.undo()


def check(text, file, root, typed=()):
    file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    said = told(lambda: planned([file], root / "workflow", typed))
    if said is not None:
        must_be_short(said)
    return said


@settings(SETTINGS, max_examples=300)
@given(text=configurations() | broken())
def test_any_configuration_is_valid_or_one_sentence(at_work, root, text):
    check(text, at_work, root)


@pytest.mark.exhaustive
@settings(SETTINGS, max_examples=EXAMPLES * 3 // 5)
@given(text=configurations())
def test_any_values_are_valid_or_one_sentence(at_work, root, text):
    check(text, at_work, root)


@pytest.mark.exhaustive
@settings(SETTINGS, max_examples=EXAMPLES * 2 // 5)
@given(text=broken())
def test_any_text_is_valid_or_one_sentence(at_work, root, text):
    check(text, at_work, root)


@pytest.mark.parametrize("found", ["x" * 5000, ["x" * 5000], {"x" * 5000: 1}, "0x" + "f" * 5000])
def test_what_is_long_is_not_told_whole(at_work, root, found):
    for path, _default in general_keys():
        nested = functools.reduce(lambda inner, key: {key: inner}, reversed(path), found)
        check(yaml.safe_dump(nested), at_work, root)


@settings(SETTINGS, max_examples=100)
@given(key=st.sampled_from(("preset", "figures", "datasets", "x", "", "name")), text=st.text())
def test_anything_typed_is_valid_or_one_sentence(at_work, root, key, text):
    check("", at_work, root, [f"{key}={text}"])


def test_the_examples_hold_valid_and_invalid_ones(at_work, root):
    """Else what comes behind the first check would never be tried."""
    found = []

    # The same examples each time: chance would sometimes leave any bounds.
    @settings(SETTINGS, max_examples=120, derandomize=True)
    @given(text=configurations())
    def collect(text):
        found.append(check(text, at_work, root))

    collect()
    share = found.count(None) / len(found)
    assert 0.05 < share < 0.9, share
