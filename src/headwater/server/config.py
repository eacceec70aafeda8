"""How a server is run, as one value: :class:`ServerConfig`.

Each setting may be given in four places; the first that has it counts:

    option (``--spark-master``) > environment (``HEADWATER_SPARK_MASTER``) > file > default

The file is TOML, with the names of the fields below; ``[spark]`` in it holds further settings of
Spark by their own names. A name that is not a setting is refused, never ignored: a typing error in
a file would else be found in production. Numbers have their unit in their name.

    data = "/var/lib/headwater"
    listen = "0.0.0.0:6875"
    users = "/etc/headwater/users"
    [spark]
    "spark.executor.memory" = "4g"

To take over is a decision of a person at a moment, so it is an option and nothing else: in a file
two servers would fence each other for ever.

:func:`resolved` is pure. Kept by: this module. Relied on by: ``cli``, ``server/compose.py``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from headwater.base.errors import InvalidUsage

ENVIRONMENT: Final = "HEADWATER_"
PORT_DEFAULT: Final = 6875
OFF: Final = "off"
_PORT_MAX: Final = 65_535
TICK_MIN_MS: Final = 200
"""Each tick is an entry of the log and wakes every view: more often costs more than it tells."""
TICK_MAX_MS: Final = 60_000
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")

LogFormat = Literal["plain", "json"]
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class InvalidConfiguration(InvalidUsage):
    """A setting that cannot be, where it was given, and what it may be."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Every setting of a server."""

    data: Path
    """Directory of the server: the location, unless ``blob`` and ``consensus`` say otherwise."""
    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    take_over: bool = False
    spark_master: str = ""
    blob: str = ""
    consensus: str = ""
    console: Address | None = None
    """Where console, metrics and health are served; None: nowhere."""
    users: Path | None = None
    """File of who may connect; None: whoever is on this machine."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_required: bool = False
    secrets_key: Path | None = None
    """File of the key that secrets are sealed with; None: in the user's configuration directory.
    Never in the location: whoever copies that has no secret."""
    spark_memory_mib: int = 0
    """Heap of the driver's JVM; 0: by the memory of the machine (``preflight.spark_memory``)."""
    spark_cores: int = 0
    """Cores to plan for; 0: all that this process may use."""
    spark_host: str = "127.0.0.1"
    """Address at which executors reach the driver."""
    query_result_mib: int = 4096
    """How large the answer of a query may be; it waits on disk."""
    tick_ms: int = 1000
    """How often the timeline follows the clock where nobody writes; not below
    :data:`TICK_MIN_MS`."""
    spark: tuple[tuple[str, str], ...] = ()
    """Further settings of Spark."""
    otel: bool = False
    """Whether traces are sent by OpenTelemetry (``server/otel.py``)."""
    log_format: LogFormat = "plain"
    log_level: str = "info"

    @property
    def address(self) -> Address:
        """Where SQL clients connect."""
        return Address(self.host, self.port)

    @property
    def shared(self) -> bool:
        """Whether the location is a pair of services rather than the directory."""
        return bool(self.blob or self.consensus)

    def shown(self) -> dict[str, str]:
        """Return what is not as by default, for a log: passwords are left out."""
        default = ServerConfig(self.data)
        found: dict[str, str] = {"data": str(self.data)}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "spark":
                found |= {f"spark.{key}": "…" for key, _ in value}
            elif value != getattr(default, each.name):
                found[each.name] = without_password(str(value))
        return found


def without_password(address: str) -> str:
    """Return an address that may be shown.

    >>> without_password("postgresql://ann:secret@host/db?password=secret&headwater_log=a")
    'postgresql://ann:…@host/db?…'
    >>> without_password("s3://bucket/prefix")
    's3://bucket/prefix'
    """
    if "://" not in address:
        return address
    try:
        parts = urlsplit(address)
        netloc = parts.netloc
        if parts.password is not None:
            user, _, host = netloc.rpartition("@")
            netloc = f"{user.split(':', 1)[0]}:…@{host}"
    except ValueError:
        return f"{address.partition('://')[0]}://…"
    query = "?…" if parts.query else ""
    return f"{parts.scheme}://{netloc}{parts.path}{query}"


def parse_address(text: str, where: str, host: str = "127.0.0.1") -> Address:
    """Return ``HOST:PORT``, ``PORT`` or ``:PORT`` (on ``host``) as an address.

    >>> parse_address("6875", "listen"), parse_address("[::1]:0", "listen")
    (Address(host='127.0.0.1', port=6875), Address(host='::1', port=0))
    """
    before, _, last = text.strip().rpartition(":")
    if before.startswith("[") and before.endswith("]"):
        before = before[1:-1]
    if not last.isdigit() or int(last) > _PORT_MAX:
        raise InvalidConfiguration(
            where, f"{text!r} is no address; write HOST:PORT, as in 127.0.0.1:6875"
        )
    return Address(before or host, int(last))


