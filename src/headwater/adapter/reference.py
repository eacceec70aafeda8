"""The page of the reference that lists every statement, option and variable, from the code itself.

The form of a statement is what its class says in its docstring, which is what the parser's author
keeps true; what it is for and examples of it stand here. Options and variables come from the tables
by which they are read.

Kept by: tests, which compare the page in ``docs/`` with this (``REWRITE=1`` writes it), parse every
example into the class that it stands for, and find every class and every beginning that the parser
knows on the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headwater.adapter.connections import connection_options
from headwater.adapter.pgwire import prepare_statements, variables, wire_statements
from headwater.adapter.settings import Settings, is_ours
from headwater.adapter.sql import (
    connection_statements,
    materialization_statements,
    source_statements,
    statements,
    transactions,
)
from headwater.materialize.options import BINDING_SETTINGS, ENDPOINTS, SETTINGS
from headwater.storage.definition import OPTIONS as GENERATORS


@dataclass(frozen=True, slots=True)
class Entry:
    """A statement of the reference."""

    kind: Any
    about: str
    examples: tuple[str, ...]
    form: str = ""
    """Where the class does not say it."""

    @property
    def shown(self) -> str:
        """The form of the statement."""
        if self.form:
            return self.form
        found = re.match(r"``(.+?)``", self.kind.__doc__, re.DOTALL)
        assert found is not None, f"{self.kind.__name__} does not say its form"
        return " ".join(found[1].split())


def _of(kind: Any, about: str, *examples: str, form: str = "") -> Entry:
    return Entry(kind, about, examples, form)


SECTIONS: Final[dict[str, tuple[Entry, ...]]] = {
    "Reading": (
        _of(
            statements.Select,
            "Rows, all of one time: the newest that strict serializability allows, or that of "
            "`AS OF`. See [queries](queries.md).",
            "SELECT region, sum(amount) FROM orders GROUP BY region",
            "WITH big AS (SELECT * FROM orders WHERE amount > 100) SELECT count(*) FROM big",
            "VALUES (1, 'a'), (2, 'b')",
            "(SELECT 1) UNION ALL (SELECT 2)",
            "SELECT * FROM orders AS OF 1794749383106",
            "SELECT * FROM orders AS OF AT LEAST 1794749383106",
            form="SELECT … | WITH … | VALUES … [AS OF [AT LEAST] time]",
        ),
        _of(
            statements.Subscribe,
            "The rows, then every change, as it happens. See [queries](queries.md#subscribe).",
            "SUBSCRIBE orders",
            "SUBSCRIBE TO (SELECT region FROM orders) WITH (PROGRESS, SNAPSHOT = false) "
            "AS OF AT LEAST 7",
            "SUBSCRIBE orders ENVELOPE UPSERT (KEY (id))",
            "SUBSCRIBE TO SUBSCRIPTION billing",
        ),
        _of(
            statements.ExplainQuery,
            "How a query would be answered, and by which operators a view of it would be kept.",
            "EXPLAIN SELECT * FROM orders WHERE id = 1",
            "EXPLAIN VIEW recent",
        ),
        _of(
            statements.ExplainTimestamp,
            "At which time a query reads, what binds it, and each input's frontiers.",
            "EXPLAIN TIMESTAMP FOR SELECT * FROM orders",
        ),
        _of(
            statements.ExplainView,
            "How something is kept, with what state, and how far it is.",
            "EXPLAIN MATERIALIZED VIEW totals",
            "EXPLAIN INDEX totals_region_idx",
        ),
        _of(
            statements.ExplainReplacement,
            "What a replacement would compute anew and what it keeps; nothing is done.",
            "EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW totals AS SELECT region FROM orders",
        ),
        _of(
            statements.SelectSession,
            "What clients ask while they connect.",
            "SELECT version()",
            "SELECT current_user, current_database()",
        ),
        _of(
            statements.SelectCatalog,
            "PostgreSQL's catalog and `information_schema`, of our objects. The system's own views "
            "are in [system views](system-views.md).",
            "SELECT relname FROM pg_catalog.pg_class",
            form="SELECT … FROM pg_catalog.… | information_schema.…",
        ),
    ),
    "Writing": (
        _of(
            statements.Insert,
            "Add rows. With `ON CONFLICT`, of a table with a primary key, leave or change those "
            "that are there.",
            "INSERT INTO orders VALUES (1, 'north', 10)",
            "INSERT INTO orders (id, region) SELECT id, region FROM incoming",
            "INSERT INTO orders VALUES (1, 'a', 2) ON CONFLICT (id) DO UPDATE SET amount = 3 "
            "RETURNING id",
            "INSERT INTO orders VALUES (2, 'south', 20) AS OF 1794749383106",
        ),
        _of(
            statements.Update,
            "Change rows. With `AS OF`, [at a time of your own](tables.md#writes-as-of).",
            "UPDATE orders SET amount = amount + 1 WHERE region = 'north'",
            "UPDATE orders SET amount = 0 RETURNING * AS OF 1794749383106",
        ),
        _of(
            statements.Delete,
            "Remove rows.",
            "DELETE FROM orders WHERE amount < 0 RETURNING *",
            "DELETE FROM orders AS OF 1794749383106",
        ),
        _of(
            wire_statements.CopyFrom,
            "Rows from the client, in text, CSV or binary form; all or none.",
            "COPY orders (id, region) FROM STDIN WITH (FORMAT csv, HEADER)",
        ),
        _of(
            wire_statements.CopyTo,
            "Rows to the client; of a subscription, for ever.",
            "COPY orders TO STDOUT",
            "COPY (SELECT * FROM orders) TO STDOUT WITH (FORMAT csv)",
        ),
    ),
    "Tables and views": (
        _of(
            statements.CreateTable,
            "A collection that clients write. `WITH (RETAIN HISTORY FOR '1 day')` says how long "
            "its past can be read (a minute, if nothing is said), also of views and indexes.",
            "CREATE TABLE orders (id bigint PRIMARY KEY, region text NOT NULL, "
            "amount int DEFAULT 0)",
            "CREATE TABLE IF NOT EXISTS seen (a int, b int, PRIMARY KEY (a, b)) "
            "WITH (RETAIN HISTORY FOR '1 day')",
        ),
        _of(
            statements.CreateView,
            "A name for a query; nothing is kept, unless it gets an index.",
            "CREATE VIEW recent AS SELECT * FROM orders",
            "CREATE OR REPLACE VIEW named (a, b) AS SELECT id, region FROM orders",
        ),
        _of(
            statements.CreateMaterializedView,
            "A query whose result is kept, exactly, at every time. `OR REPLACE` gives a name "
            "another query [without a gap](../concepts.md#views).",
            "CREATE MATERIALIZED VIEW totals AS SELECT region, sum(amount) AS total FROM orders "
            "GROUP BY region",
            "CREATE OR REPLACE MATERIALIZED VIEW totals AS SELECT region FROM orders",
        ),
        _of(
            statements.CreateIndex,
            "A relation kept a second time, laid out by some of its columns.",
            "CREATE INDEX ON orders (region)",
            "CREATE INDEX IF NOT EXISTS by_region ON totals (region)",
        ),
        _of(
            statements.Refresh,
            "A materialized view is always being refreshed; this waits until it has caught up.",
            "REFRESH MATERIALIZED VIEW totals",
        ),
        _of(
            statements.CreateTableAs,
            "A table with the columns of a query and its rows at one time. It does not follow the "
            "query: a materialized view does.",
            "CREATE TABLE frozen AS SELECT region, sum(amount) AS total FROM orders "
            "GROUP BY region",
            "CREATE TABLE empty (a, b) AS SELECT id, region FROM orders WITH NO DATA",
        ),
        _of(
            statements.Truncate,
            "Remove every row; they stay readable `AS OF` times before.",
            "TRUNCATE TABLE orders",
        ),
        _of(
            statements.CreateSchema,
            "A space of names of its own: see [schemas](tables.md#schemas).",
            "CREATE SCHEMA IF NOT EXISTS shop",
        ),
        _of(
            statements.DropSchema,
            "Drop schemas; with `CASCADE` what is in them and what is made of that.",
            "DROP SCHEMA IF EXISTS shop CASCADE",
        ),
        _of(
            statements.RenameSchema,
            "Give a schema another name, and with it everything in it.",
            "ALTER SCHEMA shop RENAME TO store",
        ),
        _of(
            statements.SetSchema,
            "Put an object into another schema, with its indexes and what a source keeps.",
            "ALTER TABLE orders SET SCHEMA shop",
        ),
    ),
    "Sources and deliveries": (
        _of(
            source_statements.CreateSource,
            "What is read from elsewhere: see [sources](../sources/index.md).",
            "CREATE SOURCE a FROM LOAD GENERATOR AUCTION (TICK INTERVAL '1s') FOR ALL TABLES",
            "CREATE SOURCE p FROM POSTGRES CONNECTION pg (PUBLICATION 'all') FOR TABLES (orders)",
            "CREATE SOURCE m FROM MYSQL CONNECTION my FOR TABLES (shop.orders AS o)",
            "CREATE SOURCE k FROM KAFKA CONNECTION kf (TOPIC 't') FORMAT JSON ENVELOPE NONE",
            "CREATE SOURCE o FROM KAFKA CONNECTION kf (TOPIC 'o') FORMAT AVRO "
            "USING CONFLUENT SCHEMA REGISTRY CONNECTION csr ENVELOPE UPSERT",
            "CREATE SOURCE m FROM KAFKA CONNECTION kf (TOPIC 'm') KEY FORMAT TEXT VALUE FORMAT "
            "PROTOBUF MESSAGE 'shop.Order' USING SCHEMA 'CgYKBGEucHI=' ENVELOPE UPSERT",
            "CREATE SOURCE f (a int) FROM FILES (PATH '/d/*.csv') FORMAT CSV WITH HEADER",
        ),
        _of(
            source_statements.TurnSource,
            "A source rests, over restarts too, and goes on where it was.",
            "ALTER SOURCE p PAUSE",
            "ALTER SOURCE p RESUME",
        ),
        _of(
            materialization_statements.CreateMaterialization,
            "Views delivered to an endpoint: see [materializations](../materializations.md).",
            "CREATE MATERIALIZATION m INTO SQLITE (PATH '/d/e.db') "
            '(totals AS "totals" KEY (region))',
            "CREATE MATERIALIZATION m INTO POSTGRES CONNECTION pg "
            '(totals AS "public.totals" KEY (region)) WITH (SHARDS 2)',
        ),
        _of(
            materialization_statements.ValidateMaterialization,
            "A dry run: what the endpoint demands, and what would be done there.",
            "VALIDATE MATERIALIZATION m INTO SQLITE (PATH '/d/e.db') "
            '(totals AS "totals" KEY (region))',
        ),
        _of(
            materialization_statements.TurnMaterialization,
            "Rest, go on, or deliver everything anew.",
            "ALTER MATERIALIZATION m PAUSE",
            "ALTER MATERIALIZATION m BACKFILL",
        ),
        _of(
            materialization_statements.SetMaterialization,
            "Change settings.",
            "ALTER MATERIALIZATION m SET (SHARDS 4)",
        ),
        _of(
            statements.CreateSubscription,
            "A subscription that survives its client: what it has not acknowledged is kept.",
            "CREATE SUBSCRIPTION billing TO totals",
        ),
        _of(
            statements.Acknowledge,
            "Say that everything before a time was taken.",
            "ACKNOWLEDGE billing UP TO 1794749383106",
        ),
        _of(
            connection_statements.CreateSecret,
            "A value that is shown to nobody again: see [secrets](connections.md).",
            "CREATE SECRET pw AS 'hunter2'",
        ),
        _of(connection_statements.AlterSecret, "Another value.", "ALTER SECRET pw AS 'better'"),
        _of(
            connection_statements.CreateConnection,
            "An address that names its secrets.",
            "CREATE CONNECTION pg TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u', "
            "PASSWORD SECRET pw)",
            "CREATE CONNECTION my TO MYSQL (HOST 'h', USER 'u', PASSWORD SECRET pw)",
            "CREATE CONNECTION r TO REDIS (HOST 'h', PASSWORD SECRET pw)",
            "CREATE CONNECTION csr TO CONFLUENT SCHEMA REGISTRY (URL 'http://h:8081')",
        ),
        _of(
            connection_statements.ValidateConnection,
            "Connect once, and say how that went.",
            "VALIDATE CONNECTION pg",
        ),
    ),
    "Everything that has a name": (
        _of(
            statements.Drop,
            "Remove it; `CASCADE` with what is made of it.",
            "DROP TABLE IF EXISTS orders, seen CASCADE",
            "DROP MATERIALIZED VIEW totals",
            "DROP MATERIALIZATION m",
        ),
        _of(
            statements.Rename,
            "Another name.",
            "ALTER TABLE orders RENAME TO sales",
            "ALTER INDEX by_region RENAME TO regional",
            "ALTER SUBSCRIPTION billing RENAME TO invoices",
            "ALTER CONNECTION pg RENAME TO warehouse",
        ),
        _of(
            statements.AlterRetention,
            "For how long its past can be read.",
            "ALTER TABLE orders SET (RETAIN HISTORY FOR '1 hour')",
            "ALTER MATERIALIZED VIEW totals RESET (RETAIN HISTORY)",
        ),
        _of(
            statements.CommentOn,
            "A remark, shown by clients and in `hw_objects`.",
            "COMMENT ON TABLE orders IS 'what was sold'",
            "COMMENT ON COLUMN orders.amount IS NULL",
        ),
        _of(statements.ShowTables, "Names of tables.", "SHOW TABLES"),
        _of(
            statements.ShowObjects,
            "Names of others.",
            "SHOW MATERIALIZED VIEWS",
            "SHOW OBJECTS",
            "SHOW INDEXES",
            "SHOW SOURCES",
            form="SHOW VIEWS | MATERIALIZED VIEWS | INDEXES | SOURCES | SECRETS | CONNECTIONS | "
            "MATERIALIZATIONS | SUBSCRIPTIONS | OBJECTS",
        ),
        _of(statements.ShowSchemas, "Names of schemas.", "SHOW SCHEMAS"),
        _of(statements.ShowColumns, "Columns and their types.", "SHOW COLUMNS FROM orders"),
        _of(
            statements.ShowCreate,
            "The statement that, typed now, makes it as it is: under today's names, with today's "
            "settings. A secret's value is not in it.",
            "SHOW CREATE TABLE orders",
        ),
    ),
    "Transactions and sessions": (
        _of(
            transactions.Begin,
            "All statements up to `COMMIT` read at one time and write at one time, or not at all.",
            "BEGIN",
            "START TRANSACTION READ ONLY",
        ),
        _of(transactions.Commit, "Make it durable.", "COMMIT", "END"),
        _of(transactions.Rollback, "Forget it.", "ROLLBACK", "ABORT"),
        _of(transactions.Savepoint, "A place to go back to.", "SAVEPOINT a"),
        _of(transactions.RollbackTo, "Go back there.", "ROLLBACK TO SAVEPOINT a"),
        _of(transactions.Release, "Forget the place.", "RELEASE SAVEPOINT a"),
        _of(
            transactions.SetTransaction,
            "What a transaction, or all of this session, may do.",
            "SET TRANSACTION READ ONLY",
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        ),
        _of(
            statements.SetVariable,
            "Set a variable; those there are stand below. `RESET name` restores it. "
            "What a transaction sets is undone if it is rolled back.",
            "SET dialect = spark",
            "SET LOCAL statement_timeout = '10s'",
            "RESET statement_timeout",
        ),
        _of(statements.Show, "The value of a variable.", "SHOW transaction_isolation"),
        _of(wire_statements.ResetAll, "Restore all of them.", "RESET ALL"),
        _of(
            wire_statements.DeclareCursor,
            "A query whose rows are fetched some at a time.",
            "DECLARE c CURSOR FOR SELECT * FROM orders",
            "DECLARE s CURSOR WITH HOLD FOR SUBSCRIBE orders",
        ),
        _of(
            wire_statements.Fetch,
            "The next rows of it; with a timeout those there are by then.",
            "FETCH 100 FROM c",
            "FETCH ALL c WITH (TIMEOUT '1s')",
        ),
        _of(wire_statements.Move, "Pass over rows of it.", "MOVE FORWARD 100 FROM c"),
        _of(wire_statements.CloseCursor, "End it.", "CLOSE c", "CLOSE ALL"),
        _of(
            prepare_statements.Prepare,
            "A query whose values come later.",
            "PREPARE of_region (text) AS SELECT * FROM orders WHERE region = $1",
        ),
        _of(
            prepare_statements.ExecutePrepared,
            "Run it; an argument is any expression of PostgreSQL's without a relation.",
            "EXECUTE of_region ('north')",
        ),
        _of(wire_statements.Deallocate, "Forget a prepared statement.", "DEALLOCATE ALL"),
        _of(wire_statements.Discard, "The connection as if it were new.", "DISCARD ALL"),
        _of(wire_statements.Unlisten, "Read, for poolers.", "UNLISTEN *"),
    ),
}

_HEAD: Final = """\
# Statements

