"""PyFlink's side of ``peers.py``: one NEXMark query over Debezium files, in memory, to a blackhole.

Runs in an environment of its own, so it imports nothing of ours. The CPU is that of the process and
its JVM, from before the job is submitted to its end; prints it as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

COLUMNS = {
    "person": "id BIGINT, name STRING, city STRING, state STRING",
    "auction": "id BIGINT, seller BIGINT, category BIGINT, dateTime_ BIGINT, expires BIGINT",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, dateTime_ BIGINT, extra STRING",
}
IN_TIME = (
    "FROM auction AS a JOIN bid AS b ON a.id = b.auction "
    "WHERE b.dateTime_ BETWEEN a.dateTime_ AND a.expires"
)
QUERIES = {
    "q00": "SELECT auction, bidder, price, dateTime_, extra FROM bid",
    "q03": "SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p "
    "ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q04": "SELECT category, avg(final) AS final FROM (SELECT max(b.price) AS final, a.category "
    f"{IN_TIME} GROUP BY a.id, a.category) GROUP BY category",
    "q09": "SELECT id, auction, bidder, price, moment FROM (SELECT a.id, b.auction, b.bidder, "
    "b.price, b.dateTime_ AS moment, row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, "
    f"b.dateTime_) AS place {IN_TIME}) WHERE place <= 1",
}


def _cpu_s() -> float:
    """Return the CPU of this process and of the JVM that it started, dead or alive."""
    total = sum(os.times()[:4])
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if len(fields) > 12 and fields[1] == str(os.getpid()):
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    table: Any = importlib.import_module("pyflink.table")
    settings = table.EnvironmentSettings.in_streaming_mode()
    flink = table.TableEnvironment.create(settings)
    flink.get_config().set("parallelism.default", "2")
    for relation, columns in COLUMNS.items():
        flink.execute_sql(
            f"CREATE TABLE {relation} ({columns}) WITH ('connector' = 'filesystem', "
            f"'path' = '{folder / relation}', 'format' = 'debezium-json')"
        )
    result = flink.sql_query(QUERIES[name])
    schema = result.get_schema()
    columns = ", ".join(
        f"`{column}` {kind}"
        for column, kind in zip(
            schema.get_field_names(), _sql_types(schema.get_field_data_types()), strict=True
        )
    )
    flink.execute_sql(f"CREATE TABLE sink ({columns}) WITH ('connector' = 'blackhole')")
    before = _cpu_s()
    result.execute_insert("sink").wait()
    print(json.dumps({"cpu_s": _cpu_s() - before}))


def _sql_types(types: list[Any]) -> list[str]:
    return ["STRING" if "CHAR" in str(kind).upper() else "BIGINT" for kind in types]


if __name__ == "__main__":
    main()
