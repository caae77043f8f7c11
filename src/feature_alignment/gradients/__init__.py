"""Per-sample gradients of a network's outputs with respect to its parameters, in compact form."""
