"""What clients are told of Spark's errors: what is wrong, not what to set in Spark."""

from __future__ import annotations

import pytest

from headwater.adapter.mistakes import sentence

ZERO = """[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate it. \
If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012"""
CAST = """[CAST_INVALID_INPUT] The value 'a' of the type "STRING" cannot be cast to "INT" because \
it is malformed. Correct the value as per the syntax, or change its target type. \
Use `try_cast` to tolerate malformed input. SQLSTATE: 22018"""


@pytest.mark.parametrize(
    ("message", "condition", "said"),
    [
        (ZERO, "DIVIDE_BY_ZERO", "division by zero"),
        (
            CAST,
            "CAST_INVALID_INPUT",
            """The value 'a' of the type "STRING" cannot be cast to "INT" because \
it is malformed.""",
        ),
        ("no frame at all", None, "no frame at all"),
        ("[A] One. SQLSTATE: 42000\nline 2", "A", "One.\nline 2"),
        ("[A] SQLSTATE: 42000", "A", "[A] SQLSTATE: 42000"),
    ],
)
def test_the_sentence_is_what_is_wrong(message: str, condition: str | None, said: str) -> None:
    assert sentence(message, condition) == said
