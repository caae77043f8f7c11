"""The pages that are generated from `evidence/`: verdicts, gallery, README's table, RO-Crate."""

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sizes
import yaml
from packed import (
    BAD,
    GOOD,
    KINDS,
    ROOT,
    TOLD,
    Packed,
    all_packed,
    best_robustness,
    best_verdicts,
    counted,
    decimals,
)

from feature_alignment.pipeline.claims.evaluate import CLOSE
from feature_alignment.pipeline.claims.ledger import load_ledger
from feature_alignment.pipeline.claims.rules import NEAR, Outcome
from feature_alignment.pipeline.figures.drawing import OVER_SEEDS
from feature_alignment.pipeline.figures.figure import figure_label
from feature_alignment.pipeline.papers import figure_named, figure_order, ledgers, paper_of, papers
from feature_alignment.pipeline.report.wording import count_text, measured_text, stated_text

MARKS = "<!-- verdicts: begin -->\n", "<!-- verdicts: end -->"
NO_REASONS: Mapping[str, str] = {}
VERDICTS_HEAD = """# Verdicts

Every claim, judged at the largest size at which it has been run; generated from `evidence/` by
`python tools/evidence.py pages`. The [README](../README.md#outputs-and-verdicts) explains the
verdicts, [deviations](deviations.md) why a claim came out as it did.

- **Ours**: what the criterion in `claims.yaml` bounds (a value, ratio, difference, correlation or
  logarithm), as mean ± standard deviation over seeds.
- **(ours)** behind a verdict: a control or question of our own, counted separately.
- **Close**: the deciding value is within one standard error of its bound, or of where *partly*
  ends, so that other seeds could well turn the verdict.
- **Readings**: in how many readings of the settings that a text leaves open the claim holds, of
  those whose networks learn the task; readings that differ only in values which never change the
  claim's result count once. The size follows if it is another one. *Not in ours* says
  that the claim does not hold in our own reading at the multiverse's sizes, which are smaller.
  A claim that is undecided for want of seeds counts as holding there if 95 % of its values agree.
"""
SIZES_DIFFER = """\
Every claim whose verdict differs between sizes, and why:

- *Too few to tell*: all networks agree at both sizes, but one size has too few of them to decide.
- *More seeds*: what was measured at one size begins with the same values, seed by seed, so that
  nothing but the number of seeds differs. (All twenty are no second sample beside the first five.)
- *May be chance*: networks disagree, or a mean is judged, and neither the votes (Fisher's exact
  test, 5 %) nor the means (Welch's t-test, 5 %) are shown to differ, which they seldom are with few
  networks.
- Otherwise the difference goes with the size, though of single statistics of several networks, such
  as a correlation over widths, nothing tells chance. The reason is what the tables of both sizes
  show; bear in mind that `quick` has stand-ins in the place of the data.
"""
FORMATS = {
    ".csv": "text/csv",
    ".xz": "application/x-xz",
    ".json": "application/json",
    ".png": "image/png",
    ".yaml": "application/yaml",
}
AUTHORS = "The feature-alignment developers"


def summary(verdicts: pd.DataFrame) -> str:
    """The README's table: how many claims of each paper and kind have which verdict."""
    lines = [
        "| paper | claims | reproduced or holds | partly | not | undecided | not testable yet |",
        "|---|---|---|---|---|---|---|",
    ]
    for key in papers():
        for kind, words in KINDS.items():
            own = verdicts[(verdicts["paper"] == key) & (verdicts["kind"] == kind)]
            if len(own):
                numbers = " | ".join(map(str, counted(own)))
                lines.append(f"| `{key}` | {len(own)} {words} | {numbers} |")
    return "\n".join(lines) + "\n"


