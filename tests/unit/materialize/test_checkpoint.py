"""The runtime's checkpoint, through everything that keeps it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError
from headwater.materialize.checkpoint import (
    ForeignCheckpoint,
    Position,
    from_checkpoint,
    from_text,
    to_text,
)
from headwater.materialize.protocol.specs import EXPLICIT_ZERO, Checkpoint, CheckpointSource

POSITIONS = st.builds(
    Position,
    st.integers(-(2**63), 2**63 - 1),
    st.dictionaries(st.text(max_size=4), st.binary(max_size=4), max_size=3).map(
        lambda found: tuple(sorted(found.items()))
    ),
)


@given(POSITIONS)
def test_a_position_comes_back(position: Position) -> None:
    kept = to_text(position.to_checkpoint("m"))
    assert from_checkpoint(from_text(kept), "m") == position


def test_the_beginning() -> None:
    assert from_checkpoint(from_text(to_text(EXPLICIT_ZERO)), "m") is None
    assert from_checkpoint(Checkpoint(), "m") is None


def test_what_another_left_is_not_taken_for_ours() -> None:
    flows = Checkpoint((("a/journal;materialize/x/t.v1", CheckpointSource(7)),))
    for foreign in (flows, Position(7).to_checkpoint("other")):
        with pytest.raises(ForeignCheckpoint, match="'m'"):
            from_checkpoint(foreign, "m")
    mixed = Checkpoint(Position(7).to_checkpoint("m").sources, (("a/journal", b"x"),))
    with pytest.raises(ForeignCheckpoint):
        from_checkpoint(mixed, "m")


@pytest.mark.parametrize("text", ["***", "CA==", "/w=="])
def test_what_is_no_checkpoint(text: str) -> None:
    with pytest.raises(HeadwaterError, match="holds no checkpoint"):
        from_text(text)


def test_a_former_backfill_begins_anew_and_a_later_one_is_foreign() -> None:
    later = Position(7).to_checkpoint("m/i.v2")
    assert from_checkpoint(later, "m/i.v2") == Position(7)
    assert from_checkpoint(later, "m/i.v3") is None
    assert from_checkpoint(Position(7).to_checkpoint("m/i"), "m/i.v1") is None
    for other in ("m/i", "m/i.v1", "n/i.v3"):
        with pytest.raises(ForeignCheckpoint):
            from_checkpoint(later, other)
