"""Replication of baratin2021."""
