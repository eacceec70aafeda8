"""What one session has set: what the adapter acts on, and what it only remembers.

A variable is the adapter's own (``adapter/settings.py``) or PostgreSQL's and means nothing here
(``adapter/foreign_settings.py``). Both are set for the session or for its transaction, and both
are undone by ROLLBACK (``adapter/scoped.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headwater.adapter.catalog_queries import CatalogQueries
from headwater.adapter.foreign_settings import ForeignSettings
from headwater.adapter.scoped import Scoped
from headwater.adapter.settings import Settings, is_ours


@dataclass(frozen=True, slots=True)
class Assigned:
    """The values of a session at one moment."""

    ours: Settings = field(default_factory=Settings)
    foreign: Mapping[str, str] = field(default_factory=dict)


class SessionSettings:
    """The variables of one session."""

    def __init__(self, queries: CatalogQueries | None) -> None:
        self._foreign = ForeignSettings(queries)
        self._values = Scoped.of(Assigned())

    @property
    def now(self) -> Settings:
        """What the adapter acts on."""
        return self._values.now.ours

    def show(self, name: str) -> str:
        """The value now, as text."""
        values = self._values.now
        return values.ours.show(name) if is_ours(name) else self._foreign.show(name, values.foreign)

    def assign(self, name: str, value: str | None, *, local: bool) -> None:
        """Set; None restores its default. For the transaction only, if ``local``."""
        if is_ours(name):
            self._values = self._values.assigned(
                lambda was: replace(was, ours=was.ours.assigned(name, value)), local=local
            )
        else:
            accepted = self._foreign.accepted(name, value, self._values.now.foreign)
            self._values = self._values.assigned(
                lambda was: replace(was, foreign=_with(was.foreign, name, accepted)), local=local
            )

    def assign_read_only(self, read_only: bool) -> None:
        """Set whether transactions only read, unless they say otherwise."""
        self._values = self._values.assigned(
            lambda was: replace(was, ours=replace(was.ours, read_only=read_only))
        )

    def reset(self) -> None:
        """``RESET ALL``."""
        self._values = self._values.assigned(lambda _: Assigned())

    # ---- transactions ------------------------------------------------------------------------

    def begin(self) -> None:
        """A transaction begins."""
        self._values = self._values.begun_now()

    def end(self, *, committed: bool) -> None:
        """It has ended."""
        self._values = self._values.ended(committed=committed)

    def kept(self) -> Scoped[Assigned]:
        """What a savepoint remembers."""
        return self._values

    def back_to(self, kept: Scoped[Assigned]) -> None:
        """Go back to a savepoint."""
        self._values = self._values.back_to(kept)


def _with(values: Mapping[str, str], name: str, value: str | None) -> Mapping[str, str]:
    rest = {each: kept for each, kept in values.items() if each != name}
    return rest if value is None else {**rest, name: value}
