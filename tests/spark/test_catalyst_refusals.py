"""What is not taken is refused with its name, its reason and its place, and nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.compute.catalyst import jvm
from headwater.compute.catalyst.compiler import Workspace
from headwater.compute.ir.refusal import NotUnderstood, OtherMeaning, Position, Refused
from tests.queries.tables import schemas

pytestmark = pytest.mark.spark

RECURSIVE = "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 5)"
REFUSED = {
    "SELECT a, rand() FROM t": ("rand()", "not deterministic"),
    "SELECT uuid() FROM t": ("uuid()", "not deterministic"),
    "SELECT monotonically_increasing_id() FROM t": ("monotonically_increasing_id()", "not determ"),
    "SELECT shuffle(xs) FROM t": ("shuffle()", "not deterministic"),
    "SELECT * FROM t TABLESAMPLE (10 PERCENT)": ("TABLESAMPLE", "not deterministic"),
    "SELECT now() FROM t": ("now()", "although no row changes"),
    "SELECT a FROM t WHERE day = current_date()": ("current_date", "timestamp of the row"),
    "SELECT a FROM t WHERE ts > now() - INTERVAL 1 MONTH": ("now", "timestamp of the row"),
    "SELECT a FROM t WHERE ts > now() OR a > 3": ("now", "timestamp of the row"),
    "SELECT a FROM t WHERE ts = now()": ("now", "timestamp of the row"),
    "SELECT a FROM t GROUP BY a HAVING max(ts) > now() AND now() > now()": ("now", "timestamp"),
    "SELECT unix_timestamp() FROM t": ("current_timestamp()", "although no row changes"),
    "SELECT current_user() FROM t": ("current_user()", "who asks"),
    "SELECT input_file_name() FROM t": ("input_file_name()", "who asks"),
    "SELECT percentile_approx(b, 0.5) FROM t": ("percentile_approx()", "sketch"),
    "SELECT approx_top_k(a) FROM t": ("approx_top_k()", "sketch"),
    "SELECT kll_merge_agg_bigint(binary(s)) FROM t": ("kll_merge_agg_bigint()", "sketch"),
    "SELECT tuple_union_agg_double(binary(s)) FROM t": ("tuple_union_agg_double()", "sketch"),
    "SELECT aes_encrypt(s, '0123456789abcdef') FROM t": ("aes_encrypt()", "random bytes"),
    "SELECT aes_encrypt(s, '0123456789abcdef', 'CBC', 'PKCS', X'') FROM t": (
        "aes_encrypt()",
        "random bytes",
    ),
    "SELECT s COLLATE UNICODE_CI FROM t": ("collat", "UNICODE_CI"),
    "SELECT k FROM t JOIN u ON t.s COLLATE UTF8_LCASE = u.s": ("collat", "UTF8_LCASE"),
    "SELECT count(*) FROM t GROUP BY s COLLATE UTF8_LCASE": ("collat", "UTF8_LCASE"),
    "SELECT count(DISTINCT s COLLATE UTF8_LCASE) FROM t": ("collat", "UTF8_LCASE"),
    "SELECT max_by(a, s COLLATE UTF8_LCASE) FROM t": ("collat", "UTF8_LCASE"),
    "SELECT rank() OVER (ORDER BY s COLLATE UTF8_LCASE) FROM t": ("collat", "UTF8_LCASE"),
    "SELECT sum(a) OVER (PARTITION BY s COLLATE UTF8_LCASE) FROM t": ("collat", "UTF8_LCASE"),
    "SELECT a FROM t ORDER BY s COLLATE UTF8_LCASE LIMIT 1": ("collat", "UTF8_LCASE"),
    "SELECT DISTINCT s COLLATE UTF8_LCASE FROM t": ("collat", "UTF8_LCASE"),
    "SELECT parse_json(s) FROM t": ("variant", "cannot be stored"),
    "SELECT INTERVAL 1 MONTH FROM t": ("interval month", "cannot be stored"),
    f"{RECURSIVE} SELECT n FROM r LIMIT 2": ("WITH RECURSIVE with limit", "leaves this open"),
    f"{RECURSIVE} SELECT n, unix_timestamp() FROM r": ("current_timestamp()", "no row changes"),
    f"{RECURSIVE} SELECT n, current_user() FROM r": ("current_user()", "who asks"),
    f"{RECURSIVE} SELECT n, uuid() FROM r": ("uuid()", "not deterministic"),
    f"{RECURSIVE} SELECT sum(CAST(n AS DOUBLE)) FROM r": ("with sum", "leaves this open"),
    f"{RECURSIVE} SELECT stddev(n) FROM r": ("with stddev", "leaves this open"),
    f"{RECURSIVE} SELECT first(n) FROM r": ("with first", "leaves this open"),
    f"{RECURSIVE} SELECT row_number() OVER (ORDER BY n) FROM r": ("with row_number", "leaves this"),
    f"{RECURSIVE} SELECT sum(n) OVER (ORDER BY n ROWS 1 PRECEDING) FROM r": ("frame of rows", ""),
    f"{RECURSIVE} SELECT hex(aes_encrypt('a', '0123456789abcdef')) FROM r": ("aes_enc", "random"),
    f"{RECURSIVE} SELECT DISTINCT string(n) COLLATE UTF8_LCASE FROM r": ("", "UTF8_LCASE"),
    f"{RECURSIVE} SELECT parse_json(string(n)) AS v FROM r": ("column 'v' of type", "be stored"),
    "SELECT k, (SELECT c FROM u u2 WHERE u2.a < u.a) FROM u": (
        "a correlated scalar subquery",
        "not correlated by equality",
    ),
    "SELECT * FROM VALUES (now()) AS v(x)": ("ResolvedInlineTable", "not a collection"),
}


@pytest.fixture(scope="module")
def workspace(spark: Any) -> Workspace:
    return Workspace(spark, schemas("extra"))


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_its_reason(workspace: Workspace, text: str) -> None:
    construct, reason = REFUSED[text]
    with pytest.raises(Refused) as refused:
        workspace.compile_sql(text)
    assert construct in refused.value.construct
    assert reason in refused.value.reason


def test_a_refusal_says_where(workspace: Workspace) -> None:
    with pytest.raises(Refused) as refused:
        workspace.compile_sql("SELECT a,\n  b + rand() AS x\nFROM t")
    assert refused.value.position == Position(2, 7)
    assert "(line 2, column 7)" in str(refused.value)
    with pytest.raises(Refused) as refused:
        workspace.compile_sql("SELECT a FROM t\nWHERE ts > date_trunc('hour', now())")
    assert (refused.value.construct, refused.value.position) == ("now()", Position(2, 31))


@pytest.mark.parametrize(
    ("text", "condition", "position"),
    [
        ("SELECT a,\n  nope FROM t", "UNRESOLVED_COLUMN.WITH_SUGGESTION", Position(2, 3)),
        ("SELECT a FROM missing", "TABLE_OR_VIEW_NOT_FOUND", Position(1, 15)),
        ("SELECT a FROM t, u", "AMBIGUOUS_REFERENCE", Position(1, 8)),
        ("SELECT FROM WHERE\n1 =", "PARSE_SYNTAX_ERROR", Position(2, 4)),
        (
            "SELECT sum(s) + array(1) FROM t",
            "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES",
            Position(1, 8),
        ),
    ],
)
def test_what_spark_does_not_understand_is_told_in_its_words(
    workspace: Workspace, text: str, condition: str, position: Position
) -> None:
    with pytest.raises(NotUnderstood) as error:
        workspace.compile_sql(text)
    assert error.value.condition == condition
    assert error.value.position == position
    assert error.value.sqlstate


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("LIMIT -1", "LIMIT -1 must be equal to or greater than 0, but got -1."),
        ("LIMIT 1 OFFSET -2", "OFFSET -2 must be equal to or greater than 0, but got -2."),
        ("LIMIT 1.5", 'LIMIT 1.5 must be integer type, but got "DECIMAL(2,1)".'),
    ],
)
def test_a_limit_that_cannot_be_is_called_what_it_is(
    workspace: Workspace, text: str, said: str
) -> None:
    with pytest.raises(NotUnderstood) as error:
        workspace.compile_sql(f"SELECT a FROM t {text}")
    assert said in str(error.value)
    assert "limit like" not in str(error.value)


SKETCHES = {
    "hll_sketch_agg(a)": "count(DISTINCT",
    "percentile_approx(a, 0.5)": "percentile()",
    "approx_top_k(a)": "LIMIT",
}


def test_a_refused_sketch_has_its_hint(workspace: Workspace) -> None:
    for call, hint in SKETCHES.items():
        with pytest.raises(Refused) as refused:
            workspace.compile_sql(f"SELECT {call} AS x FROM t")
        assert hint in refused.value.hint


def test_a_session_of_another_meaning_is_refused(spark: Any) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.ansi.enabled", "false")
    # A new session takes its settings from the context again, so this one is asked directly.
    from headwater.compute.catalyst.compiler import _require_meaning

    with pytest.raises(OtherMeaning, match="ansi"):
        _require_meaning(other)


def test_a_text_that_loses_its_meaning_is_refused(workspace: Workspace, spark: Any) -> None:
    """The self-check itself: a text is compared with an expression it was not printed from."""
    frame = workspace.session.sql("SELECT first(a, true) AS x, sum(b) AS y FROM t")
    loader = jvm.front_end(spark).getClass().getClassLoader()
    analysed = frame._jdf.queryExecution().analyzed()
    expressions = analysed.expressions()
    first = expressions.apply(0).child()
    gateway = spark.sparkContext._gateway
    kinds = gateway.new_array(gateway.jvm.java.lang.Class, 1)
    kinds[0] = workspace.session._jsparkSession.getClass()
    values = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    values[0] = workspace.session._jsparkSession
    checker = loader.loadClass("headwater.Checker").getConstructor(kinds).newInstance(values)
    scope = [analysed.child().output().apply(n) for n in range(analysed.child().output().size())]
    aggregate = 1
    checker.check(aggregate, ["first(a, true)"], [first], scope)
    for lost in (
        "first(a)",
        "last(a, true)",
        "first(b, true)",
        "first(a, true) FILTER (WHERE b > 0)",
    ):
        with pytest.raises(Exception, match="its text does not say what it means"):
            checker.check(aggregate, [lost], [first], scope)


def test_a_name_that_reads_like_a_function_is_none(workspace: Workspace) -> None:
    text = f"{RECURSIVE} SELECT n AS first, sum(n) AS now, rank() OVER (ORDER BY n) AS r FROM r"
    assert workspace.compile_sql(f"{text} GROUP BY n").outputs[0].label == "first"