def own_sizes(packed: list[Packed], verdicts: pd.DataFrame) -> str:
    """Below the table: how much was judged at the papers' own sizes, and on what."""
    whole = [one for one in packed if one.about["preset"] == "paper"]
    if not whole:
        return ""
    figures = {figure for one in packed for figure in one.about["figures"]}
    of_papers = verdicts[verdicts["kind"].isin(KINDS)]
    judged = (of_papers["preset"] == "paper").sum()
    return (
        f"\n{len(whole[0].about['figures'])} of the {len(figures)} figures, with {judged} of the "
        f"{len(of_papers)} claims, were made at the papers' own sizes, in "
        f"{whole[0].about['run_hours']:.1f} hours of a core "
        f"({', '.join(whole[0].about['devices'])}).\n"
    )


def decided_smaller(packed: list[Packed], verdicts: pd.DataFrame) -> str:
    """Below the table: how many undecided claims a smaller size decides by more networks, and how.

    Sizes without more networks do not count, since the difference may be chance.
    """
    papers_own = verdicts["kind"].isin(KINDS)
    undecided = papers_own & (verdicts["verdict"] == Outcome.UNDECIDED)
    found = sizes.disagreements({one.folder.name: one.claims for one in packed})
    pairs = [found[claim][:2] for claim in verdicts.index[undecided] if claim in found]
    turned = {
        claim for one in packed for told in one.again for claim in told["verdicts_that_differ"]
    }
    decided = [small.row for large, small in pairs if small.row["units"] > large.row["units"]]
    if not decided:
        return ""
    good, partly, bad, _, _ = counted(pd.DataFrame(decided))
    words = {"reproduced": good, "partly": partly, "not reproduced": bad}
    each = ", ".join(f"{number} {word}" for word, number in words.items() if number)
    unsteady = sum(row.name in turned for row in decided)
    each += f"; {unsteady} of them otherwise on another processor" if unsteady else ""
    return (
        f"\nOf the {undecided.sum()} undecided claims, {len(decided)} are decided at a smaller "
        f"size, by more networks ({each}): [which](docs/verdicts.md#where-sizes-disagree).\n"
    )


def weak(verdicts: pd.DataFrame) -> str:
    """Below the table: how many verdicts by means rest on one value, or could well change."""
    by_mean = verdicts["kind"].isin(set(KINDS) - {"mathematics"}) & verdicts["units"].isna()
    means = verdicts[by_mean & (verdicts["verdict"] != Outcome.NOT_TESTABLE)]
    one, close = (means["seeds"] == 1).sum(), means.apply(_is_close, axis=1).sum()
    near = means.assign(criterion=means["criterion"].astype(str))
    near = near[near["criterion"].str.startswith("the mean near")]
    near = near[near["verdict"] == Outcome.REPRODUCED]
    scale = near["paper_value"].abs()
    from_one = near["criterion"].str.contains("distance from 1")
    scale = scale.where(~from_one, np.minimum(scale, (1 - near["paper_value"]).abs()))
    far = ((near["ours"] - near["paper_value"]).abs() > NEAR * scale).sum()
    return (
        f"\n{len(near)} numbers are reproduced because ours is near the paper's (others keep a "
        f"bound). {far} of these differ by more than 10 % (of the number, or of its distance from "
        "1); they count because the paper's is a single network's, within two standard errors of "
        "ours. "
        f"{len(means)} verdicts are judged by a mean: {one} of them rest on one network, or on one "
        f"statistic of several networks, and in {close} more the deciding value is within one "
        "standard error of its bound, or of where *partly* ends (marked *close* in the list of all "
        "claims).\n"
    )


def by_quotation(verdicts: pd.DataFrame, quotes: Mapping[str, tuple[str, str]]) -> str:
    """Below the table: the claims taken together by paper and quotation, `quotes` by claim."""
    decided = [*GOOD, Outcome.PARTLY, *BAD]
    own = verdicts[verdicts["kind"].isin(KINDS) & verdicts["verdict"].isin(decided)]
    shares = own["verdict"].isin(GOOD).groupby(own.index.map(quotes.get)).mean()
    every, none = (shares == 1).sum(), (shares == 0).sum()
    return (
        "\nA statement that can be read in several ways, or is about several networks, counts once "
        f"for each. If claims with the same quotation are taken together, {len(shares)} statements "
        f"are decided: for {every} every decided claim is reproduced or holds, for "
        f"{len(shares) - every - none} some do, for {none} none does.\n"
    )


