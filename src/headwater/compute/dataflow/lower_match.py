"""The rules of semi, anti and outer joins, and of ``NOT IN``.

A semi or anti join by keys alone is one operator, which counts the right's rows by key. The left is
read raw (``raw.py``) where its keys are columns of a stored collection.

**With a residual** the partners of a row are not those of a key. Let ``θ`` be the condition and
``π`` the projection to the columns of the left that ``θ`` mentions. Then

    L semi R on θ   =   L semi π(L ⋈ R on θ)  by all of π's columns, NULL equal to NULL

because whether a row has a partner depends on those columns alone; a semi join asks only whether
there is one, so it does not matter how often a row comes out of the inner join.

**Outer joins** are the inner join and the rows of the preserved side without a partner, padded:

    L left R   =   L ⋈ R   +   (L anti R), NULLs

**NOT IN** (one key that compares by ``=?``, equal or unknown). Of the rows that have no equal key,

    empty: the right has no row           whole: no key of the right is NULL
    the row has no equal-or-unknown partner   iff   empty or (whole and its own key is not NULL)

and the two flags are one row, which changes only when one of them does. Together with other keys or
a residual ``=?`` is a part of the residual.

Kept by: this module, against an oracle (``tests/unit/dataflow/test_random_plans.py``).
Relied on by: ``lower.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.compute.dataflow.flow import (
    ONE,
    Context,
    Flow,
    Unruled,
    columns_of,
    computed,
    filtered,
    is_key,
    kept,
    projected,
)
from headwater.compute.dataflow.graph import (
    AccumulateCall,
    DeltaJoin,
    Hop,
    KeyMatch,
    Laned,
    Origin,
    Scanned,
    Semi,
)
from headwater.compute.dataflow.lower_group import accumulated
from headwater.compute.dataflow.lower_join import joined
from headwater.compute.dataflow.needs import names
from headwater.compute.dataflow.raw import (
    Raw,
    judged,
    live_before,
    plain_keys,
    raw,
    stepped,
)
from headwater.compute.dataflow.simplify import by_field
from headwater.compute.ir.expression import BOOLEAN, Column, Expression, JoinKey, Named
from headwater.compute.ir.node import Join, JoinKind, Node, reference

COUNT: Final = Column("_count_0", "bigint", False)


def matched(context: Context, join: Join, wanted: Sequence[str]) -> Flow:
    """Return the rows of a semi or anti join."""
    kind = _half(join.kind)
    comparisons = {key.comparison for key in join.keys}
    if "=?" not in comparisons and join.residual is None:
        return _semi(context, kind, join, wanted)
    if len(join.keys) == 1 and join.residual is None:
        return _unknown(context, kind, join, wanted)
    inner = _as_inner(join)
    # The left is needed by itself too, so it is not taken apart.
    pairs = joined(context, inner, _asked(inner), flat=False)
    return _by_pairs(context, kind, inner, pairs, wanted)


def outer(context: Context, join: Join, wanted: Sequence[str]) -> Flow:
    """Return the rows of a left, right or full outer join."""
    inner = _as_inner(join)
    on_left, on_right = set(names(join.left)), set(names(join.right))
    asked = _asked(inner) if inner.residual is not None else []
    carried = [name for name in names(inner) if name in {*wanted, *asked}]
    # Both sides are needed by themselves too, so they are not taken apart.
    pairs = joined(context, inner, carried, flat=False)
    flows = [kept(pairs, wanted)]
    types = {column.name: column for column in join.columns}
    if join.kind in ("left", "full"):
        mine = [name for name in wanted if name in on_left]
        flows.append(_padded(_unmatched(context, inner, pairs, mine), wanted, types))
    if join.kind in ("right", "full"):
        mine = [name for name in wanted if name in on_right]
        flows.append(_padded(_unmatched(context, _swapped(inner), pairs, mine), wanted, types))
    return tuple(piece for flow in flows for piece in flow)


def _half(kind: JoinKind) -> str:
    assert kind in ("semi", "anti")
    return kind


def _as_inner(join: Join) -> Join:
    """Return the inner join by the same condition; ``=?`` is a condition but no key."""
    keys = tuple(key for key in join.keys if key.comparison != "=?")
    rest = [_condition(key) for key in join.keys if key.comparison == "=?"]
    if join.residual is not None:
        rest.append(join.residual)
    residual = None
    if rest:
        text = rest[0].text if len(rest) == 1 else f"({' AND '.join(e.text for e in rest)})"
        columns = tuple(sorted({name for e in rest for name in e.columns}))
        residual = Expression(text, BOOLEAN, True, columns)
    return Join(join.left, join.right, "inner", keys, residual)


def _condition(key: JoinKey) -> Expression:
    columns = tuple(sorted({*key.left.columns, *key.right.columns}))
    return Expression(key.text, BOOLEAN, True, columns)


def _swapped(join: Join) -> Join:
    keys = tuple(JoinKey(key.right, key.left, key.comparison) for key in join.keys)
    return Join(join.right, join.left, "inner", keys, join.residual)


def _asked(join: Join) -> list[str]:
    """Return the columns that the condition mentions, of both sides."""
    mentioned = {name for key in join.keys for name in (*key.left.columns, *key.right.columns)}
    if join.residual is not None:
        mentioned.update(join.residual.columns)
    return [name for name in names(join) if name in mentioned]


def _unmatched(context: Context, inner: Join, pairs: Flow, wanted: Sequence[str]) -> Flow:
    """Return the rows of the left of an inner join that are in none of its pairs."""
    if inner.residual is None:
        return _semi(context, "anti", inner, wanted)
    return _by_pairs(context, "anti", inner, pairs, wanted)


def _padded(flow: Flow, wanted: Sequence[str], columns: dict[str, Column]) -> Flow:
    here = {column.name: column for column in columns_of(flow)}

    def output(name: str) -> Named:
        if name in here:
            return reference(here[name])
        type_ = columns[name].type
        return Named(name, Expression(f"CAST(NULL AS {type_})", type_, True))

    return projected(flow, [output(name) for name in wanted])


# ---- by keys ---------------------------------------------------------------------------------


def _semi(context: Context, kind: str, join: Join, wanted: Sequence[str]) -> Flow:
    right = context.flow(join.right)
    safe = [key.comparison == "<=>" for key in join.keys]
    return _operator(
        context,
        kind,
        (join.left, [key.left for key in join.keys]),
        (right, [key.right for key in join.keys]),
        safe,
        wanted,
    )


def _by_pairs(context: Context, kind: str, join: Join, pairs: Flow, wanted: Sequence[str]) -> Flow:
    """Return the rows of the left that are, or are not, in the pairs of a condition."""
    mine = set(names(join.left))
    columns = [column for column in columns_of(pairs) if column.name in mine]
    asked = set(_asked(join))
    same = [reference(column).expression for column in columns if column.name in asked]
    keys = [part.left for key in same for part in by_field(JoinKey(key, key, "<=>"))]
    return _operator(context, kind, (join.left, keys), (pairs, keys), [True] * len(keys), wanted)


def _operator(
    context: Context,
    kind: str,
    left: tuple[Node, Sequence[Expression]],
    right: tuple[Flow, Sequence[Expression]],
    null_safe: Sequence[bool],
    wanted: Sequence[str],
) -> Flow:
    build = context.build
    node, left_keys = left
    flow, right_keys = right
    if not left_keys:
        left_keys, right_keys, null_safe = [ONE], [ONE], [False]
    for key in (*left_keys, *right_keys):
        if not is_key(key):
            raise Unruled("join", f"a {key.type} cannot be a key")
    origin, stored, mine = _left(context, node, left_keys, wanted)
    steps = stored.steps if stored is not None else ()
    theirs = tuple(Named(build.fresh("match"), key) for key in right_keys)
    counted = build.origin(projected(flow, theirs))
    order = sorted(range(len(mine)), key=lambda n: _field(origin, mine[n]))
    keys = tuple(KeyMatch(mine[n], theirs[n].name, null_safe[n]) for n in order)
    counts = build.state((*counted.columns, COUNT), [key.right for key in keys])
    live = live_before(steps, wanted)
    output = build.lane(column for column in origin.columns if column.name in live)
    build.add(
        Semi(
            kind="semi" if kind == "semi" else "anti",
            left=origin,
            right=counted,
            keys=keys,
            arrangement=build.arrangement(origin, [key.left for key in keys]),
            counts=counts,
            output=output,
        )
    )
    rows = stepped(build.flow_of(output), steps, wanted)
    if stored is None:
        return rows
    return (*rows, *judged(build, stored, columns_of(rows), wanted))


def _left(
    context: Context, node: Node, keys: Sequence[Expression], wanted: Sequence[str]
) -> tuple[Origin, Raw | None, list[str]]:
    """Return what the operator reads, what is left to do after it if any, and the key's columns."""
    stored = raw(node)
    if stored is not None:
        types = {column.name: column.type for column in node.columns}
        plain = plain_keys(stored, keys, types)
        if plain is not None:
            carried = live_before(stored.steps, wanted) | set(plain)
            fields = tuple(f for f in stored.scan.fields if f.column.name in carried)
            return Scanned(stored.scan.relation, fields), stored, plain
    flow = context.flow(node)
    found: list[str] = []
    extra: list[Named] = []
    for key in keys:
        if key.is_column and key.text not in found:
            found.append(key.text)
        else:
            extra.append(Named(context.build.fresh("key"), key))
            found.append(extra[-1].name)
    return context.build.origin(computed(flow, extra)), None, found


