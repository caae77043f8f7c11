import math

from feature_alignment.pipeline.report.strips import strip


def row(*seeds, low=math.nan, high=math.nan, paper=math.nan):
    ours = sum(seeds) / len(seeds) if seeds else math.nan
    return {
        "paper_value": paper,
        "low": low,
        "high": high,
        "least": min(seeds, default=math.nan),
        "most": max(seeds, default=math.nan),
        "ours": ours,
        "seeds": len(seeds),
        "by_seed": " ".join(map(str, seeds)) if seeds else math.nan,
    }


def test_numbers_lie_in_their_order_within_the_strip():
    drawn = strip(row(0.2, 0.6, low=0.5, paper=0.9))
    places = [drawn["place"](value) for value in (0.2, 0.4, 0.5, 0.6, 0.9)]
    assert places == sorted(places)
    assert places[0] > 0
    assert places[-1] < 100
    assert (drawn["least"], drawn["most"], drawn["logarithmic"]) == (0.2, 0.9, False)
    assert drawn["lanes"][0]["high"] is None


def test_positive_numbers_of_many_orders_are_on_a_logarithmic_axis():
    drawn = strip(row(1e-16, 1e-12, high=1e-8))
    assert drawn["logarithmic"]
    assert drawn["place"](1e-12) == 50.0
    assert not strip(row(0.0, 1e-12, high=1e-8))["logarithmic"]


def test_a_single_number_is_in_the_middle():
    assert strip(row(3.0))["place"](3.0) == 50.0


def test_two_results_share_an_axis_and_one_may_have_no_values():
    drawn = strip(row(1.0, 2.0), row(9.0))
    assert drawn["place"](1.0) < 10 < 90 < drawn["place"](9.0)
    assert strip(row(1.0), row())["lanes"][1]["seeds"] == []
    assert strip(row(low=0.5, paper=1.0)) is None
