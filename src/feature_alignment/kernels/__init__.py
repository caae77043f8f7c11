"""Tangent kernels: their spectra, eigenfunctions, alignment, and matrix-free products."""
