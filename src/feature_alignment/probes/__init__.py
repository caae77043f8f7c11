"""Probes that measure the kernels and features of a network while it trains."""
