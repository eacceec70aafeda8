"""``headwater backup`` and ``headwater restore``: a copy of a location, while it is written.

Both make a location out of a location (``persist/backup.py``) and then check every checksum of what
they made. A backup is a directory; it can be looked at with ``inspect`` as it is.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headwater.base.errors import HeadwaterError, InvalidUsage
from headwater.cli.exit_status import CannotOpen
from headwater.cli.fsck import show_check
from headwater.cli.location import BlobAddress, ConsensusAddress, Json, Location, ports
from headwater.cli.progress import bar
from headwater.collection.run_layout import LAYOUTS
from headwater.persist.backup import Copied, Progress, copy
from headwater.persist.client import open_ports
from headwater.persist.fsck import check
from headwater.persist.layout import Layouts


def backup(
    to: Annotated[Path, typer.Option(metavar="DIR", help="Directory to make; empty or missing.")],
    location: Location = None,
    blob: BlobAddress = "",
    consensus: ConsensusAddress = "",
    as_json: Json = False,
) -> None:
    """Copy a location as it is at one moment, also while a server writes it, and check the copy."""
    with ports(location, blob, consensus) as (objects, log):
        copied = _copied(objects, log, to, "", "")
    _tell(copied, f"entry {copied.seqno} is in {to}, checked", as_json)


def restore(
    backup_directory: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="Directory that `headwater backup` made.")
    ],
    data: Annotated[
        Path | None, typer.Option(help="Directory of the new location; empty or missing.")
    ] = None,
    blob: BlobAddress = "",
    consensus: ConsensusAddress = "",
    as_json: Json = False,
) -> None:
    """Make a location out of a backup, and check it; nothing that exists is overwritten."""
    if data is None and not (blob and consensus):
        raise InvalidUsage("where to? give --data DIR, or both --blob and --consensus")
    with ports(backup_directory, "", "") as (objects, log):
        copied = _copied(objects, log, data, blob, consensus)
    where = f"--data {data}" if data is not None else "--data DIR --blob … --consensus …"
    told = f"entry {copied.seqno} is restored; go on with: headwater serve {where} --take-over"
    _tell(copied, told, as_json)


def _copied(objects: Any, log: Any, to: Path | None, blob: str, consensus: str) -> Copied:
    if to is not None and not consensus and to.exists() and not to.is_dir():
        raise CannotOpen(f"{to} is not a directory; choose another")
    try:
        to_blob, to_log = open_ports(to or "", blob=blob or None, consensus=consensus or None)
    except HeadwaterError as error:
        raise CannotOpen(str(error)) from error
    try:
        with bar("copying", "objects") as show:

            def copying(progress: Progress) -> None:
                show("", progress.objects_done, progress.objects_total, progress.rows_done)

            copied = copy(objects, log, to_blob, to_log, copying)  # type: ignore[arg-type]
        with bar("checking", "parts") as show:
            checked = check(to_blob, to_log, Layouts(*LAYOUTS), partial(show_check, show))
            wrong = [found for found in checked if found.severity == "error"]
    finally:
        to_blob.close()
        to_log.close()
    if wrong:
        raise HeadwaterError(f"the copy is not sound: {wrong[0]}; run headwater fsck on both")
    return copied


def _tell(copied: Copied, sentence: str, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(asdict(copied)).decode())
    else:
        typer.echo(f"{copied.objects} objects and {copied.entries} log entries copied; {sentence}")
