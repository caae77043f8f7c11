"""A claim that tests change as they need."""

from feature_alignment.pipeline.claims.ledger import Claim, Criterion


def claim(criterion=None, **changes):
    """A claim that a number is 0.93, of a kind that its criterion fits, or as told."""
    criterion = criterion or Criterion(comparator="near")
    values = {
        "id": "somebody2020.fig1.number",
        "paper": "somebody2020",
        "place": "Figure 1",
        "statement": "It is 0.93, exactly.",
        "quote": "0.93",
        "kind": "number" if criterion.tolerance is None else "mathematics",
        "reading": "stated",
        "paper_value": 0.93,
        "unit": "1",
        "figure": "somebody2020_fig1",
        "select": {"metric": "number"},
        "criterion": criterion,
        "lowest_preset": "quick",
        "data": "any",
        "note": "",
    }
    return Claim(**{**values, **changes})
