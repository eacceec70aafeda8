"""Statements and messages that nobody would send: each is refused by a name that is not XX000.

One real server with Spark, and thousands of cases of ``testing/mutations.py`` and
``testing/hostile.py``. The server lives, answers a fresh connection, and its log has no trace.
``HEADWATER_SEED=12`` repeats seed 12, ``HEADWATER_SEED=12/345`` just one case of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest

from headwater.adapter.errors import AdapterError
from headwater.adapter.pgwire.wire_statements import parse_text
from headwater.testing.hostile import Hostile, messages
from headwater.testing.mutations import Mutator
from tests.end_to_end.hostile_corpus import CORPUS, SETUP
from tests.seeds import seeds

pytestmark = [pytest.mark.spark, pytest.mark.server]

SEED = os.environ.get("HEADWATER_SEED", "")
STATEMENTS, CONVERSATIONS, TEXTS = 1_000, 2_000, 15_000
AFRESH = 60
"""After so many cases the objects are made again: those before have dropped some."""
OPTIONS = "-c statement_timeout=3s"
END_SECONDS = 120.0


class Server:
    """``headwater serve``, and the file that has its log."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "headwater", "serve", "--data", str(directory / "d")),
                    *("--port", "0", "--console", "off"),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), line
        self.address = ("127.0.0.1", int(line.rsplit(":", 1)[1]))

    def check(self) -> None:
        """It answers who comes anew, and met nothing that it did not expect."""
        host, port = self.address
        with psycopg.connect(host=host, port=port, user="headwater", autocommit=True) as client:
            assert client.execute("SELECT 1 + 1").fetchall() == [(2,)]
        told = self.log.read_text("utf-8", "replace")
        assert "Traceback" not in told
        assert "unexpected error" not in told, told[-4_000:]

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.communicate(timeout=END_SECONDS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("hostile"))
    yield started
    started.stop()


def chosen(seed: int, cases: int) -> tuple[int, range]:
    """The seed, and the numbers of its cases."""
    wanted, _, case = (SEED or str(seed)).partition("/")
    print(f"HEADWATER_SEED={wanted}")
    return int(wanted), range(int(case), int(case) + 1) if case else range(cases)


def attacked(
    server: Server, seed: int, cases: int, one: Callable[[Hostile, Mutator, int], None]
) -> None:
    wanted, numbers = chosen(seed, cases)
    mutator = Mutator(CORPUS, wanted)
    hostile = Hostile(server.address, OPTIONS)
    for number in numbers:
        if (number - numbers.start) % AFRESH == 0:
            hostile.leave()
            for sql in SETUP:
                hostile.ask(sql)
            hostile.leave()
        known = len(hostile.wrong)
        one(hostile, mutator, number)
        for wrong in hostile.wrong[known:]:
            print(f"HEADWATER_SEED={wanted}/{number}: {wrong.answer!r} to {wrong.said!r}")
    hostile.leave()
    assert not hostile.wrong
    server.check()


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_statements(server: Server, seed: int) -> None:
    def one(hostile: Hostile, mutator: Mutator, number: int) -> None:
        if number % 15 == 0:
            hostile.leave()
        hostile.ask(mutator.text(number))

    attacked(server, seed, STATEMENTS, one)


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_conversations(server: Server, seed: int) -> None:
    def one(hostile: Hostile, mutator: Mutator, number: int) -> None:
        random = Random(f"{mutator.seed}/messages/{number}")

        def text() -> str:
            if random.random() < 0.5:
                return mutator.text(random.randrange(1 << 20))
            return random.choice(CORPUS)

        hostile.converse(list(messages(random, text)))

    attacked(server, seed, CONVERSATIONS, one)


@pytest.mark.parametrize("seed", seeds(1, 40))
def test_texts(seed: int) -> None:
    """The parser alone, which most of them do not pass: of these there are many more."""
    wanted, numbers = chosen(seed, TEXTS)
    mutator = Mutator(CORPUS, wanted)
    for number in numbers:
        text = mutator.text(number)
        try:
            parse_text(text, "spark" if number % 4 == 0 else "postgres")
        except AdapterError:
            continue
        except Exception as error:
            raise AssertionError(f"HEADWATER_SEED={wanted}/{number}: {text}") from error
