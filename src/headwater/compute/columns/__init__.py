"""Rows between Spark's JVM and files, without Python: keyed runs in, answers out."""
