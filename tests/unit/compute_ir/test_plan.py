"""A plan and its bytes; the bytes of version 1 stay readable."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.compute.ir.expression import (
    AggregateCall,
    Column,
    Expression,
    Field,
    JoinKey,
    Named,
    SortKey,
    WindowCall,
)
from headwater.compute.ir.node import (
    Aggregate,
    Bag,
    Distinct,
    Expand,
    Filter,
    Generate,
    Join,
    Project,
    Scan,
    TemporalFilter,
    TopK,
    Union,
    Values,
    Window,
    walk,
)
from headwater.compute.ir.plan import (
    VERSION,
    WITH_FOREIGN,
    WITH_FUNCTIONS,
    OutputColumn,
    Plan,
    UserFunction,
    decoded,
    encoded,
    version,
)
from headwater.compute.ir.refusal import InvalidPlan, OtherMeaning
from headwater.compute.ir.text import outlined, written

GOLDEN = Path(__file__).parent / "plan_v1.json"
WITH_CODE = Path(__file__).parent / "plan_v2.json"
FOREIGN = Path(__file__).parent / "plan_v3.json"


def of(name: str, type_: str = "int") -> Expression:
    return Expression(name, type_, True, (name,))


def every_operator() -> Plan:
    """Return a plan in which every operator stands once, and every field has a value."""
    t = Scan(
        "T",
        (Field("A b", Column("a_b_1", "int", True)), Field("d", Column("d_1", "timestamp", False))),
    )
    kept = TemporalFilter(
        Filter(t, Expression("(a_b_1 > 3)", "boolean", True, ("a_b_1",))),
        of("d_1", "timestamp"),
        None,
    )
    values = Values((Column("v_1", "int", True),), (("1",), ("CAST(NULL AS INT)",)))
    joined = Join(
        kept,
        values,
        "left",
        (JoinKey(of("a_b_1"), of("v_1"), "<=>"),),
        Expression("(v_1 < a_b_1)", "boolean", True, ("a_b_1", "v_1")),
    )
    condition = Expression("(v_1 > 0)", "boolean", True, ("v_1",))
    call = AggregateCall(
        "sum_1",
        "sum",
        "sum(DISTINCT v_1) FILTER (WHERE (v_1 > 0))",
        "bigint",
        True,
        ("v_1",),
        (of("v_1"),),
        True,
        False,
        condition,
    )
    grouped = Aggregate(joined, ("a_b_1",), (call,))
    over = WindowCall(
        "lag_1",
        "lag",
        "lag(sum_1, 1, NULL) IGNORE NULLS",
        "ROWS BETWEEN -1 FOLLOWING AND -1 FOLLOWING",
        "bigint",
        True,
        ("sum_1",),
        (of("sum_1", "bigint"),),
        True,
    )
    windowed = Window(
        grouped, (of("a_b_1"),), (SortKey(of("sum_1", "bigint"), True, False),), (over,)
    )
    made = Generate(
        windowed,
        Expression("explode(array(1, 2))", "int", False),
        (Column("col_1", "int", True),),
        True,
    )
    expanded = Expand(
        made,
        ((of("a_b_1"), of("col_1")), (of("a_b_1"), Expression("NULL", "int", True))),
        (Column("x_1", "int", True), Column("y_1", "int", True)),
    )
    both = Union(
        (Distinct(expanded), expanded), (Column("x_2", "int", True), Column("y_2", "int", True))
    )
    fewer = Bag("except", both, expanded)
    shown = Project(
        fewer,
        (Named("x_2", of("x_2")), Named("twice_1", Expression("(y_2 * 2)", "int", True, ("y_2",)))),
    )
    top = TopK(shown, (SortKey(of("twice_1")),), 10, 2)
    return Plan(
        version=VERSION,
        spark_version="4.3.0",
        settings={"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"},
        root=top,
        outputs=(OutputColumn("X", "x_2"), OutputColumn("again", "x_2")),
        order=top.order,
        functions=(UserFunction("twice", "0123456789abcdef"),),
    )


def test_bytes_and_back() -> None:
    plan = every_operator()
    assert decoded(encoded(plan)) == plan
    assert encoded(decoded(encoded(plan))) == encoded(plan)
    kinds = {type(node) for node in walk(plan.root)}
    assert len(kinds) == 14, "every operator is in it"


def test_the_bytes_of_version_1_stay_readable() -> None:
    """Written once; if this fails, stored plans of users cannot be read any more."""
    assert decoded(GOLDEN.read_bytes()) == every_operator()
    assert GOLDEN.read_bytes().strip() == encoded(every_operator())


def with_code() -> Plan:
    """Return a plan that has the code of a function in it."""
    function = UserFunction("twice", "0123456789abcdef", b"\x80\x05N.", '"long"', 100, "3.11")
    return msgspec.structs.replace(every_operator(), version=WITH_FUNCTIONS, functions=(function,))


def test_the_bytes_of_version_2_stay_readable() -> None:
    """A plan with code; a program that knows only version 1 refuses it by its version."""
    assert decoded(WITH_CODE.read_bytes()) == with_code()
    assert WITH_CODE.read_bytes().strip() == encoded(with_code())
    (function,) = decoded(WITH_CODE.read_bytes()).functions
    assert function.called == "headwater_udf_0123456789abcdef"
    (older,) = decoded(GOLDEN.read_bytes()).functions
    assert (older.command, older.python) == (b"", ""), "what had no code has none"


def with_foreign() -> Plan:
    """Return a plan of what is Spark's alone: a table function, and a type of its columns."""
    plan = every_operator()
    text = "LATERAL variant_explode(parse_json('[1]'))"
    value = Column("value_1", "variant", True)
    exploded = Generate(Values((), ((),)), Expression(text, "array<variant>", False), (value,))
    shown = Expression("to_json(value_1)", "string", True, ("value_1",))
    root = Project(exploded, (Named("j_1", shown),))
    outputs = (OutputColumn("j", "j_1"),)
    return Plan(version(root, ()), plan.spark_version, plan.settings, root, outputs)


