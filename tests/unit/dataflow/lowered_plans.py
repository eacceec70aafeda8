"""Plans written by hand, and what to ask of the dataflow that is made of one."""

from __future__ import annotations

from typing import TypeVar

from headwater.compute.dataflow.graph import (
    Dataflow,
    Output,
    Scanned,
)
from headwater.compute.dataflow.lower import lowered
from headwater.compute.ir.expression import (
    AggregateCall,
    Column,
    Expression,
    Field,
    JoinKey,
    Named,
)
from headwater.compute.ir.node import Join, JoinKind, Node, Scan

BOOLEAN = "boolean"
T = TypeVar("T")


def column(name: str, type_: str = "bigint") -> Column:
    return Column(name, type_, True)


def scan(relation: str, *names: str, type_: str = "bigint") -> Scan:
    fields = (Field(n.rpartition("_")[0], column(n, type_)) for n in names)
    return Scan(relation, tuple(fields))


def named(name: str, text: str, type_: str, *columns: str) -> Named:
    return Named(name, Expression(text, type_, True, columns))


def plain(name: str, type_: str = "bigint") -> Expression:
    return Expression(name, type_, True, (name,))


def where(text: str, *columns: str) -> Expression:
    return Expression(text, BOOLEAN, True, columns)


def inner(left: Node, right: Node, *keys: tuple[str, str], kind: JoinKind = "inner") -> Join:
    return Join(left, right, kind, tuple(JoinKey(plain(a), plain(b)) for a, b in keys))


def call(name: str, function: str, argument: str, *, distinct: bool = False) -> AggregateCall:
    once = "DISTINCT " if distinct else ""
    return AggregateCall(
        name,
        function,
        f"{function}({once}{argument})",
        "bigint",
        True,
        (argument,),
        (plain(argument),),
        distinct,
    )


def dataflow(plan: Node) -> Dataflow:
    found = lowered(plan)
    assert isinstance(found, Dataflow), found
    return found


def kinds(flow: Dataflow) -> list[str]:
    return [type(operator).__name__ for operator in flow.operators[:-1]]


def only(flow: Dataflow, kind: type[T]) -> T:
    (found,) = (operator for operator in flow.operators if isinstance(operator, kind))
    return found


def arranged(flow: Dataflow) -> list[tuple[str, tuple[str, ...]]]:
    """What is arranged by which fields or columns."""
    found = []
    for a in flow.arrangements:
        if isinstance(a.of, Scanned):
            fields = {f.column.name: f.field for f in a.of.fields}
            found.append((a.of.relation, tuple(fields[name] for name in a.key)))
        else:
            found.append(("lane", a.key))
    return found


def steps(flow: Dataflow, target: int) -> list[list[str]]:
    """The linear operators of each edge into a lane, from the last one down."""
    return [
        [type(n).__name__ for n in edge.chain()][:-1]
        for edge in flow.edges
        if edge.target == target
    ]


def output(flow: Dataflow) -> int:
    last = flow.operators[-1]
    assert isinstance(last, Output)
    return last.lane


A, B, C = scan("a", "x_1", "y_1"), scan("b", "x_2", "z_2"), scan("c", "z_3", "w_3")
