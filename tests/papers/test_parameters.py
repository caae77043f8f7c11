"""Every key that users can set does something."""

import json
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin

import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.papers import all_parameters
from feature_alignment.pipeline.parameters import Section, keys_of
from feature_alignment.pipeline.plan import make_plan

WORKFLOW = Path(__file__).parents[2] / "workflow"
# Numbers, and what a key that is null by default may be.
NUMBERS = [1.5, 0.5, 0.9, 2, 3, 5, 10, 1000, True, False]


def planned(experiment, settings):
    """The parameters of the experiment's runs by point, as text."""
    given = {"experiments": {experiment: settings}} if settings else {}
    plan = make_plan(resolve_config(given, WORKFLOW, preset="quick"))
    return {
        point: json.dumps(spec["parameters"], sort_keys=True)
        for (name, point), spec in plan.specs.items()
        if name == experiment
    }


def words(annotation):
    """The words that a type allows."""
    if get_origin(annotation) in (Union, UnionType) or get_args(annotation):
        return [word for part in get_args(annotation) for word in words(part)]
    return [annotation] if isinstance(annotation, str) else []


def others(value, annotation):
    """Values to try in the place of one, the likeliest first."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [
            value + 1,
            2 * value,
            value // 2,
            value - 1,
            1.5 * value,
            value / 2,
            0.9 * value,
            0.1,
        ]
    if isinstance(value, tuple | list):
        items = list(value)
        return [
            items[:-1],
            items[1:],
            [2 * i for i in items if isinstance(i, int | float)],
            NUMBERS[:2],
        ]
    return [word for word in words(annotation) if word != value] + [*NUMBERS, {"steps": 30}]


def keys(section, value, path=()):
    """Each key below a section with its path, value and type."""
    for key in keys_of(section):
        one = getattr(value, key)
        if isinstance(one, Section):
            yield from keys(type(one), one, (*path, key))
        else:
            annotation = section.model_fields[key].annotation
            if words(annotation) != [one]:  # which allows nothing else
                yield (*path, key), one, annotation


@pytest.mark.slow
@pytest.mark.parametrize("of", sorted(all_parameters()))
def test_every_key_changes_some_run(of):
    section = all_parameters()[of]
    config, before = resolve_config({}, WORKFLOW, preset="quick"), planned(of, {})
    for path, value, annotation in keys(section, getattr(config.experiments, of)):
        accepted, changed = False, False
        for other in others(value, annotation):
            settings = other
            for key in reversed(path):
                settings = {key: settings}
            try:
                after = planned(of, settings)
            except UserError:
                continue
            accepted, changed = True, after != before
            if changed:
                break
        name = f"{of}.{'.'.join(path)}"
        assert accepted, f"{name}: the test knows no other value"
        assert changed, f"{name}: other values change no run"
