"""``headwater version``: which Headwater this is, and on what it runs."""

from __future__ import annotations

import platform
from importlib import metadata

import typer

from headwater.persist.encoding import VERSION


def version() -> None:
    """Print the versions of Headwater, its formats, Python, Spark and Arrow."""
    typer.echo(f"headwater {metadata.version('headwater')}")
    typer.echo(f"log format {VERSION}")
    typer.echo(f"python {platform.python_version()}")
    for name in ("pyspark", "pyarrow"):
        typer.echo(f"{name} {metadata.version(name)}")
