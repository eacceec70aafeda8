"""Conversations, byte by byte: what a client sends and exactly what it is answered.

``recordings/*.txt`` read as stories; ``REWRITE=1`` writes down what is answered now. That the
answers are PostgreSQL's is ``test_pgwire_postgres.py``.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.adapter.pgwire import WireServer
from tests.end_to_end.memory_backend import Memory
from tests.end_to_end.recorded import Client, parsed, play, readable

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("quiet")]

RECORDINGS = Path(__file__).parent / "recordings"


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.txt")), ids=lambda path: path.stem)
def test_recording(path: Path, wire: WireServer, memory: Memory) -> None:
    memory.tables["t"] = pa.table(
        {"n": pa.array([1, None, -3], pa.int64()), "s": pa.array(["a", "", None], pa.string())}
    )
    memory.tables["one"] = pa.table({"one": pa.array([1], pa.int32())})
    client = Client(socket.create_connection((wire.host, wire.port)))
    try:
        played = play(path.read_text(), client)
    finally:
        client.close()
    if os.environ.get("REWRITE"):
        path.write_text(played)
    assert played == path.read_text()


def test_what_is_written_down_is_what_was_sent() -> None:
    every = bytes(range(256))
    assert parsed(f"Q {readable(every)}") == (b"Q", every)
