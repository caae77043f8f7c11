"""The papers' measurements for models and trainings of one's own."""

MEASURES = ("kernel", "features", "adapted")
"""What can be measured by name: see `monitor.Monitor`."""
