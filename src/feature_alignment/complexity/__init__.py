"""Complexity measures of trained networks and linear models."""
