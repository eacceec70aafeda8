"""Headwater: SQL views over changing data, kept exactly right, incrementally, on Apache Spark."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
