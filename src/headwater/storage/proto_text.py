"""The text of a ``.proto`` file as its descriptor: proto2, proto3 and editions.

    parsed(name, text)  ->  what ``protoc`` would hand over, before names are looked up

Schema registries give text, and users have text. Only the syntax is read here. Whoever puts the
descriptor into a pool (``storage/protobuf.py``) finds the types that fields name, relative to where
they stand, and refuses what is none.

Options with a name of Protobuf's own are kept where they have one plain value; those that somebody
has defined, and what services say, mean nothing to the bytes of a message, and are passed over.
What a text does not say is made as ``protoc`` makes it: the entry of a map is a message, a group is
a message beside its field, an ``optional`` of proto3 is a oneof of its own, behind all others.

Checked against what ``protoc`` has made of files of Protobuf, gRPC and Spark
(``tests/unit/storage/test_proto_text.py``).

Why by ourselves (looked at in November 2026; the last two tried on the 92 files of that test).
*grpcio-tools* is ``protoc``: it wants every import and every option's definition as a file beside
the text, which registries do not have, and a process for each schema. *protoxy* wants the same,
knows no editions, refused 16 of the files, and is pinned to a Protobuf of two years ago.
*proto-schema-parser* reads all of them, 25 times slower, into a tree of the syntax: what is made of
it above, most of this module, would be written all the same; a text with a mistake is not refused
but mended, with a line on standard error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2

from headwater.base.errors import InvalidUsage

_F: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    **{
        f"{kind}{bits}": getattr(_F, f"TYPE_{kind.upper()}{bits}")
        for kind in ("int", "uint", "sint", "fixed", "sfixed")
        for bits in (32, 64)
    },
    **{
        name: getattr(_F, f"TYPE_{name.upper()}")
        for name in ("double", "float", "bool", "string", "bytes")
    },
}
_LABELS: Final = {
    "optional": _F.LABEL_OPTIONAL,
    "required": _F.LABEL_REQUIRED,
    "repeated": _F.LABEL_REPEATED,
}
_NUMBERS_END: Final = 1 << 29
"""Behind the last number that a field may have."""
_VALUES_MAX: Final = (1 << 31) - 1
_DEPTH_MAX: Final = 64

_TOKEN: Final = re.compile(
    r"""
    (?P<space> \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<name> [A-Za-z_]\w* )
  | (?P<number> 0[xX][0-9a-fA-F]+ | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]? )
  | (?P<text> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
  | (?P<mark> [{}()\[\]<>=;,.:/+-] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    rb"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_ESCAPED: Final = dict(zip(b"abfnrtv", (7, 8, 12, 10, 13, 9, 11), strict=True))


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parsed(name: str, text: str) -> Any:
    """Return the descriptor of a file; raise ``InvalidUsage`` with the line that is none."""
    return _File(name, text).read()


class _File:
    """One file that is being read."""

    def __init__(self, name: str, text: str) -> None:
        self._text = text
        self._file = descriptor_pb2.FileDescriptorProto(name=name)
        self._tokens = self._cut()
        self._at = 0
        self._depth = 0

    def read(self) -> Any:
        file = self._file
        elements: dict[str, Callable[[], None]] = {
            "syntax": self._syntax,
            "edition": self._edition,
            "import": self._import,
            "package": self._package,
            "option": lambda: self._option(file.options),
            "message": lambda: self._message(file.message_type.add()),
            "enum": lambda: self._enum(file.enum_type.add()),
            "extend": lambda: self._extend(file.extension, file.message_type),
            "service": self._service,
            ";": lambda: None,
        }
        while self._now.kind:
            element = self._any()
            if element not in elements:
                raise self._wrong("the begin of a definition", back=1)
            elements[element]()
        return file

    # ---- tokens ------------------------------------------------------------------------------

    def _cut(self) -> list[_Token]:
        found, at = [], 0
        while at < len(self._text):
            token = _TOKEN.match(self._text, at)
            if token is None:
                raise self._refused(at, f"{self._text[at : at + 10]!r} is no Protobuf")
            if token.lastgroup != "space":
                found.append(_Token(token.lastgroup or "", token[0], at))
            at = token.end()
        return [*found, _Token("", "the end", len(self._text))]

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _any(self) -> str:
        found = self._now
        if not found.kind:
            raise self._wrong("more")
        self._at += 1
        return found.text

    def _is(self, *texts: str) -> bool:
        return self._now.kind != "text" and self._now.text in texts

    def _take(self, text: str) -> bool:
        found = self._is(text)
        self._at += found
        return found

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._wrong(f"{text!r}")

    def _of(self, kind: str, what: str) -> str:
        if self._now.kind != kind:
            raise self._wrong(what)
        return self._any()

    def _name(self) -> str:
        return self._of("name", "a name")

    def _full_name(self) -> str:
        found = "." if self._take(".") else ""
        found += self._name()
        while self._take("."):
            found += f".{self._name()}"
        return found

    def _string(self) -> bytes:
        found = _unescaped(self._of("text", "a text"))
        while self._now.kind == "text":
            found += _unescaped(self._any())
        return found

    def _path(self) -> str:
        return self._string().decode(errors="replace")

    def _integer(self) -> int:
        sign = -1 if self._take("-") else 1
        text = self._of("number", "a number")
        try:
            octal = len(text) > 1 and text[0] == "0" and text.isdigit()
            return sign * int(text, 8 if octal else 0)
        except ValueError as error:
            raise self._wrong("a whole number", back=1) from error

    def _wrong(self, expected: str, back: int = 0) -> InvalidUsage:
        found = self._tokens[self._at - back]
        return self._refused(found.at, f"expected {expected}, and found {found.text!r}")

    def _refused(self, at: int, why: str) -> InvalidUsage:
        where = f"line {self._text.count(chr(10), 0, at) + 1}"
        of = f" of {self._file.name!r}" if self._file.name else ""
        return InvalidUsage(f"the Protobuf schema, {where}{of}: {why}")

    # ---- the file ----------------------------------------------------------------------------

    def _syntax(self) -> None:
        self._expect("=")
        said = self._path()
        if said not in ("proto2", "proto3"):
            raise self._wrong("proto2 or proto3", back=1)
        self._expect(";")
        if said == "proto3":
            self._file.syntax = said

    def _edition(self) -> None:
        self._expect("=")
        name = f"EDITION_{self._path()}"
        if name not in descriptor_pb2.Edition.keys():  # noqa: SIM118 - it is no mapping
            raise self._wrong("an edition of Protobuf", back=1)
        self._expect(";")
        self._file.syntax, self._file.edition = "editions", descriptor_pb2.Edition.Value(name)

    def _import(self) -> None:
        if self._take("public"):
            self._file.public_dependency.append(len(self._file.dependency))
        elif self._take("weak"):
            self._file.weak_dependency.append(len(self._file.dependency))
        only_options = self._take("option")
        path = self._path()
        if not only_options:
            self._file.dependency.append(path)
        self._expect(";")

    def _package(self) -> None:
        self._file.package = self._full_name()
        self._expect(";")

    def _service(self) -> None:
        self._name()
        self._pass_over("{", "}")

    def _pass_over(self, opening: str, closing: str) -> None:
        self._expect(opening)
        depth = 1
        while depth:
            depth += self._is(opening) - self._is(closing)
            self._any()

    # ---- messages ----------------------------------------------------------------------------

    def _message(self, message: Any) -> None:
        message.name = self._name()
        self._body(message)

    def _body(self, message: Any) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong(f"at most {_DEPTH_MAX} messages in each other")
        self._expect("{")
        while not self._take("}"):
            self._member(message)
        for field in message.field:
            if field.proto3_optional:
                taken = {each.name for each in (*message.oneof_decl, *message.field)}
                name = f"_{field.name}"
                while name in taken:
                    name = f"X{name}"
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=name)
        self._depth -= 1

    def _member(self, message: Any) -> None:
        members: dict[str, Callable[[], None]] = {
            ";": lambda: None,
            "message": lambda: self._message(message.nested_type.add()),
            "enum": lambda: self._enum(message.enum_type.add()),
            "oneof": lambda: self._oneof(message),
            "extend": lambda: self._extend(message.extension, message.nested_type),
            "extensions": lambda: self._extensions(message),
            "reserved": lambda: self._reserved(message, _NUMBERS_END - 1, 1),
            "option": lambda: self._option(message.options),
        }
        if self._now.text in members:  # A type of such a name is written with a dot before it.
            members[self._any()]()
        elif self._is("map") and self._tokens[self._at + 1].text == "<":
            self._map(message)
        else:
            self._field(message.field.add(), message.nested_type)

    def _field(self, field: Any, beside: Any, oneof: int | None = None) -> None:
        """Read a field; the message of a group goes beside it."""
        labelled = oneof is None and self._is(*_LABELS)
        label = self._any() if labelled else "optional"
        field.label = _LABELS[label]
        if oneof is not None:
            field.oneof_index = oneof
        if self._is("group"):
            self._group(field, beside)
            return
        self._type(field)
        field.name = self._name()
        self._expect("=")
        field.number = self._integer()
        if labelled and label == "optional" and self._file.syntax == "proto3":
            field.proto3_optional = True
        self._options_of_field(field)
        self._expect(";")

    def _type(self, field: Any) -> None:
        name = self._full_name()
        if name in _SCALARS:
            field.type = _SCALARS[name]
        else:
            field.type_name = name  # Whether of a message or of an enum is not said here.

    def _group(self, field: Any, beside: Any) -> None:
        self._any()
        group = beside.add(name=self._name())
        field.name, field.type, field.type_name = group.name.lower(), _F.TYPE_GROUP, group.name
        self._expect("=")
        field.number = self._integer()
        self._options_of_field(field)
        self._body(group)

    def _map(self, message: Any) -> None:
        self._any()
        self._expect("<")
        entry = message.nested_type.add()
        entry.options.map_entry = True
        for number, name in ((1, "key"), (2, "value")):
            each = entry.field.add(name=name, number=number, label=_F.LABEL_OPTIONAL)
            self._type(each)
            self._expect("," if number == 1 else ">")
        field = message.field.add(label=_F.LABEL_REPEATED, type=_F.TYPE_MESSAGE)
        field.name = self._name()
        entry.name = f"{_camel(field.name)}Entry"
        field.type_name = entry.name
        self._expect("=")
        field.number = self._integer()
        self._options_of_field(field)
        self._expect(";")

    def _oneof(self, message: Any) -> None:
        number = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._name())
        self._expect("{")
        while not self._take("}"):
            if self._take("option"):
                self._option(oneof.options)
            elif not self._take(";"):
                self._field(message.field.add(), message.nested_type, number)

    def _extend(self, extensions: Any, beside: Any) -> None:
        extendee = self._full_name()
        self._expect("{")
        while not self._take("}"):
            if not self._take(";"):
                self._field(extensions.add(extendee=extendee), beside)

    def _extensions(self, message: Any) -> None:
        while True:
            first, last = self._range(_NUMBERS_END - 1)
            message.extension_range.add(start=first, end=last + 1)
            if not self._take(","):
                break
        if self._is("["):
            self._pass_over("[", "]")
        self._expect(";")

    def _reserved(self, found: Any, largest: int, behind: int) -> None:
        """Read numbers and names that are not to be used; ranges end at ``behind`` the last."""
        while True:
            if self._now.kind == "number" or self._is("-"):
                first, last = self._range(largest)
                found.reserved_range.add(start=first, end=last + behind)
            else:
                is_text = self._now.kind == "text"
                found.reserved_name.append(self._path() if is_text else self._name())
            if not self._take(","):
                break
        self._expect(";")

    def _range(self, largest: int) -> tuple[int, int]:
        first = self._integer()
        if not self._take("to"):
            return first, first
        return first, largest if self._take("max") else self._integer()

    def _enum(self, enum: Any) -> None:
        enum.name = self._name()
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._take("option"):
                self._option(enum.options)
            elif self._take("reserved"):
                self._reserved(enum, _VALUES_MAX, 0)
            else:
                value = enum.value.add(name=self._name())
                self._expect("=")
                value.number = self._integer()
                if self._take("["):
                    self._options(partial(_set, value.options))
                self._expect(";")

    # ---- options -----------------------------------------------------------------------------

    def _option(self, options: Any) -> None:
        name, said = self._named()
        _set(options, name, said)
        self._expect(";")

    def _options_of_field(self, field: Any) -> None:
        def told(name: list[str], said: Any) -> None:
            if name == ["default"]:
                field.default_value = _default(said)
            elif name == ["json_name"] and isinstance(said, bytes):
                field.json_name = said.decode(errors="replace")
            else:
                _set(field.options, name, said)

        if self._take("["):
            self._options(told)

    def _options(self, told: Callable[[list[str], Any], None]) -> None:
        while True:
            told(*self._named())
            if not self._take(","):
                break
        self._expect("]")

    def _named(self) -> tuple[list[str], Any]:
        """Return the name of an option, part by part, and its value; ``None``: no plain one."""
        name = []
        while True:
            if self._take("("):
                name.append(f"({self._full_name()})")
                self._expect(")")
            else:
                name.append(self._name())
            if not self._take("."):
                break
        self._expect("=")
        if self._is("{"):
            self._pass_over("{", "}")
            return name, None
        if self._now.kind == "text":
            return name, self._string()
        sign = "-" if self._take("-") else ""
        self._take("+")
        return name, sign + self._any()


