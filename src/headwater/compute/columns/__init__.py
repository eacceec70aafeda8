"""Keyed runs as Spark's own columns: no Python between what is stored and a query."""
