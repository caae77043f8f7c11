"""The papers' measurements for models and trainings of one's own."""
