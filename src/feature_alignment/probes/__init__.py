"""Probes: what any training can be watched with."""