def _field(origin: Origin, name: str) -> str:
    """Return by what the columns of a key are ordered, so that views agree on it."""
    if isinstance(origin, Scanned):
        return next(f.field for f in origin.fields if f.column.name == name)
    return f"{_names_of(origin).index(name):06}"


def _names_of(origin: Origin) -> tuple[str, ...]:
    return tuple(column.name for column in origin.columns)


# ---- NOT IN ----------------------------------------------------------------------------------


def _unknown(context: Context, kind: str, join: Join, wanted: Sequence[str]) -> Flow:
    build = context.build
    (key,) = join.keys
    equal = Join(join.left, join.right, "inner", by_field(JoinKey(key.left, key.right, "=")))
    own = Named(build.fresh("own"), key.left)
    needed_of_left = [c.name for c in columns_of(context.flow(join.left))]
    without = computed(_semi(context, "anti", equal, needed_of_left), (own,))
    flags, empty, whole = _flags(context, context.flow(join.right), key.right)
    both = _constantly_joined(context, without, flags)
    passes = f"({empty} OR ({whole} AND ({own.name} IS NOT NULL)))"
    columns = tuple(sorted((empty, whole, own.name)))
    if kind == "anti":
        return kept(filtered(both, Expression(passes, BOOLEAN, False, columns)), wanted)
    with_unknown = filtered(both, Expression(f"(NOT {passes})", BOOLEAN, False, columns))
    return (*_semi(context, "semi", equal, wanted), *kept(with_unknown, wanted))


