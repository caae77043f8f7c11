"""The experiment: what is run for each seed."""
