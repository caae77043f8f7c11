"""The papers' measurements for your own models and trainings."""

MEASURES = ("kernel", "features", "adapted", "path")
"""Names of built-in measurements, see `monitor.Monitor`."""
METRICS, STATE, ABOUT = "metrics.csv", "state.pt", "about.json"
"""The files that `Monitor.save` writes."""
