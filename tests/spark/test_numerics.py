"""Numerics of PostgreSQL's dialect on Spark: PostgreSQL's value, or an error that it deserves.

Pairs of types up to 38 digits, random and awkward values, every operator and form of comparison,
asked of both engines. What is asserted of each value:

    a value of ours, rounded to the digits that PostgreSQL prints, is PostgreSQL's
    a comparison is PostgreSQL's truth, and never an error
    where ours is an error, PostgreSQL's value does not fit the type that was chosen
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import psycopg
import pyarrow as pa
import pytest

from headwater.adapter.dialect import to_spark
from headwater.collection.types import NUMERIC_BARE, SqlType, numeric, scalar
from headwater.compute.catalyst import try_eval
from headwater.compute.catalyst.query_session import query_session
from tests.spark.test_dialect import register
from tests.unit.adapter_dialect.postgres_side import ask, started

pytestmark = [pytest.mark.spark, pytest.mark.server]

SEED = random.SystemRandom().randrange(1_000_000)
ROWS: Final = 30

SAMPLED: Final = 240
"""Of some 2,500 expressions of two columns; others with each seed."""
TOGETHER: Final = 60

COLUMNS: Final[dict[str, SqlType]] = {
    "n": numeric(*NUMERIC_BARE),
    "h": numeric(38, 0),
    "a": numeric(10, 2),
    "c": numeric(20, 18),
    "d": numeric(38, 20),
    "e": numeric(38, 38),
    "f": numeric(5, 5),
    "g": numeric(38, 37),
    "m": numeric(20, 1),
    "k": numeric(30, 6),
    "i": scalar("integer"),
    "l": scalar("bigint"),
}
RELATIONS: Final = {"v": {"id": scalar("integer"), **COLUMNS}}
PAIRS: Final = tuple(
    pair for pair in itertools.product(COLUMNS, COLUMNS) if not {*pair} <= {"i", "l"}
)

_LEAVES: Final = tuple(
    name if type_.name == "numeric" else f"{name}::numeric" for name, type_ in COLUMNS.items()
)

COMPARED: Final = (
    *(f"{{a}} {operator} {{b}}" for operator in ("=", "<>", "<", "<=", ">", ">=")),
    "{a} in ({b}, 3, 2.6)",
    "{a} not in ({b}, 2.0000000001)",
    "{a} between {b} and 3",
    "{a} is distinct from {b}",
    "{a} is not distinct from {b}",
    "case {a} when {b} then 1 when 2.6 then 2 end",
    "nullif({a}, {b}) is null",
    "({a}, 1) = ({b}, 1)",
    "{a} = any (array[{b}])",
)
COMPUTED: Final = ("{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / nullif({b}, 0)")
NEVER_TOO_LARGE: Final = (
    *("{a} % nullif({b}, 0)", "- {a}", "abs({b})"),
    *(
        "sign(({a})::numeric)",
        "floor(({a})::numeric)",
        "trunc(({a})::numeric)",
        "{a} = 0",
        "0 < {b}",
    ),
)


def values(chance: random.Random, type_: SqlType) -> Decimal | None:
    """Small numbers that are equal often, and others as large and as fine as the type has them."""
    if chance.random() < 0.1:
        return None
    precision, scale = (9, 0) if type_.name == "integer" else (18, 0)
    if type_.name == "numeric":
        precision, scale = type_.args
    kind = chance.random()
    if kind < 0.4:
        near = Decimal(chance.choice(("0", "1", "2", "3", "2.6", "2.5", "-1.75", "0.3", "-2")))
    elif kind < 0.7:
        near = Decimal(chance.randint(-(10**9), 10**9)).scaleb(-chance.randint(0, 12))
    else:
        digits = chance.randint(1, precision)
        near = Decimal(chance.randint(-(10**digits), 10**digits)).scaleb(-scale)
    with localcontext() as context:
        context.prec = 100
        kept = near.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        if abs(kept) >= Decimal(10) ** (precision - scale):
            return Decimal(0).scaleb(-scale)
        return kept.normalize() if type_.args == NUMERIC_BARE else kept


@dataclass(frozen=True)
class Both:
    """The two engines, with the same table."""

    postgres: psycopg.Connection[Any]
    spark: Any

    def theirs(self, expressions: Sequence[str]) -> list[list[Any]]:
        """A column of each; none where PostgreSQL has an error."""
        listed = ", ".join(f"{e} as c{n}" for n, e in enumerate(expressions))
        _, _, rows = ask(self.postgres, f"select {listed} from v order by id")
        return [list(column) for column in zip(*rows, strict=True)]

    def ours(self, expressions: Sequence[str]) -> list[tuple[SqlType, list[Any]]]:
        """NULL where there is an error."""
        listed = ", ".join(f"{e} as c{n}" for n, e in enumerate(expressions))
        found = to_spark(f"select {listed}, id as last from v order by id", RELATIONS)
        parts = [to_spark(f"select {e} as x from v", RELATIONS) for e in expressions]
        tried = [part.text.removeprefix("SELECT ").rpartition(" AS `x` FROM")[0] for part in parts]
        source = parts[0].text.rpartition(" FROM ")[2]
        columns = ", ".join(f"headwater_try({text}) AS c{n}" for n, text in enumerate(tried))
        table = self.spark.sql(f"SELECT {columns} FROM {source} ORDER BY id").toArrow()
        types = [column.type for column in found.columns[:-1]]
        return list(zip(types, (c.to_pylist() for c in table.columns), strict=True))


@pytest.fixture(scope="module")
def both(spark: Any) -> Iterator[Both]:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    rows = [(at, *(values(chance, type_) for type_ in COLUMNS.values())) for at in range(ROWS)]
    types = RELATIONS["v"]
    arrays = [
        pa.array([row[at] for row in rows]).cast(type_.arrow)
        for at, type_ in enumerate(types.values())
    ]
    session = query_session(spark)
    try_eval.register(session)
    register(session, "v", pa.Table.from_arrays(arrays, names=list(types)))
    with started() as connection:
        listed = ", ".join(f"{name} {_declared(type_)}" for name, type_ in types.items())
        connection.execute(f"create table v ({listed})".encode())
        marks = ", ".join(["%s"] * len(types))
        connection.cursor().executemany(f"insert into v values ({marks})".encode(), rows)
        yield Both(connection, session)
    session.catalog.dropTempView("v")


def _declared(type_: SqlType) -> str:
    return "numeric" if type_.args == NUMERIC_BARE else type_.postgres


def agrees(theirs: Any, ours: Any) -> bool:
    """Whether ours, rounded to what PostgreSQL prints, is theirs."""
    if not isinstance(theirs, Decimal):
        return bool(theirs == ours)
    with localcontext() as context:
        context.prec = 400
        exponent = theirs.as_tuple().exponent
        assert isinstance(exponent, int)
        return bool(ours.quantize(Decimal(1).scaleb(exponent), ROUND_HALF_UP) == theirs)


def fits(value: Decimal, type_: SqlType) -> bool:
    with localcontext() as context:
        context.prec = 400
        plain = value.normalize()
        exponent = plain.as_tuple().exponent
        assert isinstance(exponent, int)
        precision, scale = type_.args
        return -exponent <= scale and abs(plain) < Decimal(10) ** (precision - scale)


def different(
    both: Both, expressions: Sequence[str], *, steps: bool = False
) -> list[tuple[Any, ...]]:
    """What is not as it should be; ``steps``: what did not fit may have been on the way."""
    found = []
    for place in range(0, len(expressions), TOGETHER):
        some = expressions[place : place + TOGETHER]
        for expression, theirs, (type_, ours) in zip(
            some, both.theirs(some), both.ours(some), strict=True
        ):
            for one, other in zip(theirs, ours, strict=True):
                if other is None and steps:
                    continue
                if other is None and isinstance(one, Decimal) and not fits(one, type_):
                    continue
                if (one is None) != (other is None) or (one is not None and not agrees(one, other)):
                    found.append((expression, type_, one, other))
                    break
    return found


def sampled(forms: Sequence[str], count: int) -> list[str]:
    every = [form.format(a=a, b=b) for form, (a, b) in itertools.product(forms, PAIRS)]
    return random.Random(SEED).sample(every, min(count, len(every)))


def test_comparisons_are_exact(both: Both) -> None:
    assert not different(both, sampled(COMPARED, SAMPLED))


_CHOICES: Final = ("coalesce({}, {})", "(case when id > 9 then {} else {} end)")


def nested(chance: random.Random, depth: int) -> str:
    """An expression of several operators, each over what others come to."""
    if depth == 0 or chance.random() < 0.15:
        return chance.choice((*_LEAVES, "2.5", "0.0001", "100.0"))
    one, other = nested(chance, depth - 1), nested(chance, depth - 1)
    form = chance.choice(
        ("({} + {})", "({} - {})", "({} * {})", *["({} / nullif({}, 0))"] * 3, *_CHOICES)
    )
    return form.format(one, other)


ROUNDED: Final = tuple(
    form.format(operation)
    for form in ("round({}, 2)", "round({}, 12)", "round({}, 0)")
    for operation in ("{a} / nullif({b}, 0)", "{a} * {b}", "{a} + {b}")
)


def test_a_rounded_value_fits_where_the_whole_does_not(both: Both) -> None:
    casts = ["(avg(n) over ())::numeric(38,4)", "(e * f)::numeric(38,30)"]
    assert not different(both, [*sampled(ROUNDED, SAMPLED), *casts])


def test_what_is_computed_from_a_quotient(both: Both) -> None:
    """PostgreSQL's own digits of a quotient decide what is made of it."""
    chance = random.Random(SEED)
    expressions: list[str] = []
    while len(expressions) < SAMPLED // 4:
        one, other = nested(chance, 2), nested(chance, 2)
        form = chance.choice(("{} * 1.0", "({} > {})", "({} = {})", "greatest({}, {})"))
        expressions.append(f"{form.format(one, other)}")
    assert not different(both, expressions, steps=True)


def test_values_are_postgresqls_or_do_not_fit(both: Both) -> None:
    assert not different(both, sampled((*COMPUTED, *NEVER_TOO_LARGE), SAMPLED))
