"""Frames of a distance over numbers: the same distance, or the frame as it is."""

from __future__ import annotations

import pytest

from headwater.compute.catalyst.ranges import Widened, micros, widened

DAY = 86_400_000_000
HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("INTERVAL '2' DAY", 2 * DAY),
        ("INTERVAL '01' HOUR", HOUR),
        ("INTERVAL '1 02' DAY TO HOUR", DAY + 2 * HOUR),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", DAY + 2 * HOUR + 184_500_000),
        ("INTERVAL '-0 00:00:00.000001' DAY TO SECOND", -1),
        ("INTERVAL '03:04' MINUTE TO SECOND", 184_000_000),
        ("INTERVAL '3' MONTH", None),
        ("INTERVAL '1-2' YEAR TO MONTH", None),
        ("5", None),
    ],
)
def test_the_length_of_an_interval(text: str, length: int | None) -> None:
    assert micros(text) == length


@pytest.mark.parametrize(
    ("type_", "frame", "bounds"),
    [
        ("bigint", "5 PRECEDING AND 7L FOLLOWING", "5BD PRECEDING AND 7BD FOLLOWING"),
        ("int", "CAST((- 3) AS INT) FOLLOWING AND CURRENT ROW", "3BD PRECEDING AND CURRENT ROW"),
        ("date", "3 PRECEDING AND CURRENT ROW", "3BD PRECEDING AND CURRENT ROW"),
        (
            "date",
            "UNBOUNDED PRECEDING AND INTERVAL '2' DAY FOLLOWING",
            "UNBOUNDED PRECEDING AND 2BD FOLLOWING",
        ),
        (
            "timestamp",
            "CAST((- INTERVAL '1' DAY) AS INTERVAL DAY TO SECOND) FOLLOWING AND CURRENT ROW",
            f"{DAY}BD PRECEDING AND CURRENT ROW",
        ),
        ("int", "UNBOUNDED PRECEDING AND CURRENT ROW", None),
        ("timestamp", "INTERVAL '3' MONTH PRECEDING AND CURRENT ROW", None),
        ("decimal(38,0)", "CAST((- 3) AS DECIMAL(38,0)) FOLLOWING AND CURRENT ROW", None),
        ("double", "CAST((- 3) AS DOUBLE) FOLLOWING AND CURRENT ROW", None),
    ],
)
def test_a_frame_is_one_of_numbers_or_stays(type_: str, frame: str, bounds: str | None) -> None:
    found = widened("x", type_, f"RANGE BETWEEN {frame}")
    assert (None if found is None else found.frame) == (bounds and f"RANGE BETWEEN {bounds}")
    if isinstance(found, Widened):
        assert found.order.endswith(" AS DECIMAL(20,0))")