def test_the_bytes_of_version_3_stay_readable() -> None:
    """With what is Spark's alone; older programs refuse it by its version."""
    assert with_foreign().version == WITH_FOREIGN
    assert decoded(FOREIGN.read_bytes()) == with_foreign()
    assert FOREIGN.read_bytes().strip() == encoded(with_foreign())


def test_a_plan_has_the_least_version_that_will_do() -> None:
    plan = with_code()
    assert version(plan.root, plan.functions) == WITH_FUNCTIONS
    assert version(plan.root, ()) == VERSION
    keywords = Generate(
        Values((), ((),)),
        Expression("LATERAL sql_keywords()", "array<string>", False),
        (Column("keyword_1", "string", True),),
    )
    assert version(keywords, ()) == WITH_FOREIGN


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"version": 99}',
        encoded(every_operator()).replace(b'"top_k"', b'"other"'),
        encoded(every_operator()).replace(b'"limit":10', b'"limit":-1'),
        encoded(every_operator()).replace(
            b'"(a_b_1 > 3)","type":"boolean"', b'"(a_b_1 > 3)","type":"int"'
        ),
        encoded(every_operator())[:-9],
    ],
)
def test_other_bytes_are_no_plan(data: bytes) -> None:
    with pytest.raises(InvalidPlan):
        decoded(data)


def test_a_plan_shows_columns_it_has() -> None:
    plan = every_operator()
    assert [column.name for column in plan.columns] == ["x_2", "x_2"]
    assert [column.name for column in plan.shown().columns] == ["x_2"]
    assert plan.relations == ("T",)
    with pytest.raises(InvalidPlan):
        msgspec.structs.replace(plan, outputs=(OutputColumn("z", "z_1"),))


def test_a_plan_belongs_to_its_spark_and_settings() -> None:
    plan = every_operator()
    plan.require("4.3.0", {**plan.settings, "spark.ui.enabled": "false"})
    with pytest.raises(OtherMeaning, match=r"4\.4\.0"):
        plan.require("4.4.0", plan.settings)
    with pytest.raises(OtherMeaning, match="ansi"):
        plan.require("4.3.0", {**plan.settings, "spark.sql.ansi.enabled": "false"})


def test_the_readable_form() -> None:
    assert written(every_operator()) == (Path(__file__).parent / "plan_v1.txt").read_text("utf-8")
    typed = outlined(every_operator().root, types=True)
    assert "  : a_b_1 int, d_1 timestamp not null\n" in typed
