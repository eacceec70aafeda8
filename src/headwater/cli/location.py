"""Opening what a person named on the command line, to look at it and nothing else.

``LOCATION`` is a directory; ``--blob`` and ``--consensus`` replace its parts by addresses, and with
both of them no directory is needed. Nothing is created: what is not there is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from headwater.base.errors import HeadwaterError
from headwater.base.retry import RetryPolicy
from headwater.cli.exit_status import CannotOpen
from headwater.persist.client import open_ports
from headwater.persist.location import Blob, Consensus

Location = Annotated[
    Path | None, typer.Argument(metavar="LOCATION", help="Directory of the location.")
]
BlobAddress = Annotated[
    str, typer.Option("--blob", metavar="URL", help="Objects: a path, file:// or s3:// address.")
]
ConsensusAddress = Annotated[
    str, typer.Option("--consensus", metavar="URL", help="Log: sqlite:// or postgresql:// address.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

IMPATIENT: Final = RetryPolicy(attempts_max=4, limit_ms=500)
"""A person waits: a storage that is down is told soon, and can be asked again."""


@contextmanager
def ports(location: Path | None, blob: str, consensus: str) -> Iterator[tuple[Blob, Consensus]]:
    """Open both ports read-only, and close them."""
    _check_directory(location, blob, consensus)
    try:
        opened = open_ports(
            location or "", blob=blob or None, consensus=consensus or None, read_only=True
        )
    except HeadwaterError as error:
        raise CannotOpen(str(error)) from error
    try:
        yield opened
    finally:
        for port in opened:
            port.close()


def _check_directory(location: Path | None, blob: str, consensus: str) -> None:
    if blob and consensus:
        return
    if location is None:
        raise CannotOpen("name its directory, or give both --blob and --consensus")
    if not location.is_dir():
        raise CannotOpen(f"{location} is not a directory; check the path")
    if not consensus and not (location / "log.db").is_file():
        raise CannotOpen(f"{location} is not a location: it has no log.db; check the path")
