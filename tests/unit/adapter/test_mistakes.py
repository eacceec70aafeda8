"""What clients are told of Spark's errors: what is wrong, not what to set in Spark."""

from __future__ import annotations

import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.mistakes import in_error, sentence, users_mistakes
from headwater.compute.ir.refusal import NotUnderstood, Position, Refused
from headwater.compute.select import QueryFailed
from headwater.testing.sql_server import SqlServer

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


@pytest.mark.parametrize(
    "found",
    [
        NotUnderstood("[A] It is so. SQLSTATE: 42000", condition="A", position=Position(2, 3)),
        QueryFailed("It is so. (line 2, column 3)", "A", "42000", Position(2, 3)),
        Refused("it", "so", position=Position(2, 3)),
    ],
)
def test_a_place_of_sparks_is_told_where_spark_read_the_clients_text(found: Exception) -> None:
    for text, position in (("a\nb c", 5), ("", None), ("a", None)):
        with pytest.raises(AdapterError) as told, users_mistakes(lambda text=text: text):  # type: ignore[misc]  # of a loop
            raise found
        assert told.value.position == position
        assert "line" not in told.value.primary
        assert "SQLSTATE" not in told.value.primary


def test_advice_for_spark_is_left_out_of_errors_of_rows() -> None:
    message = "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL."
    assert in_error("v", message).primary == '"v" is in error: division by zero'
    message = "overflow. Use 'try_add' to tolerate overflow and return NULL instead."
    assert in_error("v", message).primary == '"v" is in error: value out of range: overflow'


def test_a_name_that_is_reserved_is_the_users_mistake() -> None:
    with SqlServer() as server:
        sql = server.session()
        sql("CREATE TABLE t (a int)")
        with pytest.raises(AdapterError, match="'__time' is reserved") as told:
            sql("CREATE MATERIALIZED VIEW v AS SELECT a AS __time FROM t")
    assert told.value.sqlstate == "42P16"