def _flags(context: Context, right: Flow, key: Expression) -> tuple[Flow, str, str]:
    """Return one row that says of the right: it is empty; no key of it is NULL."""
    build = context.build
    value = Named(build.fresh("value"), key)
    origin = build.origin(projected(right, (value,)))
    rows, values, empty, whole = (
        build.fresh(what) for what in ("rows", "values", "empty", "whole")
    )
    calls = (
        AccumulateCall(rows, "count", "bigint", ()),
        AccumulateCall(values, "count", "bigint", (value.name,)),
    )
    counted = accumulated(build, origin, (), calls)
    flags = (
        Named(empty, Expression(f"({rows} = 0)", BOOLEAN, False, (rows,))),
        Named(
            whole, Expression(f"({rows} = {values})", BOOLEAN, False, tuple(sorted((rows, values))))
        ),
    )
    return projected(counted, flags), empty, whole


def _constantly_joined(context: Context, left: Flow, right: Flow) -> Flow:
    """Return every row of the left with every row of the right."""
    build = context.build
    ends: list[tuple[Laned, str]] = []
    for flow in (left, right):
        one = Named(build.fresh("one"), ONE)
        origin = build.origin(computed(flow, (one,)))
        assert isinstance(origin, Laned)
        ends.append((origin, one.name))
    (a, left_one), (b, right_one) = ends
    paths = (
        (Hop(1, build.arrangement(b, (right_one,)), (left_one,), (False,)),),
        (Hop(0, build.arrangement(a, (left_one,)), (right_one,), (False,)),),
    )
    output = build.lane(
        column for column in (*a.columns, *b.columns) if column.name not in (left_one, right_one)
    )
    build.add(DeltaJoin((a, b), paths, output))
    return build.flow_of(output)
