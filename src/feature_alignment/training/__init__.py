"""Training runs that are measured as they go: the loop, probes, schedules, losses, optimizers."""
