"""Marks that any paper's tables can carry, and that verdicts and pictures heed."""

DIVERGED = "diverged_after"
"""The metric of a network whose training diverged, and of no other: its last measured step."""
STAND_IN = "stand_in"
"""The column of tables with real data and stand-ins: 1 in the rows of these, 0 in the others."""
