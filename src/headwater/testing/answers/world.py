"""Three small tables full of NULLs and duplicates, and random transactions that change them.

Texts of SQL, the same for us and for PostgreSQL:

    script = World(Random(7)).script()
    script.before                      CREATE TABLE …, INSERT …: what there is when views are made
    script.after                       what changes it afterwards

Values are few, so that joins meet, groups have members and rows have twins. Sums of the floats are
exact in any order; whole numbers are small, so that no arithmetic of the generator overflows.

Invariant: a statement changes the same rows on both sides: what it asks for, it asks by values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

Type = Literal[
    "int", "bigint", "numeric", "float", "text", "bool", "date", "timestamp", "timestamptz", "jsonb"
]
"""What the generator tells apart; a numeric has the digits that its column declares."""

TYPES: Final[tuple[Type, ...]] = (
    "int",
    "bigint",
    "numeric",
    "float",
    "text",
    "bool",
    "date",
    "timestamp",
    "timestamptz",
)
"""Those with an order, which queries are made of; jsonb is carried along."""

DECLARED: Final[Mapping[str, Mapping[str, str]]] = {
    "t": {
        "k": "int",
        "g": "text",
        "x": "bigint",
        "n": "numeric(9,2)",
        "f": "double precision",
        "b": "boolean",
    },
    "u": {
        "k": "int",
        "h": "text",
        "y": "int",
        "d": "date",
        "ts": "timestamp",
        "tz": "timestamptz",
    },
    "v": {"id": "int PRIMARY KEY", "k": "bigint", "s": "text", "z": "numeric", "j": "jsonb"},
}

_KINDS: Final[Mapping[str, Type]] = {
    "int": "int",
    "int PRIMARY KEY": "int",
    "bigint": "bigint",
    "numeric": "numeric",
    "numeric(9,2)": "numeric",
    "double precision": "float",
    "text": "text",
    "boolean": "bool",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "jsonb": "jsonb",
}
COLUMNS: Final[Mapping[str, Mapping[str, Type]]] = {
    table: {name: _KINDS[declared] for name, declared in columns.items()}
    for table, columns in DECLARED.items()
}

VALUES: Final[Mapping[Type, Sequence[str]]] = {
    "int": ("1", "2", "0", "3", "-1"),
    "bigint": ("2", "1", "3", "-2", "5000000000"),
    "numeric": ("1.50", "2.00", "-0.25", "2.60", "0.00"),
    "float": ("0.25", "-1.5", "3", "0"),
    "text": ("'a'", "'b'", "''", "'ab'", "'Äx'", "'7'"),
    "bool": ("true", "false"),
    "date": ("'2024-02-29'", "'2024-03-01'", "'2023-12-31'"),
    "timestamp": ("'2024-02-29 10:00:00'", "'2024-02-29 10:00:00.25'", "'2023-12-31 23:59:59'"),
    "timestamptz": ("'2024-02-29 10:00:00+00'", "'2024-03-31 00:30:00+00'"),
    "jsonb": ("""'{"a": 1}'""", "'[1, null]'", "'7'"),
}
"""The texts of what a column holds, the frequent ones first."""

NULL_CHANCE: Final = 0.2
ROWS_MAX: Final = 7
STATEMENTS_MAX: Final = 4


Transaction = tuple[str, ...]
"""Statements that are done together."""


@dataclass(frozen=True, slots=True)
class Script:
    """What happens to the tables before views are made, and after."""

    before: tuple[Transaction, ...]
    after: tuple[Transaction, ...]


@dataclass
class World:
    """The tables, as far as one has to know them to change them."""

    random: Random
    last_id: int = 0
    tables: Mapping[str, Mapping[str, Type]] = field(default_factory=lambda: COLUMNS)

    def script(self) -> Script:
        """Return how the tables are made, mostly filled, and changed; some are emptied at once."""
        made = tuple(
            f"CREATE TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns.items())})"
            for name, columns in DECLARED.items()
        )
        filled = tuple(self.insert(name) for name in self.tables if self.random.random() < 0.85)
        after = [self._transaction() for _ in range(self.random.randint(1, 4))]
        if self.random.random() < 0.2:
            emptied = tuple(f"DELETE FROM {name}" for name in self.tables)  # noqa: S608 - ours
            after.insert(self.random.randrange(len(after)), emptied)
        return Script(((*made,), (*filled,)), tuple(after))

    def _transaction(self) -> Transaction:
        count = self.random.randint(1, STATEMENTS_MAX)
        return tuple(self._change(self.random.choice(list(self.tables))) for _ in range(count))

    def insert(self, table: str) -> str:
        """Return an INSERT of some rows."""
        rows = [self._row(table) for _ in range(self.random.randint(1, ROWS_MAX))]
        return f"INSERT INTO {table} VALUES {', '.join(rows)}"  # noqa: S608 - our own texts

    def _change(self, table: str) -> str:
        kind = self.random.choices(("insert", "update", "delete"), (5, 3, 3))[0]
        if kind == "insert":
            return self.insert(table)
        columns = [c for c in self.tables[table] if c not in ("id", "j")]
        asked, changed = self.random.choice(columns), self.random.choice(columns)
        where = f"{asked} = {self._value(table, asked)}"
        if self.random.random() < 0.2:
            where = f"{asked} IS NULL"
        if kind == "delete":
            return f"DELETE FROM {table} WHERE {where}"  # noqa: S608 - our own texts
        value = self._cell(table, changed)
        return f"UPDATE {table} SET {changed} = {value} WHERE {where}"  # noqa: S608 - likewise

    def _row(self, table: str) -> str:
        return f"({', '.join(self._cell(table, column) for column in self.tables[table])})"

    def _cell(self, table: str, column: str) -> str:
        if column == "id":
            self.last_id += 1
            return str(self.last_id)
        return "NULL" if self.random.random() < NULL_CHANCE else self._value(table, column)

    def _value(self, table: str, column: str) -> str:
        found = VALUES[self.tables[table][column]]
        # The first of them twice as often as the last.
        return self.random.choices(found, range(2 * len(found), len(found), -1))[0]
