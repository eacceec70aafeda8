"""Views as they are stored: what an earlier program wrote is read, whatever the order of fields."""

from __future__ import annotations

import msgspec
import pytest

from headwater.base.ids import Epoch, GlobalId
from headwater.compute import definition
from headwater.compute.definition import Definition
from headwater.compute.maintained import MaintainedView
from headwater.compute.recompute import RecomputedView
from headwater.persist.errors import NewerFormat

MAINTAINED = MaintainedView(
    version=3,
    name="n",
    sql="s",
    plan=b"p",
    dataflow=b"d",
    relations={"a": GlobalId(1), "b": GlobalId(1), "c": GlobalId(2)},
    arrangements={"x": GlobalId(7)},
    stored={"y": GlobalId(8)},
    start=5,
    output=GlobalId(9),
    shown=("q",),
    spark_version="4",
)
RECOMPUTED = RecomputedView(
    version=2,
    name="n",
    sql="s",
    plan=b"p",
    relations={"a": GlobalId(1)},
    start=5,
    output=GlobalId(9),
    why="w",
    spark_version="4",
    given=True,
    kept_by=Epoch(3),
)
BEFORE: list[tuple[bytes, Definition]] = [
    (
        (
            b"\x8f\xa4kind\xaamaintained\xa7version\x03\xa4name\xa1n\xa3sql\xa1s\xa4plan\xc4\x01p"
            b"\xa8dataflow\xc4\x01d\xa9relations\x83\xa1a\x01\xa1b\x01\xa1c\x02\xacarrangements\x81"
            b"\xa1x\x07\xa6stored\x81\xa1y\x08\xa5start\x05\xa6output\t\xa5shown\x91\xa1q"
            b"\xadspark_version\xa14\xa5given\xc2\xa7kept_by\xc0"
        ),
        MAINTAINED,
    ),
    (
        (
            b"\x8c\xa4kind\xaarecomputed\xa7version\x02\xa4name\xa1n\xa3sql\xa1s\xa4plan\xc4\x01p"
            b"\xa9relations\x81\xa1a\x01\xa5start\x05\xa6output\t\xa3why\xa1w\xadspark_version\xa14"
            b"\xa5given\xc3\xa7kept_by\x03"
        ),
        RECOMPUTED,
    ),
]


@pytest.mark.parametrize(("written", "meant"), BEFORE, ids=["maintained", "recomputed"])
def test_what_was_written_is_read(written: bytes, meant: Definition) -> None:
    assert definition.decoded(written) == meant
    assert definition.decoded(definition.encoded(meant)) == meant
    now, before = msgspec.msgpack.decode(definition.encoded(meant)), msgspec.msgpack.decode(written)
    assert now == before, "an earlier program reads what we write, too"


def test_a_later_version_is_refused() -> None:
    for meant in (MAINTAINED, RECOMPUTED):
        later = msgspec.structs.replace(meant, version=meant.version + 1)
        with pytest.raises(NewerFormat, match="a stored view"):
            definition.decoded(definition.encoded(later))


def test_what_it_reads_and_what_goes_with_it() -> None:
    assert MAINTAINED.inputs == (1, 2)
    assert MAINTAINED.owned == (9, 8)
    assert RECOMPUTED.owned == (), "the output is a collection of the caller's"
    assert MAINTAINED.reader_id == RECOMPUTED.reader_id == "view/9"
