"""A process that books transfers as fast as it can and delivers them, until it is killed.

Two collections are written in one entry per transfer: ``transfers``, which only grows, and
``accounts``, whose rows are replaced. They are delivered into PostgreSQL by three bindings: the sum
of the amounts per account, a log of all transfers, and the accounts as they are. All three tell the
balance of every account, each in its own way. Every now and then its shards become more or fewer.
Whoever starts it reads a line per transfer, and ends it by a kill, or by closing its input, upon
which it delivers all it has and exits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import msgspec
import pyarrow as pa

from headwater.materialize.controller import Materializations
from headwater.materialize.definition import Binding, Endpoint
from headwater.persist.client import Client, ReadHandle, open_location
from headwater.persist.evolution import DIFF, TIME, updates_schema

ACCOUNTS = ("anna", "bert", "cleo", "dora")
TRANSFERS = pa.schema(
    [
        pa.field("account", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("amount", pa.int64(), nullable=False),
        pa.field("balance", pa.int64(), nullable=False),
    ]
)
BALANCES = pa.schema(
    [pa.field("account", pa.string(), nullable=False), pa.field("balance", pa.int64())]
)
PAUSE_SECONDS = 0.002
RETRY_SECONDS = 0.05
SHARDS = (1, 2, 3, 4)
TRANSFERS_BETWEEN = 15
"""How many are booked before the number of shards changes again."""


def rows_at(read: ReadHandle, time: int) -> list[tuple[Any, ...]]:
    """Return the rows of a collection at a time; each must be there once."""
    table = read.snapshot(time).to_table()
    assert set(table[DIFF].to_pylist()) <= {1}
    columns = [table[name].to_pylist() for name in table.column_names if name != DIFF]
    return sorted(zip(*columns, strict=True))


def _updates(schema: pa.Schema, time: int, changes: Sequence[tuple[tuple[Any, ...], int]]) -> Any:
    columns: dict[str, list[Any]] = {
        name: [row[at] for row, _ in changes] for at, name in enumerate(schema.names)
    }
    columns |= {TIME: [time] * len(changes), DIFF: [diff for _, diff in changes]}
    return pa.table(columns, schema=updates_schema(schema))


def _book(client: Client, running: Materializations, seed: int, ended: threading.Event) -> int:
    random = Random(seed)
    transfers, read = client.create_or_load("transfers", TRANSFERS)
    accounts, _ = client.create_or_load("accounts", BALANCES, key=("account",))
    upper = transfers.upper.only()
    balances: dict[str, int] = {}
    seqs: dict[str, int] = {}
    for account, seq, _, balance in rows_at(read, upper - 1) if upper else []:
        if seq > seqs.get(account, 0):
            seqs[account], balances[account] = seq, balance
    while not ended.is_set():
        booked: list[tuple[tuple[Any, ...], int]] = []
        replaced: list[tuple[tuple[Any, ...], int]] = []
        amount = random.randint(1, 99)
        giver, taker = random.sample(ACCOUNTS, 2)
        for account, moved in ((giver, -amount), (taker, amount)):
            if account in balances:
                replaced.append(((account, balances[account]), -1))
            balances[account] = balances.get(account, 0) + moved
            seqs[account] = seqs.get(account, 0) + 1
            booked.append(((account, seqs[account], moved, balances[account]), 1))
            replaced.append(((account, balances[account]), 1))
        write = client.atomic()
        write.compare_and_append(transfers, _updates(TRANSFERS, upper, booked), upper, upper + 1)
        write.compare_and_append(accounts, _updates(BALANCES, upper, replaced), upper, upper + 1)
        write.commit().result()
        upper += 1
        if not upper % TRANSFERS_BETWEEN:
            running.reshape("m", random.choice(SHARDS))
        print(upper, flush=True)
        sleep(PAUSE_SECONDS)
    return upper


def _install(client: Client, endpoint: Endpoint, prefix: str) -> None:
    running = Materializations(client)
    _, transfers = client.create_or_load("transfers", TRANSFERS)
    _, accounts = client.create_or_load("accounts", BALANCES, key=("account",))
    running.install(
        "m",
        endpoint,
        (
            Binding(
                "transfers", transfers.id, f"{prefix}sums", ("account",),
                reduce=(("amount", "sum"),),
            ),
            Binding(
                "transfers", transfers.id, f"{prefix}log", ("account", "seq"), delta_updates=True
            ),
            Binding("accounts", accounts.id, f"{prefix}accounts", ("account",)),
        ),
    )  # fmt: skip
    running.stop()


def main(root: str, dsn: str, schema: str, seed: str) -> None:
    """Run until killed, or until the input ends; without a schema ``dsn`` is ``LAKE:CONFIG``."""
    ended = threading.Event()
    with open_location(Path(root), take_over=True) as client:
        if not any(key.startswith("materialization/") for key in client.core.state.items):
            if schema:
                into = Endpoint("postgres", {"dsn": dsn, "schema": schema})
                _install(client, into, f"{schema}.")
            else:
                driver, _, config = dsn.partition(":")
                _install(client, Endpoint(driver, msgspec.json.decode(config)), "")
        running = Materializations(client, retry_seconds=RETRY_SECONDS)
        running.start()
        found = running.get("m")
        assert found is not None

        def wait_for_the_end() -> None:
            sys.stdin.read()
            ended.set()

        threading.Thread(target=wait_for_the_end, daemon=True).start()
        upper = _book(client, running, int(seed), ended)
        while found.status.checkpoint != upper:
            sleep(PAUSE_SECONDS)
        running.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
