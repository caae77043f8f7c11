"""The jobs of a multiverse: which universes, and so which runs, each of them has."""

from collections.abc import Mapping
from typing import Any

from feature_alignment.pipeline.config import Config
from feature_alignment.pipeline.multiverse.design import BLOCK, Multiverse, Universe, universes
from feature_alignment.pipeline.plan import dataset_specs, make_spec, points_of
from feature_alignment.pipeline.spec import Spec, dataset_keys


def block_specs(name: str, group: Multiverse, config: Config) -> list[Spec]:
    """What each job of a group runs: its universes with their figures' points and specs."""
    data = dataset_specs(config)
    told = [_told(universe, group, config, data) for universe in universes(name, group, config)]
    return [
        {"multiverse": name, "universes": told[start : start + BLOCK]}
        for start in range(0, len(told), BLOCK)
    ]


def _told(
    universe: Universe, group: Multiverse, config: Config, data: Mapping[str, Spec]
) -> dict[str, Any]:
    figures, runs = {}, {}
    for figure in group.figures:
        points = points_of(figure, universe.settings)
        figures[figure] = [
            {"experiment": p.experiment, "name": p.name, "columns": dict(p.columns)} for p in points
        ]
        runs |= {f"{p.experiment}/{p.name}": make_spec(p, config, data) for p in points}
    return {
        "number": universe.number,
        "levels": dict(universe.levels),
        "figures": figures,
        "runs": runs,
    }


def data_used(spec: Spec) -> list[tuple[str, str]]:
    """The (dataset, source) pairs that a block's runs read, sorted."""
    runs = [run for universe in spec["universes"] for run in universe["runs"].values()]
    used = [run["data"][key] for run in runs for key in dataset_keys(run)]
    return sorted({(data["name"], data["source"]) for data in used})
