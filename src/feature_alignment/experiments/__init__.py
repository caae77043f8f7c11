"""Experiments: one module for each, from a spec to tidy metrics and arrays.

A module here defines `run_seed(seed, parameters, device, dataset, progress) -> SeedResult`; its
name is the experiment's name, and its parameters are a section of the config's schema.
"""
