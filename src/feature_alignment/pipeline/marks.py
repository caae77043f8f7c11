"""Marks that any paper's tables can have, and that verdicts and pictures take into account."""

DIVERGED = "diverged_after"
"""The metric that only networks whose training diverged have: their last measured step."""
STAND_IN = "stand_in"
"""The column of tables that mix real data and stand-ins: 1 for stand-ins, 0 for real data."""
