"""Replication of lejeune2024."""
