# The report: one page with every selected figure, the verdicts, and what made them.
