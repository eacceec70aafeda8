"""Who is there: sessions, and subscriptions, durable ones and those that are read just now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from headwater.adapter.system.seen import Seen
from headwater.adapter.system.system_view import Column, Row, SystemView


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _sessions(seen: Seen) -> Iterator[Row]:
    following = {each.session for each in seen.subscriptions}
    for each in seen.sessions:
        yield (
            each.id,
            None if "pid" not in each.about else int(each.about["pid"]),
            each.about.get("user"),
            each.about.get("address"),
            each.about.get("application_name") or None,
            _at(each.opened_ms),
            "subscribed" if each.id in following and each.state != "active" else each.state,
            _at(each.since_ms),
            each.statement or None,
            each.isolation,
            each.read_time,
        )


def _subscriptions(seen: Seen) -> Iterator[Row]:
    read = {each.named: each for each in seen.subscriptions if each.named is not None}
    known = {each.id: each for each in seen.objects()}
    for each in known.values():
        if each.kind == "subscription" and each.place is not None:
            reader = read.get(each.name)
            place = each.place.acknowledged
            yield (
                each.id,
                each.name,
                known[each.uses[0]].name,
                True,
                None if reader is None else reader.session,
                each.place.start,
                place,
                max(0, seen.oracle_upper - place),
            )
    for one in seen.subscriptions:
        if one.named is None:
            behind = max(0, seen.oracle_upper - one.upper)
            yield (
                f"s{one.id}", None, one.name, False, one.session, one.start, one.upper, behind
            )  # fmt: skip


VIEWS: Final = (
    SystemView(
        "hw_sessions",
        "Who is connected.",
        (
            Column("session_id", "bigint", "number of the session since this server started"),
            Column("backend_pid", "integer", "what `pg_backend_pid()` says there"),
            Column("user_name", "text", "who it is"),
            Column("client_address", "text", "from where"),
            Column("application_name", "text", "what the client calls itself"),
            Column("connected_at", "timestamptz", "since when"),
            Column("state", "text", "`active`, `idle`, `in transaction`, or `subscribed`"),
            Column("state_since", "timestamptz", "since when it is in this state"),
            Column(
                "statement",
                "text",
                "what it executes, or did last; of statements other than queries the first words",
            ),
            Column("isolation", "text", "its isolation level"),
            Column("read_time", "bigint", "the time its transaction reads at"),
        ),
        _sessions,
    ),
    SystemView(
        "hw_subscriptions",
        "Durable subscriptions, and those that are being read.",
        (
            Column("subscription_id", "text", "id; of one without a name, `s` and a number"),
            Column("name", "text", "its name; NULL: it ends with its session"),
            Column("object", "text", "what it follows"),
            Column("durable", "boolean", "whether its place is kept over restarts"),
            Column("session_id", "bigint", "who reads it now"),
            Column("start", "bigint", "the time it began at"),
            Column("progress", "bigint", "all before it was acknowledged, or sent"),
            Column("behind_ms", "bigint", "how far that is behind the timeline"),
        ),
        _subscriptions,
    ),
)
