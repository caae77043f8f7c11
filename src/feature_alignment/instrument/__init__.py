"""The papers' measurements for your own models and trainings."""

MEASURES = ("kernel", "features", "adapted")
"""Names of built-in measurements, see `monitor.Monitor`."""
