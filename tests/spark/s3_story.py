"""Run by ``test_object_store.py`` in a process of its own, whose environment names an S3 server.

Spark's Python workers inherit that environment and open the objects by themselves: a view is
hydrated and stepped, and a collection is written and read by tasks, with no local file between.
Prints what was seen, as one JSON object.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.compute.session import close_session, open_session
from headwater.persist import spark as edge
from headwater.persist.client import open_location
from headwater.persist.core import Settings

SCHEMA = pa.schema([("n", pa.int64()), ("g", pa.int64())])
ROWS = 4000
SQL = "SELECT a.g, sum(b.n) AS n, count(*) AS c FROM c AS a JOIN c AS b ON a.n = b.n GROUP BY a.g"


def main(blob: str, consensus: str) -> None:
    session = open_session()
    options = Settings(maintenance=False)
    with open_location(blob=blob, consensus=consensus, layouts=LAYOUTS, settings=options) as client:
        write, read = client.create_or_load("c", SCHEMA, key=("n",), layout="run")
        frame = session.range(0, ROWS, 1, 2).selectExpr(
            "id AS n", "id % 5 AS g", "0L AS __time", "1L AS __diff"
        )
        edge.append_from_tasks(frame, write, 0, 1)
        views = ViewController(client, session)
        views.create_view("v", SQL)
        views.run_once()
        write.compare_and_append([({"n": 1, "g": 1}, 1, -1)], 1, 2).result()
        views.run_once()
        rows = edge.rows_frame(session, read.snapshot(1)).count()
        seen = {
            "rows": rows,
            "objects": sum(1 for _ in client.core.blob.list()),
            "view": views.select("SELECT * FROM v ORDER BY g", 1).to_pylist(),
            "failures": list(views.failures().values()),
        }
    close_session()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
