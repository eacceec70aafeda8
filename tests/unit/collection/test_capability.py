"""Capabilities as values and as text; what of them may be seen, and what never."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.frontier import Frontier
from headwater.base.ids import GlobalId
from headwater.collection.capability import (
    Capability,
    NotACapability,
    ReadCapability,
    WriteCapability,
    from_text,
    new_token,
)
from headwater.collection.collections import Collections, Description
from headwater.persist.blob import MemoryBlob
from headwater.persist.client import open_location
from headwater.persist.consensus import MemoryConsensus
from headwater.persist.core import Settings
from headwater.persist.errors import InvalidCapability

SCHEMA = pa.schema([pa.field("k", pa.int64())])
frontiers = st.one_of(st.integers(0, 2**63 - 2).map(Frontier.of), st.just(Frontier[int].closed()))
capabilities: st.SearchStrategy[Capability] = st.builds(
    lambda kind, gid, frontier: kind(GlobalId(gid), new_token(), frontier),
    st.sampled_from([ReadCapability, WriteCapability]),
    st.integers(1, 2**31),
    frontiers,
)


@given(capabilities)
def test_text_brings_back_the_capability(capability: Capability) -> None:
    assert from_text(capability.to_text()) == capability


@given(capabilities)
def test_the_token_is_shown_only_where_it_is_asked_for(capability: Capability) -> None:
    shown = f"{capability!r} {capability} {capability:} {capability.holder}"
    assert all(capability.token[n : n + 8] not in shown for n in range(25))
    assert capability.token in capability.to_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "r:1:0",
        "x:1:0:" + "a" * 32,
        "r:1:0:" + "a" * 31,
        "r:1:0:" + "A" * 32,
        "r:-1:0:" + "a" * 32,
        "r:1:-1:" + "a" * 32,
        "r:1_0:0:" + "a" * 32,
        "r:\u0661:0:" + "a" * 32,
        " r:1:0:" + "a" * 32,
        "r:1:0:" + "a" * 32 + "\n",
    ],
)
def test_other_text_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(NotACapability) as refused:
        from_text(text)
    assert "a" * 31 not in str(refused.value).lower()


def test_tokens_are_not_alike() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(len(token) == 32 for token in tokens)


def test_neither_log_nor_state_nor_errors_know_a_token() -> None:
    """Whoever can read the location, or its log, or our messages, gains no right by it."""
    consensus, blob = MemoryConsensus(), MemoryBlob()
    with open_location(blob=blob, consensus=consensus, settings=Settings(maintenance=False)) as c:
        collections = Collections(c)
        read, write = collections.create(collections.new_id(), Description(SCHEMA))
        clone = collections.clone_read(read)
        collections.update_and_downgrade(write, [({"k": 1}, 0, 1)], 1)
        collections.drop(clone)
        with pytest.raises(InvalidCapability) as refused:
            collections.subscribe_at(clone)
        state = repr(c.core.state)
    entries = b"".join(entry.data for entry in consensus.scan(0, 1000))  # type: ignore[arg-type]
    for capability in (read, write, clone):
        for visible in (state, str(refused.value), entries.decode("latin-1")):
            assert capability.token not in visible
        assert capability.holder in state or capability is clone


@pytest.mark.server  # It starts processes of ours.
def test_a_capability_goes_to_another_process_as_text(tmp_path: Path) -> None:
    """That process opens the location by itself, and reads with what it was handed."""
    with open_location(tmp_path) as client:
        collections = Collections(client)
        read, write = collections.create(collections.new_id(), Description(SCHEMA))
        collections.update_and_downgrade(write, [({"k": 7}, 0, 1)], 1)
    program = (
        "import sys\n"
        "from headwater.collection.capability import from_text\n"
        "from headwater.collection.collections import Collections\n"
        "from headwater.persist.client import open_location\n"
        "with open_location(sys.argv[1], read_only=True) as client:\n"
        "    subscription = Collections(client).subscribe_at(from_text(sys.argv[2]))\n"
        "    sys.stdout.write(str(subscription.fetch().ok.to_pylist()))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path), read.to_text()]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout == "[{'k': 7, '__time': 0, '__diff': 1}]"

    # And after a restart it is still good here.
    with open_location(tmp_path) as client:
        again = from_text(write.at(Frontier.of(1)).to_text())
        assert isinstance(again, WriteCapability)
        moved = Collections(client).update_and_downgrade(again, [], 5)
        assert moved.frontier == Frontier.of(5)
