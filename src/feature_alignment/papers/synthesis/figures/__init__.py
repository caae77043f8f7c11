"""The figure."""
