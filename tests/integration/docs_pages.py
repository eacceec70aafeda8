"""Every page of the documentation with something to type, and who types it.

A page stands in :data:`ELSEWHERE`, with the test that executes its blocks, or in :data:`HERE`, with
what somebody has who reads it: objects that it speaks of, and what its names stand for. What is
shown as ``text`` is a form, or an answer, and nobody types it.

``tests/unit/cli/test_pages.py`` fails for a page that is in neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BLOCK: Final = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS: Final = ("bash", "console", "py", "python", "sh", "shell", "sql")

ELSEWHERE: Final = {
    "README.md": "tests/integration/test_quickstart_typed.py",
    "docs/quickstart.md": "tests/integration/test_quickstart_typed.py",
    "docs/python.md": "tests/spark/test_python_page.py",
    "docs/pipelines.md": "tests/spark/test_pipelines.py",
    "docs/sources/formats.md": "tests/integration/test_kafka_formats.py",
    "docs/sources/kafka.md": "tests/integration/test_storage_kafka.py",
    "docs/sources/mysql.md": "tests/integration/test_storage_mysql.py",
}


@dataclass(frozen=True, slots=True)
class Told:
    """What a reader of a page has before, and what names of the page stand for."""

    before: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    """Texts of the page, and what is typed instead: ``{…}`` is something of the test's own."""
    upstream: str = ""
    """What there is in the other database."""


CONNECTION: Final = (
    "CREATE SECRET pw AS 'p'; CREATE CONNECTION pg TO POSTGRES (HOST '{host}', DATABASE "
    "'{database}', USER '{user}', PASSWORD SECRET pw);"
)
ORDERS: Final = "CREATE TABLE orders (id bigint PRIMARY KEY, region text, amount int);"

HERE: Final = {
    "docs/concepts.md": Told("CREATE TABLE revenue (name text, total int)"),
    "docs/life.md": Told(ORDERS),
    "docs/materializations.md": Told(
        f"""{CONNECTION}
        CREATE TABLE by_k (k bigint PRIMARY KEY, v text);
        CREATE TABLE events (id bigint PRIMARY KEY, who text NOT NULL, amount bigint)""",
        {'"public.': '"{schema}.'},
        "CREATE TABLE headwater_status (materialization text, aligned bool)",
    ),
    "docs/sources/files.md": Told(
        names={"s3://bucket/clicks": "{folder}/clicks", "/var/prices": "{folder}/prices"}
    ),
    "docs/sources/generators.md": Told(names={"ORDERS 15000": "ORDERS 15"}),
    "docs/sources/index.md": Told(
        CONNECTION,
        {
            "/data/in": "{folder}/in",
            "'p'": "'{publication}'",
            "public.": "{schema}.",
            # tests/integration/test_storage_mysql.py has such a server.
            "CREATE SOURCE my FROM MYSQL CONNECTION my FOR SCHEMAS (shop);": "",
        },
        """CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE items (id int PRIMARY KEY);
        CREATE PUBLICATION {publication} FOR TABLE orders, items""",
    ),
    "docs/sources/postgres.md": Told(
        names={
            "HOST 'db', DATABASE 'shop', USER 'headwater'": "HOST '{host}', DATABASE '{database}', "
            "USER '{user}'",
            "PUBLICATION shop": "PUBLICATION {publication}",
            "PUBLICATION 'shop'": "PUBLICATION '{publication}'",
        },
        upstream="CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE customers (id int PRIMARY "
        "KEY)",
    ),
    "docs/sources/webhook.md": Told(
        names={
            "127.0.0.1:6876": "{http}",
            "'…'": "'{secret}'",
            "/webhook/": "/webhook/{schema}.",
        }
    ),
    "docs/sql/statements.md": Told(),
    "docs/sql/system-views.md": Told(),
}

