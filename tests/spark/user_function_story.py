"""A process that makes views of functions in a module of its own, steps them once and ends.

Run as ``python user_function_story.py DIRECTORY`` with the module ``pricing`` on the path.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pricing  # type: ignore[import-not-found]
from pyspark.sql.functions import udf

from headwater.collection.run_layout import LAYOUTS
from headwater.compute.controller import ViewController
from headwater.compute.session import SparkSettings, close_session, open_session
from headwater.persist.client import open_location

if __name__ == "__main__":
    session = open_session(SparkSettings(master="local[2]"))
    session.udf.register("price", pricing.price, "bigint")
    plain = udf(pricing.price, "bigint", useArrow=False)

    def framed(table: Any) -> Any:
        return table("t").select(plain("k", "x").alias("y"))

    with open_location(Path(sys.argv[1]), layouts=LAYOUTS) as client:
        controller = ViewController(client, session)
        controller.create_view("by_sql", "SELECT price(k, x) AS y FROM t")
        controller.create_view("by_frame", framed)
        advanced = controller.run_once()
    close_session()
    print(*advanced)
