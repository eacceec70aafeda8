"""What a client is told whose statement ran on Spark when Spark ended."""

from __future__ import annotations

from headwater.adapter.errors import AdapterError


class SparkLost(AdapterError):
    """Spark ended while a statement ran there. It changed nothing and may be tried again."""

    condition = "SPARK_LOST"
    sqlstate = "40001"
    """What clients and their libraries try again by themselves."""

    def __init__(self, message: str, *, out_of_memory: bool) -> None:
        hint = "Spark is started again by itself: try the statement again."
        if out_of_memory:
            # Tried again, it might well do the same: not an SQLSTATE on which it is.
            self.condition, self.sqlstate = "OUT_OF_MEMORY", "53200"
            hint = (
                "Spark is started again by itself. If it was this statement that took so much, "
                "let it read less, or give Spark more with --spark-memory-mib."
            )
        super().__init__(message, hint=hint)
