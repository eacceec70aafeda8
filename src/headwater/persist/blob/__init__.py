"""Implementations of the Blob port, one per file."""
