"""The mathematics behind the paper's statements, checked numerically."""