def verdicts_page(
    packed: list[Packed], verdicts: pd.DataFrame, reasons: Mapping[str, str] = NO_REASONS
) -> str:
    """`docs/verdicts.md`; `reasons` are those of `size_reasons`."""
    robustness = best_robustness(packed)
    parts = [
        VERDICTS_HEAD,
        "## Where the numbers are from\n",
        *map(_source, packed),
        "\n## Where sizes disagree\n",
        SIZES_DIFFER,
        sizes.table({one.folder.name: one.claims for one in packed}, reasons),
        "\n## What hangs on settings that the texts leave open\n",
        _readings(packed, robustness),
    ]
    for key, paper in papers().items():
        own = verdicts[verdicts["paper"] == key]
        if len(own):
            parts.append(f"\n## {paper.title}\n")
        for figure in sorted(own["figure"].unique(), key=figure_order):
            rows = _rows(own[own["figure"] == figure], robustness)
            parts.append(f"\n### {figure_label(figure)}\n\n{rows}")
    return "\n".join(parts)


def _source(packed: Packed) -> str:
    about = packed.about
    stand_ins = [data["name"] for data in about["datasets"] if data["stand_in"]]
    data = f"stand-ins of {', '.join(stand_ins)}" if stand_ins else "no stand-in"
    commits = ", ".join(commit[:7] for commit in about["commits"])
    devices = ", ".join(about["devices"])
    figures = count_text(len(about["figures"]), "figure")
    later, summed = (
        sorted({commit[:7] for commit in about.get(key, {}).values()})
        for key in ("pictures", "summaries")
    )
    lines = [
        f"- `{about['name']}` (preset `{about['preset']}`): {figures}, {data}; "
        f"commit {commits} ([which run at which](../evidence/{packed.folder.name}/runs.csv)); "
        f"{about['run_hours']:.1f} hours of runs on {devices}."
    ]
    if later:
        lines.append(f"Pictures were drawn again from its tables at {', '.join(later)}.")
    if summed:
        lines.append(
            f"Summaries in {len(about['summaries'])} tables were computed again from their other "
            f"rows at {', '.join(summed)}."
        )
    lines += [_again(told, list(about["figures"])) for told in packed.again]
    return "\n    - ".join(lines)


def _again(told: dict[str, Any], every: list[str]) -> str:
    differ = told["verdicts_that_differ"]
    words = [f"`{claim}`, {now} in place of {then}" for claim, (then, now) in differ.items()]
    figures = told.get("figures", every)
    left = [figure for figure in every if figure not in figures]
    named = left if len(left) < len(figures) else figures
    some = ("all figures but " if named is left else "") + ", ".join(f"`{one}`" for one in named)
    some = some if left else ""
    most = "up to " if told.get("values_counted_with_others") else ""
    return (
        f"Made again{' (' * bool(some)}{some}{')' * bool(some)} on "
        f"{', '.join(told['devices'])} at commit "
        f"{', '.join(commit[:7] for commit in told['commits'])}: {told['claims'] - len(differ)} of "
        f"{told['claims']} verdicts are the same, though {most}{told['values_that_differ']} values "
        f"differ"
        f"{' (' * bool(words)}{'; '.join(words)}{')' * bool(words)}."
    )


def size_reasons(folder: Path) -> dict[str, str]:
    """Reasons for different verdicts at different sizes, by claim; see `sizes.of_size`."""
    return yaml.safe_load((folder / "sizes.yaml").read_text(encoding="utf-8"))


