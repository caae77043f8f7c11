import evidence_pages
import numpy as np
import pandas as pd
import pytest
from packed import EVIDENCE, all_packed


def by_seed(ours, sd, seeds):
    """Means of so many seeds with that mean and standard deviation."""
    z = np.arange(seeds) - (seeds - 1) / 2
    z = z / z.std(ddof=1) if seeds > 1 else z
    return " ".join(map(str, ours + (0 if np.isnan(sd) else sd) * z))


def size(tool, at, verdict, ours=1.0, sd=0.1, seeds=5, votes=None):
    agreeing, units = votes or (np.nan, np.nan)
    row = {"verdict": verdict, "ours": ours, "sd": sd, "seeds": seeds}
    row["by_seed"] = by_seed(ours, sd, 1 if np.isnan(sd) else seeds)
    return tool.Size(at, pd.Series(row | {"agreeing": agreeing, "units": units}))


def test_one_of_one_is_too_few_beside_five_of_five(tool):
    large = size(tool, "large", "undecided", 9.0, np.nan, 1, (1, 1))
    small = size(tool, "small", "reproduced", votes=(5, 5))
    assert tool.too_few(large, small) is large
    assert tool.too_few(small, large) is large
    assert not tool.of_size(large, small)


@pytest.mark.parametrize("votes", [(4, 5), None])
def test_dissent_or_a_mean_is_not_want_of_networks(tool, votes):
    large = size(tool, "large", "undecided", votes=(1, 1))
    assert tool.too_few(large, size(tool, "small", "not reproduced", votes=votes)) is None


@pytest.mark.parametrize(
    ("few", "begins"),
    [("1 2 3", (3, 4)), ("1 2 3.00001", None), ("2 3 9", None), ("1 2 3 9", None), ("1", None)],
)
def test_the_first_of_the_same_networks_differ_by_seeds_alone(tool, few, begins):
    large, small = size(tool, "large", "partly"), size(tool, "small", "reproduced")
    large.row["by_seed"], small.row["by_seed"] = "1 2 3 9", few
    assert tool.more_seeds(large, small) == tool.more_seeds(small, large) == begins


def test_more_of_the_same_networks_need_no_reason(tool):
    large = size(tool, "large", "not reproduced", votes=(0, 20), seeds=20)
    small = size(tool, "small", "reproduced", votes=(5, 5))
    assert tool.of_size(large, small)
    small.row["by_seed"] = " ".join(large.row["by_seed"].split()[:5])
    assert not tool.of_size(large, small)


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ({"ours": 1.0}, {"ours": 1.14}, False),  # .14 against t₈ = 2.31 · .1 · √(2/5) = .146
        ({"ours": 1.0}, {"ours": 1.15}, True),
        # One network: t₄ = 2.78 · .1 · √(6/5) = .304.
        ({"ours": 1.0}, {"ours": 1.30, "sd": np.nan, "seeds": 1}, False),
        ({"ours": 1.0}, {"ours": 1.31, "sd": np.nan, "seeds": 1}, True),
        # Two of sd .1 and five of .01: t of 1.01 degrees of freedom, 12.5, · .0708 = .88.
        ({"sd": 0.01}, {"ours": 1.8, "seeds": 2}, False),
        ({"sd": 0.01}, {"ours": 1.9, "seeds": 2}, True),
        ({"sd": np.nan}, {"ours": 1.1, "sd": np.nan}, True),  # nothing tells how networks differ
        ({"sd": np.nan}, {"sd": np.nan}, False),
        ({"ours": 1.0, "sd": 0.0}, {"ours": 1.01, "sd": 0.0}, True),
        ({"votes": (5, 5)}, {"votes": (2, 5)}, False),  # Fisher: 2 · 21/252 = .17
        ({"votes": (25, 25)}, {"votes": (15, 24)}, True),
        ({"votes": (5, 5), "ours": 1.0}, {"votes": (2, 5), "ours": 2.0}, True),
    ],
)
def test_sizes_differ_by_votes_or_by_a_t_test(tool, one, other, differs):
    one, other = size(tool, "large", "partly", **one), size(tool, "small", "reproduced", **other)
    assert tool.differ(one, other) == tool.differ(other, one) == differs


def test_the_table_has_what_was_measured_and_why(tool):
    def claims(**verdicts):
        base = {"ours": 1.0, "sd": 0.1, "seeds": 5, "agreeing": np.nan, "units": np.nan}
        base |= {"low": np.nan, "high": np.nan, "by_seed": by_seed(1.0, 0.1, 5)}
        rows = {claim: base | {"verdict": verdict} for claim, verdict in verdicts.items()}
        return pd.DataFrame.from_dict(rows, orient="index")

    large = claims(a="partly", b="reproduced", c="not testable here", d="reproduced")
    small = claims(a="reproduced", b="reproduced", c="partly", d="partly", e="undecided")
    small.loc["d", ["ours", "by_seed"]] = 2.0, by_seed(2.0, 0.1, 5)
    tiny = claims(a="not reproduced", c="reproduced")
    packed = {"large": large, "small": small, "tiny": tiny}
    _, _, a, d, c = tool.table(packed, {"d": "Wider."}).splitlines()
    assert a == (
        "| `a` | partly (`large`): 1.00 ± 0.10 | reproduced (`small`): 1.00 ± 0.10, "
        "not reproduced (`tiny`): 1.00 ± 0.10 | May be chance: no difference is shown. |"
    )
    assert c.startswith("| `c` | partly (`small`): 1.00 ± 0.10 | reproduced (`tiny`)")
    assert d.endswith(
        "| reproduced (`large`): 1.00 ± 0.10 | partly (`small`): 2.00 ± 0.10 | Wider. |"
    )
    assert "| The size; no reason is known. |" in tool.table(packed, {})
    assert tool.table({"large": large}, {}) == "Nowhere.\n"


def test_what_is_of_the_size_has_a_reason_and_nothing_else_has(tool):
    packed = all_packed(EVIDENCE)
    found = tool.disagreements({one.folder.name: one.claims for one in packed})
    assert found
    of_size = {
        claim
        for claim, (largest, *smaller) in found.items()
        if any(tool.of_size(largest, one) for one in smaller)
    }
    assert of_size == set(evidence_pages.size_reasons(EVIDENCE))
