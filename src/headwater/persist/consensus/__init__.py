"""Implementations of the Consensus port, one per file."""
