"""The training loop with its optimizers, losses, schedules, measurements and checkpoints."""