def _readings(packed: list[Packed], robustness: pd.DataFrame) -> str:
    """How many claims are robust, and the ten that depend most on one open setting."""
    if robustness.empty:
        return "No multiverse has been packed.\n"
    parts = []
    for one in packed:
        if one.robustness is not None:
            told = json.loads((one.folder / "multiverse.json").read_text(encoding="utf-8"))
            parts += [f"- `{one.folder.name}`: {len(one.robustness)} claims."]
            parts += [f"    - {_part_of_multiverse(part)}" for part in told]
    depends = robustness["word"].str.startswith("depends on ")
    words = robustness["word"].mask(depends, "depends on a setting").value_counts()
    parts += ["", "| word | claims |", "|---|---|"]
    parts += [f"| {word} | {number} |" for word, number in words.items()]
    most = robustness[depends].sort_values(["difference", "p_value"], ascending=[False, True])
    parts += ["", "The ten that depend most on one setting:", ""]
    parts += ["| claim | holds in | on | differs by | at |", "|" + "---|" * 5]
    parts += [
        f"| `{claim}` | {_share(row)} | `{row['setting']}` | {row['difference']:.2f} "
        f"| {row['at']} |"
        for claim, row in most.head(10).iterrows()
    ]
    everywhere = robustness[robustness["holding"] == robustness["universes"]]
    parts += ["", f"Those that hold in all readings, {len(everywhere)}:", ""]
    names = everywhere.index.to_series()
    for figure, own in names.groupby(names.str.rsplit(".", n=1).str[0], sort=False):
        short = ", ".join(f"`{claim.rpartition('.')[2]}`" for claim in own)
        parts.append(f"- {figure}: {short}")
    return "\n".join(parts) + "\n"


def _part_of_multiverse(part: dict[str, Any]) -> str:
    commits = ", ".join(commit[:7] for commit in part["commits"])
    replaced = part.get("replaced", 0)
    with_others = f", those of {replaced} groups since made anew with them" if replaced else ""
    return (
        f"{part['universes']} readings, in groups {', '.join(part['groups'])}; commit {commits}; "
        f"{part['run_hours']:.1f} hours of runs{with_others}, on {', '.join(part['devices'])}."
    )


def _readings_of(row: pd.Series, judged_at: str) -> str:
    told = [row["at"]] if row["at"] != judged_at else []
    told += ["not in ours"] if row.get("default_holds") == 0 else []
    return _share(row) + (f" ({', '.join(told)})" if told else "")


def _is_close(row: pd.Series) -> bool:
    return CLOSE in str(row["reason"])


def _share(row: pd.Series) -> str:
    return f"{row['holding']:.0f} of {row['universes']:.0f}"


