"""The report: one HTML page with every figure, every claim and what the runs cost."""
