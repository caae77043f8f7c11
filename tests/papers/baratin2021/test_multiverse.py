"""The open settings reach the runs."""

import pytest

from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.multiverse.design import load_multiverses
from feature_alignment.pipeline.multiverse.plan import block_specs

GROUPS = {name: g for name, g in load_multiverses().items() if name.startswith("baratin2021_")}


@pytest.mark.parametrize("name", GROUPS)
def test_no_two_universes_have_the_same_runs(name, root):
    config = resolve_config({}, root / "workflow", preset="laptop")
    told = [u for block in block_specs(name, GROUPS[name], config) for u in block["universes"]]
    assert len({str(sorted(u["runs"].items())) for u in told}) == len(told)
