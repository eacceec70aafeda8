"""UUIDs as bytes and as text, many at once, against Python's own."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.materialize.uuids import uuid_bytes, uuid_texts

UUIDS = st.lists(st.none() | st.uuids())


@given(UUIDS, UUIDS)
def test_they_are_pythons(skipped: list[UUID | None], uuids: list[UUID | None]) -> None:
    texts = pa.array([None if u is None else str(u) for u in (*skipped, *uuids)], pa.string())
    found = uuid_bytes(texts.slice(len(skipped)))
    assert found.to_pylist() == [None if u is None else u.bytes for u in uuids]
    assert uuid_texts(uuid_bytes(texts).slice(len(skipped))) == texts.slice(len(skipped))
    assert uuid_texts(found.cast(pa.uuid())) == texts.slice(len(skipped))


@pytest.mark.parametrize("spelling", ["{}", "{{{}}}", "urn:uuid:{}"])
def test_others_spell_them_otherwise(spelling: str) -> None:
    canonical = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    texts = pa.array([spelling.format(canonical.upper()), None])
    assert uuid_texts(uuid_bytes(texts)).to_pylist() == [canonical, None]


@pytest.mark.parametrize(
    "text",
    ["", "x" * 36, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1", "a0eebc99+9c0b-4ef8-bb6d-6bb9bd380a1g"],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match="no uuid"):
        uuid_bytes(pa.array([text]))
