"""What a session of Spark's is told that answers many queries over a few rows, once each.

Compiling such a query takes longer than running it, and a stage more, or a job for a broadcast,
costs more than all rows together. The answers are the same.

Relied on by: tests that hold views against what Spark says of their queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

FEW_ROWS: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def for_few_rows(session: Any) -> Any:
    """Return the session, told so."""
    for key, value in FEW_ROWS.items():
        session.conf.set(key, value)
    return session
