"""Which functions of the user's a passage calls, for which rows, and in which order."""

from __future__ import annotations

from headwater.compute.dataflow.edge import Edge, lane_scan
from headwater.compute.dataflow.passage_calls import Call, answers, call_layers, why_not_called
from headwater.compute.ir.expression import Column, Expression, Named, WindowCall
from headwater.compute.ir.node import Filter, Generate, Node, Project, Window

F, G = "headwater_udf_f", "headwater_udf_g"
SCAN = lane_scan((Column("x_1", "bigint", True), Column("s_2", "string", True)))
SLOTS = {"x_1": "l0", "s_2": "t0"}


def _expression(text: str, type_: str = "string") -> Expression:
    columns = tuple(name for name in ("x_1", "s_2", "p_3") if name in text)
    return Expression(text, type_, True, columns)


def _calls(node: Node) -> tuple[Call, ...]:
    return answers(Edge(7, node, 8), SLOTS).calls


def test_an_edge_without_functions_asks_for_nothing() -> None:
    node = Filter(SCAN, _expression("(s_2 = 'headwater_udf_')", "boolean"))
    assert _calls(node) == ()
    found = answers(Edge(7, node, 8), SLOTS)
    assert found.of(0, "anything") == "anything"
    assert call_layers([], "try") == []


def test_an_answer_stands_for_the_call() -> None:
    node = Project(SCAN, (Named("p_3", _expression(f"upper({F}(x_1))")),))
    found = answers(Edge(7, node, 8), SLOTS)
    (call,) = found.calls
    assert (call.lane, call.function, call.arguments) == (7, F, ("l0",))
    assert found.of(0, f"upper({F}(x_1))") == f"upper({call.value})"
    asked = f"CASE WHEN __lane = 7 THEN try(array(named_struct('a0', l0))) END AS {call.asked}"
    given = f"coalesce(size({call.asked}) = 1, false), get({call.asked}, 0).a0"
    called = f"headwater_called_f({given}) AS {call.answer}"
    assert call_layers(found.calls, "try") == [["*", asked], ["*", called]]


def test_equal_calls_are_one() -> None:
    both = _expression(f"concat({F}(x_1), {F}(x_1), '{F}(x_1)')")
    node = Project(SCAN, (Named("p_3", both), Named("q_4", _expression(f"{F}(x_1)"))))
    found = answers(Edge(7, node, 8), SLOTS)
    (call,) = found.calls
    assert found.of(0, both.text) == f"concat({call.value}, {call.value}, '{F}(x_1)')"


def test_a_call_in_an_argument_comes_first() -> None:
    node = Project(SCAN, (Named("p_3", _expression(f"{F}({G}(x_1), s_2)")),))
    inner, outer = _calls(node)
    assert (inner.function, inner.layer) == (G, 0)
    assert (outer.function, outer.layer) == (F, 1)
    assert outer.arguments == (inner.value, "t0")
    assert len(call_layers((inner, outer), "try")) == 4
    # Where the inner one has no answer nothing is asked of the outer one.
    assert inner.without == ()
    assert outer.without == (inner.has_failed,)
    assert outer.asking.startswith(f"IF({inner.has_failed}, array(), array(named_struct(")


def test_a_row_asks_if_the_filters_below_are_true_of_it() -> None:
    node = Project(
        Filter(SCAN, _expression("(x_1 > 0)", "boolean")),
        (Named("p_3", _expression(f"{F}(x_1)")),),
    )
    (call,) = _calls(node)
    assert call.conditions == ("((l0 > 0))",)
    assert call.asking == "IF(((l0 > 0)), array(named_struct('a0', l0)), array())"


def test_what_calls_nothing_is_asked_first() -> None:
    """Also where it stands behind the call, as Spark has it."""
    node = Filter(SCAN, _expression(f"(({F}(x_1) = 'a') AND (x_1 > 0))", "boolean"))
    (call,) = _calls(node)
    assert call.conditions == ("((x_1 > 0))".replace("x_1", "l0"),)


def test_what_a_projection_computes_is_put_in() -> None:
    node = Project(
        Project(SCAN, (Named("p_3", _expression(f"{G}(x_1)")),)),
        (Named("q_4", _expression(f"{F}(p_3)")),),
    )
    inner, outer = _calls(node)
    assert outer.arguments == (f"({inner.value})",)
    assert outer.layer == 1


def test_arguments_may_have_names_and_there_may_be_none() -> None:
    outputs = (
        Named("p_3", _expression(f"{F}(x_1, `end` => 'h')")),
        Named("q_4", _expression(f"{G}()")),
    )
    named, none = _calls(Project(SCAN, outputs))
    assert "a1 => " not in named.called
    assert f"`end` => get({named.asked}, 0).a1" in named.called
    assert none.asking == "array(named_struct('a0', 0))"
    assert none.called.endswith(" = 1, false))")


def test_no_function_is_called_where_rows_are_made() -> None:
    one = Column("p_3", "bigint", True)
    call = (Named("q_4", _expression(f"{F}(p_3)")),)
    exploded = Generate(SCAN, _expression("explode(array(x_1))", "array<bigint>"), (one,))
    assert why_not_called(Edge(7, exploded, 8)) is None
    why = why_not_called(Edge(7, Project(exploded, call), 8))
    assert why == f"{F}() is a function in Python above a generator"
    of_answers = Generate(SCAN, _expression(f"explode({F}(x_1))", "array<bigint>"), (one,))
    assert why_not_called(Edge(7, of_answers, 8)) is None
    version = Expression("_version_0", "bigint", False, ("_version_0",))
    scan = lane_scan((Column("_version_0", "bigint", False), Column("p_3", "bigint", True)))
    place = WindowCall("_place_0", "row_number", "row_number()", "ROWS x", "int", False)
    why = why_not_called(Edge(7, Project(Window(scan, (version,), (), (place,)), call), 8))
    assert why == f"{F}() is a function in Python above a window"
