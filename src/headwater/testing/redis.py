"""A real Redis for tests: one process, on this machine only.

The server is Debian's: its package redis-tools has it (``scripts/setup --redis`` installs it where
it may), under the name of a tool; what it does depends on the name it is called by. The package
redis-server would do no more than start one for the whole machine. Without it there is none, and
:func:`missing` says why, for the reason of a skip. Nothing here imitates it.

It can be killed (``SIGKILL``) and started again on the same port with the same files. It is durable
as its settings say; unless a test says otherwise it keeps a log that is synced before it answers.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headwater.testing.free_ports import free_ports, start_somewhere
from headwater.testing.own_process import OwnProcess

START_TIMEOUT_S: Final = 60
PASSWORD: Final = "not a 'secret'"  # noqa: S105 - of a server that lives for a test

DURABLE: Final = {"appendonly": "yes", "appendfsync": "always"}
FORGETFUL: Final = {"appendonly": "no"}
"""It comes back with what was saved explicitly."""


def _server() -> str | None:
    return shutil.which("redis-server") or shutil.which("redis-check-rdb")


def missing() -> str | None:
    """Return why there is no server here; ``None`` if there can be one."""
    if _server() is None:
        return "no Redis: Debian's redis-tools is not installed; `make redis` does it"
    return None


@dataclass(slots=True)
class RedisServer(OwnProcess):
    """One server; ``port`` stays the same, also after a kill and a start."""

    folder: Path
    port: int
    settings: dict[str, str]
    authority: str = ""
    """Who signed its certificate, where its settings name one."""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it and wait until it answers."""
        import redis

        assert self._process is None, "it runs already"
        server = _server()
        assert server is not None, missing()
        told = {
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "requirepass": PASSWORD,
            "save": "",
            **self.settings,
        }
        if "tls-port" not in told:
            told["port"] = str(self.port)
        command = ["redis-server", "-"]
        text = "".join(f"{name} {_quoted(value)}\n" for name, value in told.items())
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, executable=server, stdin=subprocess.PIPE, stdout=log, stderr=log
            )
            assert self._process.stdin is not None
            self._process.stdin.write(text.encode())
            self._process.stdin.close()
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with self.connect() as client:
                    client.ping()
                return
            except redis.RedisError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    tail = (self.folder / "server.log").read_text()[-2_000:]
                    raise RuntimeError(f"Redis did not start: {error}: {tail}") from error
            time.sleep(0.02)

    @property
    def config(self) -> dict[str, str]:
        """What a connection to it says."""
        told = {"host": "127.0.0.1", "port": str(self.port), "password": PASSWORD}
        return {**told, "ssl certificate authority": self.authority} if self.authority else told

    def connect(self, **options: Any) -> Any:
        """Return a client."""
        from headwater.base.redis import connected

        return connected({**self.config, **options})


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@contextmanager
def redis_server(settings: Mapping[str, str] = DURABLE) -> Iterator[RedisServer]:
    """Run an empty Redis."""
    with tempfile.TemporaryDirectory(prefix="hw-redis-", ignore_cleanup_errors=True) as folder:
        server = RedisServer(Path(folder), free_ports(1)[0], dict(settings))
        start_somewhere(server)
        try:
            yield server
        finally:
            server.stop()