OBJECTS: Final = {
    "orders": ORDERS,
    "incoming": "CREATE TABLE incoming (id bigint, region text)",
    "totals": "CREATE MATERIALIZED VIEW totals AS SELECT region, max(amount) AS total FROM orders "
    "GROUP BY region",
    "recent": "CREATE VIEW recent AS SELECT * FROM orders",
    "by_region": "CREATE INDEX by_region ON totals (region)",
    "totals_region_idx": "CREATE INDEX ON totals (region)",
    "billing": "CREATE SUBSCRIPTION billing TO totals",
    "pw": "CREATE SECRET pw AS 'p'",
    "pg": "CREATE CONNECTION pg TO POSTGRES (HOST '{host}', DATABASE '{database}', USER '{user}', "
    "PASSWORD SECRET pw)",
    "p": "CREATE SOURCE p FROM LOAD GENERATOR COUNTER (UP TO 3)",
    "m": "CREATE MATERIALIZATION m INTO SQLITE (PATH '{folder}/m.db') (totals AS totals KEY "
    "(region))",
    "shop": "CREATE SCHEMA IF NOT EXISTS shop",
}
"""What the examples of statements speak of, in an order in which they can be made."""

BEFORE: Final = (
    (r"SAVEPOINT|COMMIT|END|ROLLBACK$|ABORT|SET LOCAL|SET TRANSACTION", "BEGIN"),
    (r"ROLLBACK TO|RELEASE", "BEGIN; SAVEPOINT a"),
    (r"DECLARE c", "BEGIN"),
    (r"(FETCH|MOVE|CLOSE).* c\b", "BEGIN; DECLARE c CURSOR FOR SELECT 1"),
)
"""By the beginning of a statement, in what it stands."""

WITHOUT: Final = {
    "CREATE SOURCE k FROM KAFKA": "tests/integration/test_storage_kafka.py has a broker",
    "CREATE SOURCE o FROM KAFKA": "tests/integration/test_kafka_formats.py has a registry, too",
    "CREATE SOURCE m FROM KAFKA": "tests/integration/test_kafka_formats.py has its schema",
    "CREATE SOURCE m FROM MYSQL": "tests/integration/test_storage_mysql.py has such a server",
    "EXECUTE of_region": "tests/logic/portable_with_shadow/prepared.txt prepares in its session",
    "SELECT relname FROM pg_catalog": "tests/end_to_end/test_catalog_clients.py has a shadow",
}
"""Examples of statements that need more than there is here."""

_CREATES: Final = re.compile(r"(?:CREATE (?:(?!ON )[A-Z]+ )+|VALIDATE MATERIALIZATION )([a-z_]\w*)")


def pages() -> dict[str, list[tuple[str, str]]]:
    """Return the pages that have blocks, by their names: language and text of each."""
    found = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        blocks = BLOCK.findall(page.read_text("utf-8"))
        if blocks:
            found[str(page.relative_to(ROOT))] = blocks
    return found


def typed(page: str) -> list[tuple[str, str]]:
    """Return the blocks of a page that somebody types."""
    return [(language, text) for language, text in pages()[page] if language in COMMANDS]


def needed(statement: str) -> Iterator[str]:
    """Yield what makes the objects that a statement speaks of, each after what it is made of."""
    made = _CREATES.match(statement)
    own = made[1] if made is not None and "OR REPLACE" not in statement else None
    wanted = _spoken(statement, own)
    while True:
        more = wanted.union(*(_spoken(OBJECTS[name], name) for name in wanted))
        if more == wanted:
            break
        wanted = more
    yield from (text for name, text in OBJECTS.items() if name in wanted)
    for begins, before in BEFORE:
        if re.match(begins, statement):
            yield from before.split("; ")


def _spoken(text: str, own: str | None) -> set[str]:
    # Nor what is named in another database.
    plain = re.sub(r"'[^']*'|FOR TABLES \([^)]*\)", "", text)
    return {name for name in OBJECTS if name != own and re.search(rf"\b{name}\b", plain)}
