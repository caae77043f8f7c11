"""Adaptive tangent features: effective penalties, adapted kernels and the solver."""
