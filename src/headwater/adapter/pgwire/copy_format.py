"""The options of a COPY, checked as PostgreSQL checks them.

A :class:`CopyFormat` that exists is consistent: :func:`of_options` refuses everything else with
PostgreSQL's code. The defaults depend on the kind, as there: a tab and ``\\N`` in text, a comma and
the empty string in CSV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from headwater.adapter.errors import AdapterError, Unsupported
from headwater.adapter.setting_errors import InvalidSetting

Kind = Literal["text", "csv", "binary"]
Header = Literal["no", "yes", "match"]

_NULL_TEXT: Final = "\\N"
_FORBIDDEN_DELIMITERS: Final = "\\.abcdefghijklmnopqrstuvwxyz0123456789"


class CopyOptionSyntax(AdapterError):
    """An option of COPY that does not exist, is given twice, or has a value it cannot have."""

    condition = "SYNTAX_ERROR"
    sqlstate = "42601"


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """How the rows of a COPY are written."""

    kind: Kind = "text"
    delimiter: str = "\t"
    null: str = _NULL_TEXT
    header: Header = "no"
    quote: str = '"'
    escape: str = '"'
    force_quote: tuple[str, ...] | Literal["*"] = ()
    force_null: tuple[str, ...] | Literal["*"] = ()
    force_not_null: tuple[str, ...] | Literal["*"] = ()

    @property
    def is_binary(self) -> bool:
        """Whether the pieces are not text."""
        return self.kind == "binary"


def of_options(options: Mapping[str, Any], *, to_client: bool) -> CopyFormat:
    """The format of ``(NAME value, …)``: names in lower case, lists of columns as tuples."""
    for name in options:
        if name not in _OPTIONS:
            raise CopyOptionSyntax(f'option "{name}" not recognized')
    kind = _kind(options.get("format", "text"))
    _only_utf8(options)
    for name, kinds in _OPTIONS.items():
        if name in options and kind not in kinds:
            raise CopyOptionSyntax(f"COPY {name.upper()} is not available in {kind} mode")
    if _boolean("freeze", options.get("freeze", False)):
        raise Unsupported("COPY FREEZE")
    if options.get("on_error", "stop") != "stop":
        raise Unsupported("COPY ON_ERROR other than stop")
    csv = kind == "csv"
    delimiter = _one_byte("delimiter", options.get("delimiter", "," if csv else "\t"))
    null = str(options.get("null", "" if csv else _NULL_TEXT))
    quote = _one_byte("quote", options.get("quote", '"'))
    chosen = CopyFormat(
        kind,
        delimiter,
        null,
        _header(options.get("header", False), to_client=to_client),
        quote,
        _one_byte("escape", options.get("escape", quote)),
        options.get("force_quote", ()),
        options.get("force_null", ()),
        options.get("force_not_null", ()),
    )
    _check(chosen, to_client=to_client)
    return chosen


_OPTIONS: Final[Mapping[str, tuple[Kind, ...]]] = {
    "format": ("text", "csv", "binary"),
    "encoding": ("text", "csv", "binary"),
    "freeze": ("text", "csv", "binary"),
    "on_error": ("text", "csv", "binary"),
    "delimiter": ("text", "csv"),
    "null": ("text", "csv"),
    "header": ("text", "csv"),
    "quote": ("csv",),
    "escape": ("csv",),
    "force_quote": ("csv",),
    "force_null": ("csv",),
    "force_not_null": ("csv",),
}


def _check(chosen: CopyFormat, *, to_client: bool) -> None:
    if chosen.kind == "binary":
        return
    for name in ("delimiter", "null"):
        value = getattr(chosen, name)
        if "\n" in value or "\r" in value:
            raise InvalidSetting(f"COPY {name} cannot be newline or carriage return")
    if chosen.kind == "text" and chosen.delimiter.lower() in _FORBIDDEN_DELIMITERS:
        raise InvalidSetting(f'COPY delimiter cannot be "{chosen.delimiter}"')
    if chosen.delimiter in chosen.null:
        raise InvalidSetting("COPY delimiter character must not appear in the NULL specification")
    if chosen.kind == "csv":
        if chosen.delimiter == chosen.quote:
            raise InvalidSetting("COPY delimiter and quote must be different")
        if chosen.quote in chosen.null:
            raise InvalidSetting("CSV quote character must not appear in the NULL specification")
    wrong = ("force_null", "force_not_null") if to_client else ("force_quote",)
    for name in wrong:
        if getattr(chosen, name):
            direction = "COPY TO" if to_client else "COPY FROM"
            raise CopyOptionSyntax(f"COPY {name.upper()} cannot be used with {direction}")


def _kind(value: object) -> Kind:
    for kind in ("text", "csv", "binary"):
        if value == kind:
            return kind
    raise InvalidSetting(f'COPY format "{value}" not recognized')


def _only_utf8(options: Mapping[str, Any]) -> None:
    encoding = str(options.get("encoding", "utf8")).lower().replace("-", "")
    if encoding not in ("utf8", "unicode"):
        raise Unsupported(f'COPY ENCODING "{options["encoding"]}"', hint="It is UTF8.")


def _boolean(name: str, value: object) -> bool:
    known = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
    found = known.get(str(value).lower())
    if found is None:
        raise CopyOptionSyntax(f"{name} requires a Boolean value")
    return found


def _header(value: object, *, to_client: bool) -> Header:
    if str(value).lower() == "match":
        if to_client:
            raise CopyOptionSyntax('cannot use "match" with HEADER in COPY TO')
        return "match"
    return "yes" if _boolean("header", value) else "no"


def _one_byte(name: str, value: object) -> str:
    written = str(value)
    if len(written.encode()) != 1:
        raise Unsupported(f"COPY {name} of other than one single-byte character")
    return written
