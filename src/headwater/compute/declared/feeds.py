"""Streams from outside that are read by position: Kafka, and Spark's ``rate``.

    spark.readStream.format("kafka").option("subscribe", "orders").option(…).load()

is a relation without rows under a name of its own while a query is defined; which rows it stands
for is decided run by run, by whoever reads it (``pipelines/feeds.py``). The name is made of what is
read, so the same stream has the same name in every run, also when its broker has moved.

Options mean what Spark says. One that Spark does not know, or that could not be kept, is refused;
those that only say how much is read at once mean nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, Final

import msgspec
import pyarrow as pa

from headwater.compute.ir.refusal import Refused

_STAMP: Final = pa.timestamp("us", "UTC")
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

MESSAGES: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _STAMP),
        ("timestampType", pa.int32()),
    ]
)
"""The columns of a stream of Kafka, as Spark has them."""
NUMBERS: Final = pa.schema([("timestamp", _STAMP), ("value", pa.int64())])
"""The columns of a stream of ``rate``."""

SETTING: Final = "kafka."
"""What settings of the client begin with."""
_KAFKA: Final = {"subscribe", "startingoffsets", "includeheaders"}
_RATE: Final = {"rowspersecond", "rampuptime"}
_IDENTITY: Final = ("subscribe", "includeheaders", "rowspersecond")
"""The options that say what is read; others say how it is reached, and where a first run begins."""
_WITHOUT_MEANING: Final = {
    *("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "minpartitions"),
    *("maxrecordsperpartition", "failondataloss", "groupidprefix", "kafkaconsumer.polltimeoutms"),
    *("fetchoffset.numretries", "fetchoffset.retryintervalms", "numpartitions"),
}
"""How much is read at once, and by whom. What was lost is always told, whatever
``failOnDataLoss`` says."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A stream from outside, as one query reads it; ``options`` have their names in small."""

    format: str
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name by which plans know it.

        >>> Feed("kafka", {"subscribe": "Orders,Returns"}).name
        'input_kafka_orders_returns_833e67'
        """
        about = "".join(c if c.isalnum() else "_" for c in self.options.get("subscribe", ""))
        read = sorted(self.options.items() & {(k, self.options.get(k)) for k in _IDENTITY})
        told = msgspec.json.encode([self.format, read])
        parts = ("input", self.format, *([about.lower()] if about else []))
        return "_".join((*parts, sha256(told).hexdigest()[:6]))

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        if self.format == "rate":
            return NUMBERS
        if self.options.get("includeheaders", "false").lower() != "true":
            return MESSAGES
        return MESSAGES.append(pa.field("headers", _HEADERS))

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it subscribes to."""
        return tuple(topic.strip() for topic in self.options["subscribe"].split(","))

    @property
    def client(self) -> dict[str, str]:
        """Settings of the client."""
        return {
            key.removeprefix(SETTING): value
            for key, value in self.options.items()
            if key.startswith(SETTING)
        }


def feed_of(form: str, given: Mapping[str, Any]) -> Feed | None:
    """Return what a reader with these options reads; None: it is none of ours."""
    form = form.lower()
    if form not in ("kafka", "rate"):
        return None
    options = {
        key.lower(): _written(value)
        for key, value in given.items()
        if value is not None and key.lower() not in _WITHOUT_MEANING
    }
    (_require_kafka if form == "kafka" else _require_rate)(options)
    return Feed(form, options)


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _require_kafka(options: Mapping[str, str]) -> None:
    if find_spec("confluent_kafka") is None:
        raise _refused("kafka", "the client is missing", "pip install 'headwater[kafka]'")
    for name in options:
        if name not in _KAFKA and not name.startswith(SETTING):
            raise _refused("kafka", f"there is no option {name!r} here", _HINT)
    for needed in ("kafka.bootstrap.servers", "subscribe"):
        if not options.get(needed):
            raise _refused("kafka", f"it lacks the option {needed!r}", _HINT)
    start = options.get("startingoffsets", "latest")
    if start not in ("earliest", "latest"):
        try:
            msgspec.json.decode(start, type=dict[str, dict[str, int]])
        except msgspec.DecodeError:
            raise _refused("kafka", f"startingOffsets is {start!r}", _OFFSETS) from None


def _require_rate(options: Mapping[str, str]) -> None:
    for name in options:
        if name not in _RATE:
            raise _refused("rate", f"there is no option {name!r} here", "take it out")
    rate = options.get("rowspersecond", "1")
    if not rate.isdigit() or not int(rate):
        raise _refused("rate", f"rowsPerSecond is {rate!r}", "write a whole number from 1 on")
    if options.get("rampuptime", "0s") not in ("0", "0s"):
        raise _refused("rate", "it always has its full speed", "take rampUpTime out")


_HINT: Final = (
    "name topics with subscribe, the broker with kafka.bootstrap.servers, more settings of "
    "librdkafka with kafka.…, and say startingOffsets"
)
_OFFSETS: Final = 'write earliest, latest, or offsets: {"topic": {"0": 23, "1": -2}}'


def _refused(form: str, why: str, hint: str) -> Refused:
    return Refused(f"readStream.format({form!r})", why, hint=hint)


# ---- the methods of Spark's reader ---------------------------------------------------------------


def recording(
    reader: Any, fed: Callable[[Feed], Any], given: str = "_headwater"
) -> dict[str, Callable[..., Any]]:
    """Return methods of ``DataStreamReader`` that give a feed by ``fed``, and all else as before.

    What was said to a reader is known to its Java side alone, so it is noted beside it.
    """
    form, option, options, load = reader.format, reader.option, reader.options, reader.load

    def noted(self: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.__dict__.setdefault(given, {"": "parquet"})
        return found

    def with_format(self: Any, source: str) -> Any:
        noted(self)[""] = source
        return form(self, source)

    def with_option(self: Any, key: str, value: Any) -> Any:
        noted(self)[key] = value
        return option(self, key, value)

    def with_options(self: Any, **values: Any) -> Any:
        noted(self).update(values)
        return options(self, **values)

    def loaded(
        self: Any,
        path: Any = None,
        format: Any = None,  # noqa: A002 - as Spark calls it
        schema: Any = None,
        **more: Any,
    ) -> Any:
        said = {**noted(self), **more}
        found = feed_of(format or said.pop(""), {k: v for k, v in said.items() if k})
        return load(self, path, format, schema, **more) if found is None else fed(found)

    return {
        "format": with_format,
        "option": with_option,
        "options": with_options,
        "load": loaded,
    }
