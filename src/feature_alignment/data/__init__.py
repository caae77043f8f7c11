"""Data sets: published ones, their embedded stand-ins, and synthetic ones."""
