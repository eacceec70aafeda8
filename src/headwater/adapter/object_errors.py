"""What can be wrong with sources, connections and secrets, and with what is made of others.

As :mod:`headwater.adapter.errors` says it.
"""

from __future__ import annotations

from headwater.adapter.errors import AdapterError


class PartOfSource(AdapterError):
    """Something that a source keeps, to be changed without it."""

    condition = "PART_OF_SOURCE"
    sqlstate = "2BP01"

    def __init__(self, name: str, source: str) -> None:
        super().__init__(
            f'"{name}" comes and goes with source "{source}"', hint=f'Name the source: "{source}".'
        )


class ReadOnlyRelation(AdapterError):
    """A write to what somebody else keeps."""

    condition = "READ_ONLY_RELATION"
    sqlstate = "42809"

    def __init__(self, kind: str, name: str) -> None:
        what = "its upstream" if kind == "source" else "its query"
        super().__init__(
            f'cannot write to {kind} "{name}"',
            detail=f"What it has is given by {what} alone.",
            hint="Write to a table.",
        )


class SecretUnreadable(AdapterError):
    """A secret that cannot be opened, or sealed."""

    condition = "SECRET_UNREADABLE"
    sqlstate = "58000"

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"a secret cannot be read or kept: {why}", hint=remedy)


class ConnectionFailed(AdapterError):
    """Somebody outside cannot be reached, or refuses us."""

    condition = "CONNECTION_FAILED"
    sqlstate = "08001"

    def __init__(self, what: str, why: str, kind: str | None) -> None:
        to = f" to {kind}" if kind else ""
        super().__init__(
            f"{what} cannot be made{to}",
            detail=why,
            hint="Check host, port, credentials, and that it is up; then VALIDATE CONNECTION.",
        )


class UnknownSchema(AdapterError):
    """No schema has this name."""

    condition = "UNDEFINED_SCHEMA"
    sqlstate = "3F000"

    def __init__(self, name: str) -> None:
        super().__init__(f'schema "{name}" does not exist', hint=f'Use CREATE SCHEMA "{name}".')


class NoSchemaToCreateIn(AdapterError):
    """A new object without a schema, and a search_path of which no schema exists."""

    condition = "UNDEFINED_SCHEMA"
    sqlstate = "3F000"

    def __init__(self) -> None:
        super().__init__(
            "no schema has been selected to create in",
            hint="Write the name with its schema, or SET search_path to one that exists.",
        )


class SourceFailed(AdapterError):
    """A read at a time that a source never gets to, unless somebody mends it."""

    condition = "SOURCE_FAILED"
    sqlstate = "55000"

    def __init__(self, source: str, why: str, newest: int) -> None:
        super().__init__(
            f'source "{source}" has failed, and what was read of it is not complete at this time',
            detail=why,
            hint=f"Mend it and ALTER SOURCE {source} RESUME, or read what there is: "
            f"AS OF {newest}, or SET transaction_isolation = serializable.",
        )


class CollectionFailed(AdapterError):
    """A collection whose rows cannot be told, because what it is made of is in error."""

    condition = "COLLECTION_HAS_ERRORS"
    sqlstate = "XX001"

    def __init__(self, collection: str, message: str) -> None:
        super().__init__(
            f'"{collection}" is in error: {message}',
            hint="Correct the rows that it is made of; that retracts the error. (What a source "
            'could not decode is in its "…_errors"; one with ON ERROR SKIP passes it over.)',
        )


class ViewStalled(AdapterError):
    """A read at a time that a view does not get to, because its step fails again and again."""

    condition = "VIEW_STALLED"
    sqlstate = "55000"

    def __init__(self, kind: str, name: str, why: str, newest: int) -> None:
        super().__init__(
            f'{kind} "{name}" is stalled, and not complete at this time',
            detail=why,
            hint="Its step is tried again by itself; hw_status tells when it goes on. "
            f"Read what there is: AS OF {newest}, or SET transaction_isolation = serializable.",
        )


class DroppedMeanwhile(AdapterError):
    """A statement that uses what was dropped while it ran."""

    condition = "OBJECT_DROPPED"
    sqlstate = "42P01"

    def __init__(self) -> None:
        super().__init__(
            "a relation that this statement uses was dropped while it ran",
            hint="Run it again: it is then told which, or finds what took its place.",
        )


class SubscribedDropped(AdapterError):
    """The end of a subscription whose relation is gone."""

    condition = "OBJECT_DROPPED"
    sqlstate = "42P01"

    def __init__(self, name: str) -> None:
        super().__init__(
            f'the subscribed relation "{name}" was dropped',
            detail="A subscription ends with what it follows, and nothing of it is left to read.",
            hint="Subscribe to another relation, or to one of that name once it is there again.",
        )


class SubscribedIndexDropped(AdapterError):
    """The end of a subscription to a plain view that was kept by an index."""

    condition = "OBJECT_DROPPED"
    sqlstate = "42P01"

    def __init__(self, view: str) -> None:
        super().__init__(
            f'the index by which "{view}" was followed was dropped',
            hint="Subscribe again: without an index the view is kept for the subscription.",
        )


class ReplacedMeanwhile(AdapterError):
    """A subscription to what is not any more what was subscribed to."""

    condition = "OBJECT_REPLACED"
    sqlstate = "55000"

    def __init__(self, name: str, begin: int, why: str) -> None:
        super().__init__(
            f'"{name}" was replaced at time {begin}, and this subscription cannot go on',
            detail=why,
            hint="Subscribe again, from its contents on.",
        )


class TransactionTooLarge(AdapterError):
    """A transaction that has written more than is kept in memory for it."""

    condition = "TRANSACTION_TOO_LARGE"
    sqlstate = "54000"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"the transaction has written more than {bytes_max >> 20} MiB",
            detail="What a transaction writes is kept in memory until it commits.",
            hint="COMMIT in between.",
        )


class NotInFrom(AdapterError):
    """A row lock of a relation that the query does not read."""

    condition = "UNDEFINED_TABLE"
    sqlstate = "42P01"

    def __init__(self, name: str) -> None:
        super().__init__(f'relation "{name}" in FOR UPDATE clause not found in FROM clause')
