"""The engine: how each parameter acts on each sample, captured in one forward and backward pass."""
