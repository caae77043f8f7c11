# The plan of the multiverse: what the rules of multiverse.smk look up.

from functools import partial

from feature_alignment.pipeline.multiverse.design import block_specs, load_multiverses
from feature_alignment.pipeline.proof import read_provenance
from feature_alignment.pipeline.spec import datasets_used

MULTIVERSES = one_sentence(load_multiverses)


@cache
def blocks_of(name, group):
    """What each job of a group runs."""
    if group not in MULTIVERSES:
        refuse(
            f"multiverse: unknown group {group!r}; {suggestion(group, MULTIVERSES)}."
        )
    plan = plan_of(name)
    return one_sentence(
        block_specs, group, MULTIVERSES[group], plan.config, plan.changes
    )


def groups_of(name):
    """The groups with a selected figure that a result's preset runs."""
    plan = plan_of(name)
    run = [
        group
        for group, multiverse in MULTIVERSES.items()
        if set(multiverse.figures) & set(plan.figures)
        and plan.config.preset in multiverse.sizes
    ]
    if not run:
        theirs = [m for m in MULTIVERSES.values() if set(m.figures) & set(plan.figures)]
        presets = sorted(
            {preset for multiverse in theirs for preset in multiverse.sizes}
        )
        refuse(
            "multiverse: no selected figure is part of a multiverse at preset "
            f"{plan.config.preset}; select others"
            + f", or another preset ({', '.join(presets)})" * bool(presets)
            + "."
        )
    return run


def group_claims(wildcards):
    """The verdicts of each selected group, and of the others those made at this preset, if any.

    The latter are used as they are: by absolute paths, which no job makes.
    """
    selected, preset = groups_of(wildcards.name), plan_of(wildcards.name).config.preset
    found = []
    for group in MULTIVERSES:
        file = Path("results", wildcards.name, "multiverse", group, "claims.csv")
        proof = file.with_name("claims.provenance.json")
        if group in selected:
            found.append(str(file))
        elif proof.exists():
            if one_sentence(read_provenance, proof)["spec"]["preset"] == preset:
                found.append(str(file.absolute()))
    return found


def gathered_spec(wildcards):
    """What the multiverse's page says about the result."""
    preset = plan_of(wildcards.name).config.preset
    left_out = [
        group for group in MULTIVERSES if preset not in MULTIVERSES[group].sizes
    ]
    return {"name": wildcards.name, "preset": preset, "left_out": left_out}


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
    """The modules that run a block."""
    runs = [run for u in block_spec(wildcards)["universes"] for run in u["runs"]]
    own = sorted({experiment_module(run.partition("/")[0]) for run in runs})
    return ["feature_alignment.pipeline.multiverse.blocks", *own]


def group_files(wildcards, suffix):
    """The archives of a group, or their provenance."""
    number = len(blocks_of(wildcards.name, wildcards.group))
    folder = f"results/{wildcards.name}/multiverse/{wildcards.group}"
    return [f"{folder}/{block}.{suffix}" for block in range(number)]


def group_spec(wildcards):
    """What a group's verdicts are made from."""
    plan, figures = plan_of(wildcards.name), MULTIVERSES[wildcards.group].figures
    told = plan.selection_spec(figures)
    kept = {key: told[key] for key in ("name", "preset", "figures")}
    return {**kept, "group": wildcards.group}


def group_modules(wildcards):
    """The modules that judge a group and make its figures' tables."""
    own = [figure_module(figure) for figure in MULTIVERSES[wildcards.group].figures]
    return ["feature_alignment.pipeline.multiverse.make", *own]


def open_settings(*groups):
    """Hash of the settings of some groups and of the ledgers."""
    said = [MULTIVERSES[group].model_dump_json() for group in groups]
    return hashlib.sha256("\0".join([*said, content(*ledgers())]).encode()).hexdigest()
