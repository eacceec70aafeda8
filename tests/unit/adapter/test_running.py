"""A statement's jobs: run under the session's name, and ended for that session alone."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headwater.adapter.errors import QueryCanceled
from headwater.testing.sql_server import SqlServer


def test_a_cancel_ends_the_jobs_of_its_own_session() -> None:
    with SqlServer() as server:
        sql, other = server.session(), server.session()
        sql("CREATE TABLE t (k int); INSERT INTO t VALUES (1)")
        assert other("SELECT k + 1 FROM t") == [(2,)]
        assert server.evaluator.group == "session-2"
        entered = threading.Event()
        cancelled = server.evaluator.cancelled

        def blocked(*_: Any) -> Any:
            entered.set()
            while not cancelled:
                threading.Event().wait(0.01)
            raise RuntimeError("Job 7 cancelled part of cancelled job group")

        def cancel() -> None:
            entered.wait()
            sql.session.cancel()

        server.evaluator._answered = blocked  # type: ignore[assignment, method-assign]
        asked = threading.Thread(target=cancel)
        asked.start()
        with pytest.raises(QueryCanceled, match="user request"):
            sql("SELECT k + 1 FROM t")
        asked.join()
        assert cancelled == ["session-1"]
        # Nothing runs there any more: a cancel that comes late ends nothing.
        other.session.cancel()
        assert cancelled == ["session-1"]