def read_file(path: Path) -> dict[str, Any]:
    """Return the settings of a file; refuse one that is not there or is not TOML."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidConfiguration(str(path), f"cannot be read: {reason}; check --config") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfiguration(str(path), f"is not TOML: {error}") from None


def resolved(
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    file: Mapping[str, Any] | None = None,
    file_name: str = "the file",
) -> ServerConfig:
    """Return the configuration that options, environment and file make together.

    An option that is None was not given. Relative paths are those of the current directory.
    """
    file = dict(file or {})
    spark = file.pop("spark", {})
    for name in file:
        if name not in _READERS:
            near = get_close_matches(name, _READERS, n=1)
            hint = f"; perhaps {near[0]}" if near else f"; there is {', '.join(sorted(_READERS))}"
            why = "an option only" if name == "take_over" else f"not a setting{hint}"
            raise InvalidConfiguration(file_name, f"{name} is {why}")
    found: dict[str, Any] = {}
    for name, read in _READERS.items():
        option, variable = f"--{name.replace('_', '-')}", ENVIRONMENT + name.upper()
        for where, value in (
            (option, options.get(name)),
            (variable, environment.get(variable)),
            (f"{file_name}: {name}", file.get(name)),
        ):
            if value is not None:
                found[name] = read(value, where)
                break
    return _checked(found, take_over=bool(options.get("take_over")), spark=_spark(spark, file_name))


def _checked(found: dict[str, Any], *, take_over: bool, spark: Any) -> ServerConfig:
    if "data" not in found:
        raise InvalidConfiguration(
            "--data", "which directory? give --data DIR, HEADWATER_DATA, or data in the file"
        )
    listen = found.pop("listen", Address("127.0.0.1", PORT_DEFAULT))
    # Beside the SQL port: two servers on one machine then differ in one number.
    beside = Address(listen.host, listen.port + 1 if listen.port else 0)
    console = found.pop("console", beside)
    made = ServerConfig(
        **found,
        host=listen.host,
        port=listen.port,
        console=None if console == OFF else console,
        take_over=take_over,
        spark=spark,
    )
    if (made.tls_certificate is None) != (made.tls_key is None) or (
        made.tls_required and made.tls_key is None
    ):
        raise InvalidUsage("TLS needs both --tls-certificate and --tls-key")
    if made.secrets_key is not None and made.secrets_key.resolve().is_relative_to(
        made.data.resolve()
    ):
        raise InvalidConfiguration(
            "--secrets-key", "the key is not kept with what it seals; choose a place outside --data"
        )
    if bool(made.blob) != bool(made.consensus):
        have, lacks = ("--blob", "--consensus") if made.blob else ("--consensus", "--blob")
        raise InvalidConfiguration(
            have,
            f"a shared location needs {lacks} too: log and objects must be reachable together",
        )
    return made


def _spark(given: object, file_name: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(given, dict) or any(isinstance(v, dict | list) for v in given.values()):
        raise InvalidConfiguration(
            file_name, 'spark is a table of Spark\'s settings: "spark.executor.memory" = "4g"'
        )
    return tuple((k, str(v).lower() if isinstance(v, bool) else str(v)) for k, v in given.items())


# ---- one reader per type -------------------------------------------------------------------------


def _text(value: object, where: str) -> str:
    if not isinstance(value, str | Path):
        raise InvalidConfiguration(where, f"{value!r} is not a text")
    return str(value)


def _path(value: object, where: str) -> Path:
    text = _text(value, where)
    if not text:
        raise InvalidConfiguration(where, "an empty path is none")
    return Path(text).expanduser()


def _count(value: object, where: str) -> int:
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidConfiguration(where, f"{value!r} is not a whole number from 0 on")
    return value


def _tick(value: object, where: str) -> int:
    ticked = _count(value, where)
    if not TICK_MIN_MS <= ticked <= TICK_MAX_MS:
        raise InvalidConfiguration(
            where, f"a tick of {ticked} ms; it may be from {TICK_MIN_MS} to {TICK_MAX_MS} ms"
        )
    return ticked


def _switch(value: object, where: str) -> bool:
    word = str(value).strip().lower()
    if word not in _TRUE + _FALSE:
        raise InvalidConfiguration(where, f"{value!r} is neither true nor false")
    return word in _TRUE


def _address(value: object, where: str) -> Address:
    return parse_address(str(value), where)


def _console(value: object, where: str) -> Address | str:
    return OFF if value == OFF or value is False else _address(value, where)


def _log_format(value: object, where: str) -> str:
    if value not in ("plain", "json"):
        raise InvalidConfiguration(where, f"{value!r} is neither plain nor json")
    return str(value)


def _log_level(value: object, where: str) -> str:
    word = str(value).lower()
    if word not in LOG_LEVELS:
        raise InvalidConfiguration(where, f"{value!r} is none of {', '.join(LOG_LEVELS)}")
    return word


_READERS: Final[dict[str, Any]] = {
    "data": _path,
    "blob": _text,
    "consensus": _text,
    "listen": _address,
    "console": _console,
    "users": _path,
    "tls_certificate": _path,
    "tls_key": _path,
    "tls_required": _switch,
    "secrets_key": _path,
    "spark_master": _text,
    "spark_memory_mib": _count,
    "spark_cores": _count,
    "spark_host": _text,
    "query_result_mib": _count,
    "tick_ms": _tick,
    "otel": _switch,
    "log_format": _log_format,
    "log_level": _log_level,
}
"""Every setting that has a name outside, and who reads it."""
