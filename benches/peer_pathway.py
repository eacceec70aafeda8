"""Pathway's side of ``peers.py``: one NEXMark query over a file of changes, in memory.

Runs in an environment of its own, so it imports nothing of ours. Rows are identified by all their
columns, which is what lets a deletion find its insertion. Prints its CPU as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any


def _q00(_: Any, t: dict[str, Any]) -> Any:
    bid = t["bid"]
    return bid.select(bid.auction, bid.bidder, bid.price, bid.dateTime, bid.extra)


def _q03(pw: Any, t: dict[str, Any]) -> Any:
    auction = t["auction"].filter(pw.this.category == 10)
    here = (pw.this.state == "OR") | (pw.this.state == "ID") | (pw.this.state == "CA")
    person = t["person"].filter(here)
    joined = auction.join(person, auction.seller == person.key)
    return joined.select(person.name, person.city, person.state, auction.key)


def _bids_in_time(pw: Any, t: dict[str, Any]) -> Any:
    auction, bid = t["auction"], t["bid"]
    joined = auction.join(bid, auction.key == bid.auction).select(
        auction.key,
        auction.category,
        auction.expires,
        bid.price,
        bid.bidder,
        began=auction.dateTime,
        moment=bid.dateTime,
    )
    return joined.filter((pw.this.moment >= pw.this.began) & (pw.this.moment <= pw.this.expires))


def _q04(pw: Any, t: dict[str, Any]) -> Any:
    best = (
        _bids_in_time(pw, t)
        .groupby(pw.this.key, pw.this.category)
        .reduce(pw.this.category, final=pw.reducers.max(pw.this.price))
    )
    return best.groupby(pw.this.category).reduce(
        pw.this.category, final=pw.reducers.avg(pw.this.final)
    )


def _q09(pw: Any, t: dict[str, Any]) -> Any:
    place = pw.make_tuple(pw.this.price, -pw.this.moment, pw.this.bidder)
    return (
        _bids_in_time(pw, t).groupby(pw.this.key).reduce(pw.this.key, best=pw.reducers.max(place))
    )


QUERIES = {"q00": _q00, "q03": _q03, "q04": _q04, "q09": _q09}
USED = {"q00": ["bid"], "q03": ["auction", "person"], "q04": ["auction", "bid"]}


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    pw: Any = importlib.import_module("pathway")
    pandas: Any = importlib.import_module("pandas")
    before = time.process_time()
    tables, changes = {}, 0
    for relation in USED.get(name, ["auction", "bid"]):
        rows = pandas.read_parquet(folder / f"{relation}.parquet")
        changes += len(rows)
        columns = [column for column in rows.columns if not column.startswith("__")]
        tables[relation] = pw.debug.table_from_pandas(rows, id_from=columns)
    pw.io.null.write(QUERIES[name](pw, tables))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print(json.dumps({"cpu_s": time.process_time() - before, "changes": changes}))


if __name__ == "__main__":
    main()
