"""Measure feature learning in neural networks, and replicate three papers about it.

The library has layers that import downwards only: `kernels`, `models` and `data` at the bottom,
then `training` and `theory`, then `experiments`, then `figures` and `claims`, then `report`.
"""
