"""Replication of beaglehole2024."""
