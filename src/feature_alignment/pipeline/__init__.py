"""The pipeline: configuration, plan, runs, figures, claims and report of any paper."""
