"""Measure feature learning in neural networks, and replicate papers about it.

The library knows no paper, the pipeline knows no paper by name, and `papers` has one folder for
each paper with everything that is only that paper's.
"""
