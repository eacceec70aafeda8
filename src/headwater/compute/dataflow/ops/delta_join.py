"""The inner equi-join of several inputs, by delta paths.

For inputs ``X1 … Xn`` and the updates ``ΔXi`` of a step ``[lower, upper)``:

    Δ(X1 ⋈ … ⋈ Xn)  =  sum over i of  path(i)

    path(i)  =  { (x1 … xn, t, d1 · … · dn) : (xi, t, di) in ΔXi,
                  (xj, s, dj) in Xj,  s <= t if j < i,  s < t if j > i,  all keys agree }

where ``Xj`` is everything before ``upper``. Each combination of updates counts once, in the path of
the latest of them (of the last input among those at one time), at that time: there is no cross
term and no intermediate state. A path is a chain of hops; each looks up one more input in an
arrangement of it, by columns that are known by then. ``=`` never matches NULL, ``<=>`` does.

A column is carried only from where it is found to the last hop, or the output, that needs it, and
rows which that makes equal are added up before the next lookup.

What a filter of one input leaves out after the join is left out before its lookups, and of what
they find (``DeltaJoin.kept``): an order that is not open looks up none of its lines.

In a hydrating step nothing is before ``lower``, so an update at ``lower`` gets through a path only
if no hop is strict: the last input's path does all the work, and the others do not even begin.

Without an equality every row is a partner by its key, which is a constant. A hop then reads all of
them, once for all that was found, and keeps the pairs that inequalities allow (``within.py``).

Bound: the deltas, and the stored updates that match on each hop; never the size of an input, except
where nothing is equal. The
arrangements may be compacted to ``lower - 1`` but not to ``lower``: a strict hop could not see what
was before an update at ``lower``.

Kept by: this module, against an oracle at every time in ``tests/unit/dataflow/test_delta_join.py``.
Relied on by: every plan with an inner join, and by outer joins, which are one and an anti join.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.errors import HeadwaterError
from headwater.collection.probe import PROBE_INDEX
from headwater.compute.dataflow.graph import DeltaJoin, Hop
from headwater.compute.dataflow.operator import Given, History, Outcome
from headwater.compute.dataflow.ops.of_use import OfUse, asked_of, kept_rows, of_use
from headwater.compute.dataflow.ops.within import pairs, present
from headwater.compute.dataflow.term import Term
from headwater.persist.consolidate import DIFF, TIME, column_longs, consolidate

SYSTEM: Final = (TIME, DIFF)


def step(op: DeltaJoin, given: Given, asked: OfUse | None = None) -> Outcome:
    """Return the changes of the join; ``asked``: instead of what the join itself keeps."""
    terms = of_use(op) if asked is None else asked
    paths = [_path(op, number, given, terms) for number in range(len(op.inputs))]
    return Outcome(pa.concat_tables([given.output.empty_table(), *paths]))


def _path(op: DeltaJoin, number: int, given: Given, asked: OfUse) -> pa.Table:
    """Follow the updates of one input to their partners in all others."""
    hops = op.paths[number]
    updates = kept_rows(given.deltas[op.inputs[number]], asked.get(number, ()))
    if given.hydrating and any(hop.input > number for hop in hops):
        updates = updates.filter(pc.greater(updates.column(TIME), given.lower))
    if not updates.num_rows:
        return given.output.empty_table()
    before, *after = _needed(hops, given.output.names)
    found = updates.select(_kept(updates, before))
    for hop, names in zip(hops, after, strict=True):
        found = consolidate(found)  # Without what was pruned, updates may cancel, even all.
        if not found.num_rows:
            return given.output.empty_table()
        history, terms = given.arrangements[hop.arrangement], asked.get(hop.input, ())
        found = _joined(found, hop, history, names, terms, path=number)
    columns = [found.column(name) for name in given.output.names]
    return pa.Table.from_arrays(columns, schema=given.output)


def _needed(hops: Sequence[Hop], output: Sequence[str]) -> list[frozenset[str]]:
    """Return which columns are needed before the first hop, and after each."""
    needed = [frozenset(output)]
    for hop in reversed(hops):
        needed.append(needed[-1] | frozenset(hop.probe))
    return needed[::-1]


def _kept(table: pa.Table, needed: frozenset[str]) -> list[str]:
    """Return the columns to keep, in the table's order."""
    return [name for name in table.column_names if name in needed or name in SYSTEM]


def _joined(
    found: pa.Table,
    hop: Hop,
    history: History,
    needed: frozenset[str],
    terms: Sequence[Term],
    *,
    path: int,
) -> pa.Table:
    """Return what was found so far with its partners in one more input."""
    wanted = [name for name in history.schema.names if name in needed and name not in SYSTEM]
    if hop.within:
        return _across(found, hop, history, needed, wanted, terms, path=path)
    partners = history.probe(
        [found.column(name) for name in hop.probe],
        at=column_longs(found, TIME),
        strict=hop.input > path,
        null_safe=hop.null_safe,
        columns=[*wanted, DIFF],
        kept=asked_of(terms),
    )
    # One chunk each: a probe answers in a chunk per run, and taking rows out of many is slow.
    partners = kept_rows(partners, terms).combine_chunks()
    moved = found.select(_kept(found, needed)).take(partners.column(PROBE_INDEX))
    return _multiplied(moved, partners, hop, wanted, path=path)


def _across(
    found: pa.Table,
    hop: Hop,
    history: History,
    needed: frozenset[str],
    wanted: Sequence[str],
    terms: Sequence[Term],
    *,
    path: int,
) -> pa.Table:
    """Return it with those of all rows of another input that are within its bounds."""
    found = present(found, [each.probed for each in hop.within])
    bounds = [each.found for each in hop.within]
    columns = list(dict.fromkeys([*wanted, *bounds, TIME, DIFF]))
    kept, times = found.select(_kept(found, needed)), column_longs(found, TIME)
    (probed,) = hop.probe
    none = pa.array([], pa.int64())
    nothing = pa.table({name: history.schema.empty_table().column(name) for name in columns})
    pieces = [_multiplied(kept.take(none), nothing, hop, wanted, path=path)]
    for every in history.under(found.column(probed).slice(0, 1), columns) if len(found) else ():
        partners = kept_rows(present(every, bounds), terms).combine_chunks()
        when = (times, column_longs(partners, TIME), hop.input > path)
        for mine, theirs in pairs(found, partners, hop.within, when):
            moved, met = kept.take(pa.array(mine)), partners.take(pa.array(theirs))
            pieces.append(_multiplied(moved, met, hop, wanted, path=path))
    return pa.concat_tables(pieces)


def _multiplied(
    moved: pa.Table, partners: pa.Table, hop: Hop, wanted: Sequence[str], *, path: int
) -> pa.Table:
    """Return pairs as rows, each as often as both of it together."""
    try:
        diffs = pc.multiply_checked(moved.column(DIFF), partners.column(DIFF))
    except pa.ArrowInvalid as error:
        raise HeadwaterError(
            "the multiplicity of a joined row does not fit 64 bits: "
            f"the updates of input {path}, looked up in {hop.arrangement}"
        ) from error
    carried = [name for name in moved.column_names if name != DIFF]
    return pa.table(
        {
            **{name: moved.column(name) for name in carried},
            **{name: partners.column(name) for name in wanted},
            DIFF: diffs,
        }
    )
