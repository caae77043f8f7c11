"""What the papers leave open: every group can be run at each preset that it names."""

import math

import pytest

from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.multiverse.design import block_specs, load_multiverses
from feature_alignment.pipeline.papers import paper_of

GROUPS = {
    name: group for name, group in load_multiverses().items() if paper_of(name) != "example2030"
}


@pytest.mark.parametrize(
    ("name", "preset"), [(name, preset) for name, group in GROUPS.items() for preset in group.sizes]
)
def test_a_group_is_planned_at_each_preset_that_it_names(name, preset, root):
    config = resolve_config({}, root / "workflow", preset=preset)
    blocks = block_specs(name, GROUPS[name], config)
    found = [universe for block in blocks for universe in block["universes"]]
    assert len(found) >= min(16, math.prod(len(s.levels) for s in GROUPS[name].settings.values()))
    assert len({str(universe["levels"]) for universe in found}) == len(found)
    taken = {key: {u["levels"][key] for u in found} for key in GROUPS[name].settings}
    assert taken == {key: set(s.levels) for key, s in GROUPS[name].settings.items()}
    # No two universes are the same: each setting reaches the runs.
    assert len({str(sorted(u["runs"].items())) for u in found}) == len(found)
    assert all(run["parameters"]["seeds"] >= 2 for u in found for run in u["runs"].values())