Every statement there is, from the parser itself. `[…]` may be left out, `|` is a choice, `…` goes
on. Queries are PostgreSQL's; what of PostgreSQL is understood in them, and how Spark's dialect is
chosen, is in [queries](queries.md). A statement of PostgreSQL's that is not here is refused by name
(SQLSTATE 0A000), never half done.
"""


def page() -> str:
    """Return the page."""
    parts = [_HEAD]
    for title, entries in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [_entry(entry) for entry in entries]
    parts += ["## Options\n", *_options(), "## Session variables\n", *_variables()]
    return "\n".join(parts)


def _entry(entry: Entry) -> str:
    shown = "\n".join(f"{example};" for example in entry.examples)
    return f"**`{entry.shown}`**\n\n{entry.about}\n\n```sql\n{shown}\n```\n"


def _options() -> Iterator[str]:
    yield "| where | needs | may have |\n|---|---|---|"
    for kind, takes in ENDPOINTS.items():
        yield _option(f"INTO {kind}", list(takes.required), list(takes.optional))
    yield _option("CREATE MATERIALIZATION … WITH", [], list(SETTINGS))
    yield _option("a binding of it … WITH", [], list(BINDING_SETTINGS))
    for kind, (needed, known) in connection_options().items():
        others = [name for name in known if name not in needed]
        yield _option(f"CREATE CONNECTION … TO {kind}", list(needed), others)
    for generator, options in GENERATORS.items():
        yield _option(f"FROM LOAD GENERATOR {generator}", [], ["tick interval", "up to", *options])
    yield ""


def _option(where: str, needed: list[str], others: list[str]) -> str:
    first, _, rest = where.partition(" … ")
    told = f"{first} … {rest.upper()}" if rest else first.upper()
    cells = [", ".join(f"`{name.upper()}`" for name in names) for names in (needed, others)]
    return f"| `{told}` | {cells[0]} | {cells[1]} |"


_TOLD: Final = {
    "transaction_isolation": "or `serializable`, or `'bounded staleness 10s'`: see "
    "[the time of a read](../concepts.md#time-of-a-read)",
    "dialect": "or `spark`",
    "statement_timeout": "a length of time: `'10s'`, `0` is none",
    "default_transaction_read_only": "or `on`: what writes is refused, also outside of a block",
}


def _variables() -> Iterator[str]:
    yield (
        "Those that are fixed say how values are written, and may be set to what they are. Another "
        "value is refused with 22023; in a start-up packet it is a warning, and what is reported "
        "to the driver is what holds (`TimeZone` is `UTC`, whatever the client's machine says)."
    )
    yield (
        "\nVariables of PostgreSQL's that are not listed are taken where what they ask for is so "
        "anyway (how a plan is made, what it may use), or where it is what they are; else refused."
    )
    yield "\n| variable | at first | |\n|---|---|---|"
    kept = {name: (each.value, each.why) for name, each in variables.FREE.items()}
    kept |= {name: (value, _TOLD.get(name, "")) for name, value in variables.SHARED.items()}
    for name, (value, kind) in sorted(kept.items()):
        first = Settings().show(name) if is_ours(name) else value
        yield f"| `{name}` | `{first}` | {kind} |" if first else f"| `{name}` | | {kind} |"
    for name, (value, _) in sorted(variables.FIXED.items()):
        yield f"| `{name}` | `{value}` | fixed |"
    yield ""
