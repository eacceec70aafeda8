"""A copy of a location, while it is written: of one entry, with all that this entry refers to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.persist.backup import NotEmpty, Progress, copy
from headwater.persist.client import Client, open_location, open_ports
from headwater.persist.core import Settings
from headwater.persist.errors import Corrupt
from headwater.persist.fsck import check
from headwater.persist.layout import Layouts
from headwater.persist.location import Blob

SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
QUIET = Settings(maintenance=False)


def rows(time: int, count: int = 500) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(count), pa.int64()),
            "v": pa.array([f"a value that is long enough {n}" for n in range(count)]),
            "__time": pa.array([time] * count, pa.int64()),
            "__diff": pa.array([1] * count, pa.int64()),
        }
    )


def append(client: Client, name: str, time: int) -> None:
    write, _ = client.create_or_load(name, SCHEMA)
    write.compare_and_append(rows(time), time, time + 1).result()


class Meddled:
    """A blob under which something happens at the first read of an object of rows."""

    def __init__(self, inner: Blob, happen: Callable[[str], object]) -> None:
        self._inner, self._happen = inner, happen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, key: str) -> bytes | None:
        if key.startswith("part/"):
            happen, self._happen = self._happen, lambda _: None
            happen(key)
        return self._inner.get(key)


def copied(source: Blob, consensus: Any, to: Path) -> Any:
    blob, log = open_ports(to)
    try:
        made = copy(source, consensus, blob, log)  # type: ignore[arg-type]
        errors = [f for f in check(blob, log, Layouts()) if f.severity == "error"]
        assert errors == []
        return made
    finally:
        blob.close()
        log.close()


def contents(place: Path, name: str) -> int:
    with open_location(place, read_only=True, settings=QUIET) as client:
        read = client.reader(name)
        return int(read.snapshot(read.upper.only() - 1).to_table().num_rows)


def test_a_copy_beside_its_writer_can_be_opened_and_written(tmp_path: Path) -> None:
    with open_location(tmp_path / "a", settings=QUIET) as client:
        append(client, "orders", 0)
        append(client, "orders", 1)
        core = client.core
        seen: list[Progress] = []
        blob, log = open_ports(tmp_path / "b")
        made = copy(core.blob, core.consensus, blob, log, seen.append)  # type: ignore[arg-type]
        blob.close()
        log.close()
        assert made.seqno == core.state.seqno
        assert made.objects == 2
        assert seen[-1].objects_done == seen[-1].objects_total == 2
        append(client, "orders", 2)
    assert contents(tmp_path / "b", "orders") == 1000 / 2
    with open_location(tmp_path / "b", take_over=True, settings=QUIET) as client:
        append(client, "orders", 2)
    assert contents(tmp_path / "a", "orders") == contents(tmp_path / "b", "orders")


def test_a_log_that_was_truncated_goes_on_at_its_number(tmp_path: Path) -> None:
    settings = Settings(rollup_entries=4)
    with open_location(tmp_path / "a", settings=settings) as client:
        for time in range(12):
            append(client, "orders", time)
        core = client.core
        core.wait(lambda state: True if state.rollups else None, 20.0)
        made = copied(core.blob, core.consensus, tmp_path / "b")
    assert made.entries < made.seqno
    with open_location(tmp_path / "b", take_over=True, settings=QUIET) as client:
        append(client, "orders", 12)


def test_what_the_writer_deletes_meanwhile_is_not_missed(tmp_path: Path) -> None:
    with open_location(tmp_path / "a", settings=QUIET) as client:
        append(client, "old", 0)
        append(client, "kept", 0)
        core = client.core

        def drop_it(_: str) -> None:
            client.destroy("old")
            for key in core.state.garbage:
                core.blob.delete(key)
            append(client, "young", 0)

        made = copied(Meddled(core.blob, drop_it), core.consensus, tmp_path / "b")
        assert made.seqno == core.state.seqno
    assert contents(tmp_path / "b", "young") == contents(tmp_path / "b", "kept") == 500


def test_what_is_lost_is_told(tmp_path: Path) -> None:
    with open_location(tmp_path / "a", settings=QUIET) as client:
        append(client, "orders", 0)
        core = client.core
        with pytest.raises(Corrupt, match="is missing"):
            copied(Meddled(core.blob, core.blob.delete), core.consensus, tmp_path / "b")


def test_nothing_is_mixed_with_what_is_there(tmp_path: Path) -> None:
    with open_location(tmp_path / "a", settings=QUIET) as client:
        append(client, "orders", 0)
        core = client.core
        copied(core.blob, core.consensus, tmp_path / "b")
        with pytest.raises(NotEmpty, match="choose an empty directory"):
            copied(core.blob, core.consensus, tmp_path / "b")
