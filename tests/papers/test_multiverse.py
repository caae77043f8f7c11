"""Every paper's multiverse.yaml, at each preset that it names."""

import pytest

from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.multiverse.design import load_multiverses, universes
from feature_alignment.pipeline.multiverse.plan import block_specs

GROUPS = load_multiverses()
CASES = [(name, preset) for name, group in GROUPS.items() for preset in group.sizes]


@pytest.mark.parametrize(("name", "preset"), CASES)
def test_a_group_plans_runs_in_which_every_value_occurs(name, preset, root):
    config = resolve_config({"preset": preset}, root / "workflow")
    found = universes(name, GROUPS[name], config)
    for key, setting in GROUPS[name].settings.items():
        assert {universe.levels[key] for universe in found} == set(setting.levels)
    told = [u for block in block_specs(name, GROUPS[name], config) for u in block["universes"]]
    assert [u["number"] for u in told] == [u.number for u in found]
    # No two universes are the same: each setting reaches the runs.
    assert len({str(sorted(u["runs"].items())) for u in told}) == len(told)