def _unescaped(token: str) -> bytes:
    def one(found: re.Match[bytes]) -> bytes:
        hexed, octal, short, long, other = found.groups()
        if hexed or octal:
            return bytes([int(hexed, 16) if hexed else int(octal, 8) & 0xFF])
        if short or long:
            return chr(int(short or long, 16)).encode(errors="replace")
        return bytes([_ESCAPED[other[0]]]) if other[0] in _ESCAPED else bytes(other)

    return _ESCAPE.sub(one, token[1:-1].encode())


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _default(said: Any) -> str:
    if isinstance(said, bytes):
        return said.decode(errors="backslashreplace")
    try:
        return str(int(said, 0))
    except (TypeError, ValueError):
        return str(said)


def _set(options: Any, name: list[str], said: Any) -> None:
    """Set an option that Protobuf itself has, by one plain value."""
    for part in name[:-1]:
        inner = options.DESCRIPTOR.fields_by_name.get(part)
        if inner is None or inner.message_type is None or inner.is_repeated:
            return
        options = getattr(options, part)
    field = options.DESCRIPTOR.fields_by_name.get(name[-1])
    if field is None or said is None or field.is_repeated or field.message_type is not None:
        return
    if field.enum_type is not None:
        value: Any = field.enum_type.values_by_name.get(said)
        value = None if value is None else value.number
    elif field.type == _F.TYPE_BOOL:
        value = said == "true"
    elif field.type == _F.TYPE_STRING and isinstance(said, bytes):
        value = said.decode(errors="replace")
    else:
        return
    if value is not None:
        setattr(options, name[-1], value)
