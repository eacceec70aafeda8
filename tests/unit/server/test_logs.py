"""One line per event, whatever is in it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from headwater.server import logs


@pytest.fixture
def told() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers, root.level
    yield io.StringIO()
    root.handlers = before
    root.setLevel(level)
    logging.getLogger("headwater").setLevel(logging.NOTSET)


def _speak() -> None:
    logs.tell("two\nlines", address="127.0.0.1:1", why="a\nb")
    try:
        raise ValueError("no\nway")
    except ValueError:
        logging.getLogger("headwater.persist").exception("it failed")
    logging.getLogger("headwater.x").debug("not told")
    logging.getLogger("uvicorn.access").info("not told")


def test_json_lines(told: io.StringIO) -> None:
    logs.set_up("json", "info", told)
    _speak()
    first, second = [json.loads(line) for line in told.getvalue().splitlines()]
    assert (first["message"], first["why"], first["level"]) == ("two\nlines", "a\nb", "info")
    assert second["logger"] == "headwater.persist"
    assert second["failure"].startswith("ValueError at _speak:")


def test_plain_lines(told: io.StringIO) -> None:
    logs.set_up("plain", "info", told)
    _speak()
    first, second = told.getvalue().splitlines()
    assert first.endswith("info    two | lines  address=127.0.0.1:1  why=a | b")
    assert "error   it failed  ValueError at _speak:" in second
    assert second.endswith("no | way")
