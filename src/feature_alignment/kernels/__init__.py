"""Tangent kernels: their spectra, eigenfunctions, alignment, and products without the kernel."""