def _rows(claims: pd.DataFrame, robustness: pd.DataFrame) -> str:
    columns = ("claim", "statement", "paper", "ours", "seeds", "verdict", "at", "readings")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for claim, row in claims.iterrows():
        tested = row["verdict"] != Outcome.NOT_TESTABLE
        ours = measured_text(*row[TOLD]) if tested else "–"
        cells = (
            f"`{str(claim).partition('.')[2]}`",
            html.escape(" ".join(row["statement"].split()), quote=False).replace("|", "\\|"),
            stated_text(row["paper_value"], decimals().get(str(claim))),
            ours,
            str(row["seeds"]) if tested else "–",
            f"{row['verdict']}{', close' * _is_close(row)}{' (ours)' * (row['kind'] == 'ours')}",
            row["at"] if tested else "–",
            _readings_of(robustness.loc[claim], row["at"]) if claim in robustness.index else "–",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def gallery_page(packed: list[Packed]) -> str:
    """`docs/gallery.md`: every figure at the largest size at which it was made."""
    largest = {figure: one for one in reversed(packed) for figure in one.about["figures"]}
    over_seeds = OVER_SEEDS[0].lower() + OVER_SEEDS[1:]
    parts = [
        "# Gallery\n\nEvery figure at the largest size at which it was made; written by "
        f"`python tools/evidence.py pages`. Where no caption says otherwise: {over_seeds}\n"
    ]
    for key, paper in papers().items():
        own = sorted((figure for figure in largest if paper_of(figure) == key), key=figure_order)
        if own:
            parts.append(f"## {paper.title}\n")
        for figure in own:
            one = largest[figure]
            about, folder = figure_named(figure), f"../evidence/{one.folder.name}"
            caption = " ".join(about.caption.replace(OVER_SEEDS, "").split())
            parts.append(
                f"### {figure_label(figure)}: {about.title}\n\n"
                f"![{about.title}]({folder}/figures/{figure}.png)\n\n"
                f"*Preset `{one.about['preset']}`; [table]({folder}/tables/{figure}.csv.xz).* "
                f"{caption}\n"
            )
    return "\n".join(parts)


def crate(packed: list[Packed], folder: Path) -> str:
    """`ro-crate-metadata.json`: each file, and each preset's run with code, data and command."""
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    made = ROCrate(version="1.1")
    made.name = "Evidence: the figures, tables and verdicts of three papers' replication"
    made.description = "Packed by tools/evidence.py from finished runs of the workflow."
    for field, name, told in (
        ("license", "https://spdx.org/licenses/MIT", {"@type": "CreativeWork", "name": "MIT"}),
        ("author", "#authors", {"@type": "Organization", "name": AUTHORS}),
    ):
        made.root_dataset[field] = made.add(ContextEntity(made, name, properties=told))
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    made.datePublished = max(re.findall(r"^## \S+, (\d{4}-\d\d-\d\d)$", log, re.MULTILINE))
    for path in sorted(folder.glob("*.yaml")):
        made.add_file(path, path.name, properties={"encodingFormat": FORMATS[path.suffix]})
    for one in packed:
        about, name = one.about, one.folder.name
        figures = count_text(len(about["figures"]), "figure")
        data = [
            f"{told['name']} ({told['source']}{', a stand-in' if told['stand_in'] else ''})"
            for told in about["datasets"]
        ]
        whole = made.add_dataset(
            one.folder,
            f"{name}/",
            properties={
                "name": f"{name}: {figures} at preset {about['preset']}",
                "description": f"Data: {', '.join(data)}.",
            },
        )
        files = [path for path in sorted(one.folder.rglob("*")) if path.is_file()]
        whole["hasPart"] = [
            made.add_file(
                path,
                path.relative_to(folder).as_posix(),
                properties={"name": path.stem, "encodingFormat": FORMATS[path.suffix]},
            )
            for path in files
        ]
        code = ContextEntity(
            made,
            f"#workflow-{name}",
            properties={
                "@type": "SoftwareApplication",
                "name": "feature-alignment, its Snakemake workflow",
                "version": ", ".join(about["commits"]),
                "softwareRequirements": [f"{k} {v}" for k, v in about["versions"].items()],
            },
        )
        run = ContextEntity(
            made,
            f"#run-{name}",
            properties={
                "@type": "CreateAction",
                "name": f"snakemake --cores all --config {one.settings}",
                "description": f"{about['run_hours']} hours of runs on "
                f"{', '.join(about['devices'])}.",
            },
        )
        run["instrument"], run["result"] = made.add(code), whole
        made.root_dataset.append_to("mentions", made.add(run))
    return json.dumps(made.metadata.generate(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def pages(folder: Path) -> dict[Path, str]:
    """The contents of the generated pages, by file."""
    packed = all_packed(folder)
    verdicts = best_verdicts(packed)
    readme = ROOT / "README.md"
    before, rest = readme.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    quotes = {claim.id: (claim.paper, claim.quote) for claim in load_ledger(ledgers())}
    below = own_sizes(packed, verdicts) + decided_smaller(packed, verdicts)
    below += by_quotation(verdicts, quotes) + weak(verdicts)
    table = f"{MARKS[0]}\n{summary(verdicts)}{below}\n"
    return {
        readme: f"{before}{table}{MARKS[1]}{after}",
        ROOT / "docs" / "verdicts.md": verdicts_page(packed, verdicts, size_reasons(folder)),
        ROOT / "docs" / "gallery.md": gallery_page(packed),
        folder / "ro-crate-metadata.json": crate(packed, folder),
    }
