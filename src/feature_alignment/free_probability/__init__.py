"""Traces of words in free families, and the correlations that they predict."""
