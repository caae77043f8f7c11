"""Gradients of a network's outputs by its parameters, for each sample, in a compact form."""
