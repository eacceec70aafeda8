"""A real schema registry for tests: Apicurio's, one process, in memory, on this machine only.

It is the one that ``scripts/upstreams`` brought; without it there is none and :func:`missing` says
why, for the reason of a skip. It answers by Confluent's interface under a path of its own, and
judges for itself what is a schema: what ``testing/schema_registry.py`` only claims to be told.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from headwater.testing.free_ports import free_ports
from headwater.testing.own_process import OwnProcess

FOLDER: Final = Path(os.environ.get("REGISTRY_CACHE", "build/registry"))
START_TIMEOUT_S: Final = 300
JAVA: Final = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def missing(folder: Path = FOLDER) -> str | None:
    """Return why there is no registry here; ``None`` if there can be one."""
    if _program(folder) is None:
        return f"no schema registry: it is not in {folder}; `scripts/upstreams` brings it"
    if shutil.which("java") is None:
        return "no schema registry: it needs Java"
    return None


def _program(folder: Path) -> Path | None:
    return next(folder.glob("*-runner.jar"), None)


@dataclass(slots=True)
class Apicurio(OwnProcess):
    """One registry."""

    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Where it speaks Confluent's interface."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self.port}"]
        program = _program(FOLDER)
        assert program is not None, missing()
        with (self.folder / "registry.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *JAVA, *settings, "-jar", str(program.resolve())],
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self._asked("/subjects")
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    tail = (self.folder / "registry.log").read_text()[-2_000:]
                    raise RuntimeError(f"the registry did not start: {error}: {tail}") from error
            time.sleep(0.2)

    def register(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        references: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Add a version to a subject; return the id of the schema."""
        body = {"schema": schema, "schemaType": kind, "references": list(references)}
        answer = self._asked(
            f"/subjects/{quote(subject, safe='')}/versions", msgspec.json.encode(body)
        )
        return int(answer["id"])

    def _asked(self, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(self.url + path, data=body)  # noqa: S310 - our own
        request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
            return msgspec.json.decode(answer.read())


@contextmanager
def apicurio_registry() -> Iterator[Apicurio]:
    """Run an empty registry."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="hw-reg-", ignore_cleanup_errors=True) as folder:
        registry = Apicurio(Path(folder), port)
        try:
            registry.start()
            yield registry
        finally:
            registry.stop()
