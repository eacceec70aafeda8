"""``headwater version``: which Headwater this is, and on what it runs."""

from __future__ import annotations

import json
import platform
from importlib import metadata

import typer

from headwater.cli.location import Json
from headwater.persist.encoding import VERSION


def version(as_json: Json = False) -> None:
    """Print the versions of Headwater, its formats, Python, Spark and Arrow."""
    told = {
        "headwater": metadata.version("headwater"),
        "log format": str(VERSION),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("pyspark", "pyarrow")},
    }
    typer.echo(json.dumps(told) if as_json else "\n".join(f"{k} {v}" for k, v in told.items()))
