# The plan of the multiverse: what the rules of multiverse.smk look up.

from functools import partial

from feature_alignment.pipeline.multiverse.design import block_specs, load_multiverses
from feature_alignment.pipeline.spec import datasets_used

MULTIVERSES = one_sentence(load_multiverses)


@cache
def blocks_of(name, group):
    """What each job of a group runs."""
    if group not in MULTIVERSES:
        refuse(
            f"multiverse: unknown group {group!r}; {suggestion(group, MULTIVERSES)}."
        )
    return one_sentence(block_specs, group, MULTIVERSES[group], plan_of(name).config)


def groups_of(name):
    """The groups with a selected figure that a result's preset runs, and those that it leaves out."""
    plan = plan_of(name)
    shown = {
        group: multiverse
        for group, multiverse in MULTIVERSES.items()
        if set(multiverse.figures) & set(plan.figures)
    }
    run = [
        g for g, multiverse in shown.items() if plan.config.preset in multiverse.sizes
    ]
    return run, [group for group in shown if group not in run]


def block_spec(wildcards):
    """The universes of a block."""
    blocks = dict(enumerate(blocks_of(wildcards.name, wildcards.group)))
    if int(wildcards.block) not in blocks:
        refuse(
            f"multiverse: {wildcards.group} has no block {wildcards.block}; its last is {max(blocks)}."
        )
    return blocks[int(wildcards.block)]


def block_data(wildcards):
    """The canonical data files that a block reads."""
    universes = block_spec(wildcards)["universes"]
    used = datasets_used(run for u in universes for run in u["runs"].values())
    return data_files(wildcards, used)


def block_modules(wildcards):
    """The modules that a block is run with."""
    runs = [run for u in block_spec(wildcards)["universes"] for run in u["runs"]]
    own = sorted({experiment_module(run.partition("/")[0]) for run in runs})
    return ["feature_alignment.pipeline.multiverse.blocks", *own]


def group_files(wildcards, suffix):
    """The archives of a group, or their provenance."""
    number = len(blocks_of(wildcards.name, wildcards.group))
    folder = f"results/{wildcards.name}/multiverse/{wildcards.group}"
    return [f"{folder}/{block}.{suffix}" for block in range(number)]


def group_spec(wildcards):
    """What a group is judged by."""
    plan, figures = plan_of(wildcards.name), MULTIVERSES[wildcards.group].figures
    told = plan.selection_spec(figures)
    kept = {key: told[key] for key in ("name", "preset", "figures")}
    return {**kept, "group": wildcards.group}


def group_modules(wildcards):
    """The modules that a group is judged with, and its figures' tables are made with."""
    own = [figure_module(figure) for figure in MULTIVERSES[wildcards.group].figures]
    return ["feature_alignment.pipeline.multiverse.make", *own]


def open_settings(*groups):
    """Hash of what some groups' files and the ledgers say."""
    said = [MULTIVERSES[group].model_dump_json() for group in groups]
    return hashlib.sha256("\0".join([*said, content(*ledgers())]).encode()).hexdigest()


if "multiverse" in TARGETS and not groups_of(PLAN.name)[0]:
    refuse(
        f"multiverse: no multiverse.yaml of the selected papers has a size for preset "
        f"{CONFIG.preset}; choose another preset, such as quick."
    )
