"""The state machine of persist, told in directive files.

Commands are decided and applied on a pure state: no storage, no threads, no clock but ``clock``.
After *every* directive

- no invariant of the state is broken, and no frontier has moved back;
- the entry and the state survive their bytes, and the entry says the same to whoever follows;
- whatever could ever be read still reads the same (law 1), by a model that knows only the parts.

Rows are written ``name@time`` or ``name@time:diff``. ``object=KEY`` puts them into a blob object
instead of the log. Answers: the outcome, then every collection that the entry touched.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

from headwater.algebra.frontier import Frontier
from headwater.algebra.zset import Updates, ZSet
from headwater.base.errors import HeadwaterError
from headwater.base.ids import BatchId, Epoch, GlobalId, RoleName, SeqNo
from headwater.persist import commands as c
from headwater.persist import evolution
from headwater.persist.batch import Inline, Part, Segment, Times
from headwater.persist.changes import (
    Change,
    Codec,
    Entry,
    Reader,
    RolledUp,
    TimelineAdvanced,
    Writer,
)
from headwater.persist.decide import decide
from headwater.persist.decision import collection_named
from headwater.persist.encoding import decode_entry, decode_state, encode_entry, encode_state
from headwater.persist.read import parts_at
from headwater.persist.state import OWNER, CollectionState, State, apply, violations
from headwater.testing.datadriven import Directive, collect, run_file

FOLDER = Path(__file__).parent / "persist"
HORIZON = 40  # the times that the definiteness check looks at
TYPES = {"int": pa.int64(), "string": pa.string()}

Args = dict[str, str]
Rows = tuple[tuple[str, int, int], ...]


def times(text: str) -> Times:
    return Frontier.closed() if text == "closed" else Frontier.of(int(text))


def parse_rows(text: str) -> Rows:
    found = []
    for word in text.split():
        name, _, rest = word.partition("@")
        time, _, diff = rest.partition(":")
        found.append((name, int(time), int(diff or "1")))
    return tuple(found)


def schema_of(text: str) -> bytes:
    fields = []
    for column in text.split(","):
        name, _, kind = column.partition(":")
        fields.append(pa.field(name, TYPES[kind.rstrip("!")], nullable=not kind.endswith("!")))
    return evolution.to_bytes(pa.schema(fields))


def lease_of(holder: Reader | Writer) -> str:
    return f" until {holder.expires_ms}" if holder.lease_ms else ""


class Story:
    """One location, from its first entry on."""

    def __init__(self) -> None:
        self.state = State()
        self.now_ms = 1_000
        self.role = RoleName("server")
        self.objects: dict[str, bytes] = {}
        self.answers: dict[tuple[GlobalId, int], ZSet[str]] = {}
        self.tokens = 0

    # ---- directives --------------------------------------------------------------------------

    def handle(self, directive: Directive) -> str:
        special: dict[str, Callable[[Directive], str]] = {
            "clock": self._clock,
            "show": self._show,
            "read": self._read,
            "entry": self._entry,
        }
        if directive.command in special:
            return special[directive.command](directive)
        try:
            decision = decide(self.state, self._command(directive), self.now_ms)
        except HeadwaterError as error:
            return f"{type(error).__name__}: {error}"
        lines = [self._outcome(decision.outcome)]
        if not decision.changes:
            return f"{lines[0]} (nothing to log)"
        self._commit(decision.changes)
        return "\n".join([*lines, *self._touched(decision.changes)])

    def _clock(self, directive: Directive) -> str:
        self.now_ms = int(directive.args["ms"])
        return ""

    def _show(self, directive: Directive) -> str:
        what = directive.args
        lines = []
        if not what or "collections" in what:
            lines += [self._line(c) for _, c in sorted(self.state.collections.items())]
        if not what or "timelines" in what:
            for name, timeline in sorted(self.state.timelines.items()):
                apart = [self.state.collections[gid].name for gid in sorted(timeline.apart)]
                lines.append(f"timeline {name} at {timeline.upper}, apart: {apart}")
        if not what or "roles" in what:
            for role_name, role in sorted(self.state.roles.items()):
                held = f"held by {role.holder}" if role.held else "free"
                lines.append(f"role {role_name} epoch {role.epoch}, {held}")
        if "objects" in what:
            lines.append(f"referenced: {sorted(self.state.references.items())}")
            lines.append(f"garbage: {sorted(self.state.garbage)}")
            lines.append(f"rollups: {[(r.seqno, r.key) for r in self.state.rollups]}")
        if "ids" in what:
            lines.append(f"next id {self.state.next_id}, reserved {sorted(self.state.reserved)}")
            lines.append(f"graveyard: {sorted(self.state.graveyard.items())}")
        if "schemas" in what:
            for _, collection in sorted(self.state.collections.items()):
                for number, schema in enumerate(collection.schemas):
                    fields = str(evolution.from_bytes(schema)).replace("\n", ", ")
                    lines.append(
                        f"{collection.name} v{number} ({fields}) {collection.codecs[number]}"
                    )
        return "\n".join(lines)

    def _read(self, directive: Directive) -> str:
        collection = collection_named(self.state, directive.args["c"])
        found = self._at(collection, int(directive.args["as_of"]))
        return " ".join(f"{row}:{count}" for row, count in sorted(found.items())) or "nothing"

    def _entry(self, directive: Directive) -> str:
        """Give the state an entry that somebody else wrote."""
        seqno = SeqNo(self.state.seqno + int(directive.args.get("skip", "1")))
        epoch = Epoch(int(directive.args["epoch"]))
        entry = Entry(seqno, "alien", RoleName(directive.args["role"]), epoch, 0, SeqNo(-1), 0, ())
        try:
            apply(self.state, entry)
        except HeadwaterError as error:
            return f"{type(error).__name__}: {error}"
        return "accepted"

    # ---- commands ----------------------------------------------------------------------------

    def _command(self, directive: Directive) -> c.Command:
        if directive.command == "atomic":
            parts = []
            for line in directive.input.splitlines():
                command, *words = shlex.split(line)
                args = {key: value for key, _, value in (word.partition("=") for word in words)}
                parts.append(self._command(Directive(command, args, "", directive.line)))
            return c.Atomic(tuple(parts))
        simple: dict[str, Callable[[Args], c.Command]] = {
            "create": self._create,
            "destroy": lambda a: c.Destroy(a["name"]),
            "reserve": lambda _: c.ReserveId(),
            "seal": lambda a: c.Seal(self._ids(a), times(a["upper"])),
            "write": lambda a: c.Write(self._id(a), self._token(a), self._parts(a)),
            "append": lambda a: c.CompareAndAppend(
                self._id(a), self._token(a), times(a["lower"]), times(a["upper"]), self._parts(a)
            ),
            "compact": lambda a: c.AllowCompaction(
                tuple((gid, times(a["since"])) for gid in self._ids(a))
            ),
            "advance": lambda a: c.Advance(a["timeline"], int(a["upper"])),
            "merge": self._merge,
            "rollup": lambda a: c.AddRollup(SeqNo(int(a["seqno"])), a["key"]),
            "forget": lambda a: c.ForgetGarbage(tuple(a["keys"].split(","))),
            "item": lambda a: c.SetItem(a["key"], a["value"].encode() if "value" in a else None),
            **self._role_commands(),
            **self._capability_commands(),
        }
        return simple[directive.command](directive.args)

    def _role_commands(self) -> dict[str, Callable[[Args], c.Command]]:
        return {
            "acquire": lambda a: c.AcquireRole(
                RoleName(a["role"]), a["holder"], a.get("reentrance", ""), "take_over" in a
            ),
            "release": lambda a: c.ReleaseRole(RoleName(a["role"]), Epoch(int(a["epoch"]))),
            "assert": lambda a: c.AssertRole(RoleName(a["role"]), Epoch(int(a["epoch"]))),
        }

    def _capability_commands(self) -> dict[str, Callable[[Args], c.Command]]:
        def at(args: Args) -> Times | None:
            return times(args["at"]) if "at" in args else None

        def lease(args: Args) -> int:
            return int(args.get("lease", "0"))

        return {
            "open_reader": lambda a: c.OpenReader(self._id(a), a["id"], "test", at(a), lease(a)),
            "downgrade_reader": lambda a: c.DowngradeReader(self._id(a), a["id"], times(a["to"])),
            "drop_reader": lambda a: c.DropReader(self._id(a), a["id"]),
            "renew_reader": lambda a: c.RenewReader(self._id(a), a["id"]),
            "open_writer": lambda a: c.OpenWriter(self._id(a), a["id"], "test", at(a), lease(a)),
            "update": lambda a: c.UpdateAndDowngrade(
                self._id(a), a["id"], self._token(a), self._parts(a), times(a["to"])
            ),
            "downgrade_writer": lambda a: c.DowngradeWriter(self._id(a), a["id"], times(a["to"])),
            "drop_writer": lambda a: c.DropWriter(self._id(a), a["id"]),
            "retire_writer": lambda a: c.RetireWriter(self._id(a), a["id"]),
            "renew_writer": lambda a: c.RenewWriter(self._id(a), a["id"]),
        }

    def _create(self, args: Args) -> c.Command:
        codec, _, version = args.get("codec", "arrow/1").partition("/")
        return c.CreateOrLoad(
            args["name"],
            schema_of(args.get("columns", "k:string")),
            tuple(args["key"].split(",")) if "key" in args else (),
            args.get("layout", "parquet"),
            Codec(codec, int(version)),
            args.get("timeline"),
            int(args.get("start", "0")),
            "no_owner" not in args,
            GlobalId(int(args["id"])) if "id" in args else None,
        )

    def _merge(self, args: Args) -> c.Command:
        """Merge as ``persist/compact.py`` does: same denotation from ``since`` on."""
        gid, since = self._id(args), times(args["since"])
        inputs = tuple(int(number) for number in args["inputs"].split(","))
        merged: Updates[str, int] = Updates.empty()
        for batch in self.state.collections[gid].batches:
            if batch.no in inputs:
                merged += Updates.consolidate(self._rows(batch.parts))
        rows = tuple(sorted(merged.advance(since)))
        return c.ApplyMerge(gid, inputs, since, self._place(rows, args) if rows else ())

    def _ids(self, args: Args) -> tuple[GlobalId, ...]:
        return tuple(self._named(name) for name in args["c"].split(","))

    def _id(self, args: Args) -> GlobalId:
        return self._named(args["c"])

    def _named(self, name: str) -> GlobalId:
        if name.startswith("#"):
            return GlobalId(int(name[1:]))
        dead = self.state.graveyard.get(name)
        return self.state.names.get(name, GlobalId(999)) if dead is None else dead

    def _token(self, args: Args) -> BatchId:
        self.tokens += 1
        return BatchId(args.get("token", f"t{self.tokens}"))

    def _parts(self, args: Args) -> tuple[Part, ...]:
        rows = parse_rows(args.get("rows", ""))
        return self._place(rows, args) if rows else ()

    def _place(self, rows: Rows, args: Args) -> tuple[Part, ...]:
        data = "\n".join(f"{row}\t{time}\t{diff}" for row, time, diff in rows).encode()
        where: Inline | Segment = Inline(data)
        if "object" in args:
            key = args["object"]
            before = self.objects.get(key, b"")
            self.objects[key] = before + data
            where = Segment(key, len(before), len(data), xxhash.xxh3_64_intdigest(data))
        return (
            Part(
                where=where,
                layout="inline",
                schema=int(args.get("schema", "0")),
                errors=False,
                rows=len(rows),
                diff_sum=sum(diff for _, _, diff in rows),
                time_min=min(time for _, time, _ in rows),
                time_max=max(time for _, time, _ in rows),
            ),
        )

    # ---- committing, and what holds after it -------------------------------------------------

    def _commit(self, changes: tuple[Change, ...]) -> None:
        before = self.state
        role = [change for change in changes if getattr(change, "role", None) == self.role]
        epoch = role[-1].value.epoch if role else before.epoch(self.role)  # type: ignore[union-attr]
        entry = Entry(
            seqno=SeqNo(before.seqno + 1),
            nonce=f"n{before.seqno + 1}",
            role=self.role,
            epoch=epoch,
            clock_ms=max(before.clock_ms, self.now_ms),
            rollup=SeqNo(-1),
            closed_step=0,
            changes=changes,
        )
        assert decode_entry(entry.seqno, encode_entry(entry)) == entry
        self.state = apply(before, entry)
        followed = apply(
            decode_state("before", encode_state(before)),
            decode_entry(entry.seqno, encode_entry(entry)),
        )
        assert followed == self.state, "whoever loads and follows is in the same state"
        assert decode_state("after", encode_state(self.state)) == self.state
        assert encode_state(followed) == encode_state(self.state)
        assert list(violations(self.state)) == []
        self._check_frontiers(before)
        self._check_definite()

    def _check_frontiers(self, before: State) -> None:
        for gid, old in before.collections.items():
            new = self.state.collections.get(gid)
            if new is not None:
                assert old.since <= new.since, f"since of {old.name} moved back"
                assert before.upper(old) <= self.state.upper(new), f"upper of {old.name} moved back"

    def _check_definite(self) -> None:
        for gid, collection in self.state.collections.items():
            upper = self.state.upper(collection)
            for time in range(HORIZON):
                if collection.since.allows(time) and not upper.allows(time):
                    answer = self._at(collection, time)
                    first = self.answers.setdefault((gid, time), answer)
                    assert answer == first, f"{collection.name} at {time}: {first}, now {answer}"

    def _at(self, collection: CollectionState, as_of: int) -> ZSet[str]:
        return Updates.consolidate(self._rows(parts_at(collection, as_of))).at(as_of)

    def _rows(self, parts: Iterable[Part]) -> Iterable[tuple[str, int, int]]:
        for part in parts:
            match part.where:
                case Inline(data):
                    text = data.decode()
                case Segment(key, offset, length):
                    text = self.objects[key][offset : offset + length].decode()
            for line in text.splitlines():
                row, time, diff = line.split("\t")
                low, high = part.window or (0, 2**63)
                if low <= int(time) < high:
                    yield row, int(time), int(diff)

    # ---- answers -----------------------------------------------------------------------------

    def _outcome(self, outcome: c.Outcome) -> str:
        match outcome:
            case c.Created(gid) | c.Loaded(gid) | c.Reserved(gid):
                return f"{type(outcome).__name__} id {gid}"
            case c.UpperMismatch(_, expected, current):
                return f"UpperMismatch: expected {expected}, is {current}"
            case c.Held(frontier):
                return f"Held at {frontier}"
            case c.Acquired(epoch):
                return f"Acquired epoch {epoch}"
            case c.Destroyed(existed):
                return "Destroyed" if existed else "Destroyed before"
            case c.All(outcomes):
                return f"All: {', '.join(map(self._outcome, outcomes))}"
            case _:
                return type(outcome).__name__

    def _touched(self, changes: tuple[Change, ...]) -> list[str]:
        touched = {getattr(change, "id", None) for change in changes}
        for change in changes:
            if isinstance(change, TimelineAdvanced):
                members = self.state.collections.values()
                touched |= {m.id for m in members if m.timeline == change.timeline}
        lines = [
            self._line(c) for gid, c in sorted(self.state.collections.items()) if gid in touched
        ]
        lines += [f"rolled up at {c.seqno}" for c in changes if isinstance(c, RolledUp)]
        return lines

    def _line(self, collection: CollectionState) -> str:
        words = [f"{collection.name} [{collection.since}, {self.state.upper(collection)})"]
        for batch in collection.batches:
            parts = " ".join(map(self._part, batch.parts)) or "empty"
            since = "" if batch.since == Frontier.of(0) else f" since {batch.since}"
            words.append(f"#{batch.no}[{batch.lower}, {batch.upper}){since} = {parts}")
        words.extend(
            f"unsealed {unsealed.token} = {' '.join(map(self._part, unsealed.parts))}"
            for unsealed in collection.unsealed
        )
        for name, reader in sorted(collection.readers.items()):
            if name != OWNER:
                words.append(f"reader {name} at {reader.since}{lease_of(reader)}")
        for name, writer in sorted(collection.writers.items()):
            words.append(f"writer {name} at {writer.frontier}{lease_of(writer)}")
        return "\n  ".join(words)

    @staticmethod
    def _part(part: Part) -> str:
        where = "" if isinstance(part.where, Inline) else f" in {part.where.key}"
        cut = ""
        if part.window is not None:
            low, high = part.window
            cut = f" cut to [{low}, {high if high < 2**62 else 'end'})"
        return f"{part.rows} rows at {part.time_min}..{part.time_max}{cut}{where}"


@pytest.mark.parametrize("path", collect(FOLDER), ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    run_file(path, Story().handle)
