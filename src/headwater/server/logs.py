"""What a server tells whoever runs it: one line per event, on standard error.

Plain for a person (``22:09:31 info    the door is open  address=127.0.0.1:6875``), or JSON for a
machine. An event is a log record; ``extra={"event": {...}}`` gives it fields. Lines are never
broken: what an exception tells is in the same line. Texts of statements, rows, and values of
settings are not logged by anybody; addresses go through ``config.without_password``.

Kept by: :func:`set_up`, the only place that configures logging.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import Any, Final, TextIO

from headwater.server.config import LogFormat

LOG: Final = logging.getLogger("headwater.server")

_NOISY: Final = (
    *("uvicorn", "uvicorn.error", "uvicorn.access", "engineio", "socketio", "nicegui"),
    "sqlglot",  # It warns of what it cannot read, with the client's text; who asked is told.
)


def tell(message: str, **fields: object) -> None:
    """Log an event with its fields."""
    LOG.info(message, extra={"event": fields})


class PlainLines(logging.Formatter):
    """Time, level, message, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        clock = time.strftime("%H:%M:%S", time.gmtime(record.created))
        fields = "".join(f"  {k}={v}" for k, v in _fields(record).items())
        return _one_line(
            f"{clock} {record.levelname.lower():7} {record.getMessage()}{fields}{_failure(record)}"
        )


class JsonLines(logging.Formatter):
    """An object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        line: dict[str, Any] = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        failure = _failure(record)
        if failure:
            line["failure"] = failure.strip()
        return json.dumps(line, default=str, ensure_ascii=False)


def set_up(form: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Send what this process logs to standard error, in this form, from this level on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else PlainLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("headwater").setLevel(level.upper())
    for name in _NOISY:
        noisy = logging.getLogger(name)
        noisy.handlers, noisy.propagate = [], True
        noisy.setLevel(logging.ERROR)
    # It reports a connection that Spark's end closed; whoever used it has the exception.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    found = getattr(record, "event", None)
    return found if isinstance(found, dict) else {}


def _failure(record: logging.LogRecord) -> str:
    if record.exc_info is None or record.exc_info[1] is None:
        return ""
    frames = traceback.extract_tb(record.exc_info[2])
    where = f" at {frames[-1].name}:{frames[-1].lineno}" if frames else ""
    return f"  {type(record.exc_info[1]).__name__}{where}: {record.exc_info[1]}"


def _one_line(text: str) -> str:
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())
