"""Numerical checks of the paper's statements."""
