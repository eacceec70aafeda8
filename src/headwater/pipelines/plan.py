"""What a run has to do with each dataset, and why: a pure decision.

    create    it is not there yet
    replace   its definition changed, or it is to be refreshed in full: computed from scratch
    rebuild   something that it reads as it is stored is computed from scratch, so it is, too
    maintain  a materialized view whose inputs changed: by what changed
    append    a streaming table or sink whose streams have news: the news are appended
    refill    a streaming table that is refreshed in full: emptied, and filled from what is there
    keep      nothing is to be done
    skip      it was not asked for

A streaming table has taken what its streams had; if such an input is computed or filled anew, what
is new about it cannot be told. So that is refused, unless the streaming table is refreshed too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from headwater.base.errors import InvalidUsage
from headwater.compute.declared.elements import OutputKind

Action = Literal["create", "replace", "rebuild", "maintain", "append", "refill", "keep", "skip"]

ANEW: Final[tuple[Action, ...]] = ("replace", "rebuild", "refill")
CHANGES: Final[tuple[Action, ...]] = ("create", "maintain", "append", *ANEW)


class CannotRun(InvalidUsage):
    """A run that cannot be done as it was asked for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A dataset as it is declared: what it reads, and what of that as a stream."""

    name: str
    kind: OutputKind
    reads: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Present:
    """A dataset as it is there: whether its definition is the one declared, and what is new.

    ``news`` says what has arrived that it does not have yet; empty: nothing.
    """

    same: bool = True
    news: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a run was asked for; nothing at all means everything."""

    refresh: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    full_all: bool = False

    def __post_init__(self) -> None:
        if self.full_all and (self.refresh or self.full):
            raise CannotRun("--full-refresh-all is everything; leave --refresh and --full-refresh")
        both = sorted(set(self.refresh) & set(self.full))
        if both:
            raise CannotRun(f"{both[0]!r} is in both --refresh and --full-refresh; choose one")

    def has(self, name: str) -> bool:
        """Whether a dataset is to be brought up to date."""
        return not (self.refresh or self.full) or name in self.refresh or name in self.full

    def anew(self, name: str) -> bool:
        """Whether it is to be computed from scratch."""
        return self.full_all or name in self.full

    def require_known(self, known: Collection[str]) -> None:
        """Refuse names that the pipeline does not have."""
        for name in (*self.refresh, *self.full):
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"perhaps {near[0]!r}" if near else f"it has {', '.join(sorted(known))}"
                raise CannotRun(f"the pipeline has no dataset {name!r}; {hint}")


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done with a dataset, and why."""

    name: str
    kind: OutputKind
    action: Action
    because: str = ""


def decided(
    wanted: Sequence[Wanted], present: Mapping[str, Present], selection: Selection
) -> tuple[Decision, ...]:
    """Return a decision for each dataset; ``wanted`` has each after what it reads."""
    selection.require_known([each.name for each in wanted])
    made: dict[str, Decision] = {}
    for each in wanted:
        action, because = _decided(each, present.get(each.name), selection, made)
        made[each.name] = Decision(each.name, each.kind, action, because)
        _require_followed(each, action, made)
        for name in each.reads:
            if action != "skip" and name not in present and _is_skipped(made.get(name)):
                raise CannotRun(
                    f"{each.name!r} reads {name!r}, which has not been made yet; refresh it, too"
                )
    return tuple(made.values())


def _is_skipped(decision: Decision | None) -> bool:
    return decision is not None and decision.action == "skip"


def _decided(
    each: Wanted, there: Present | None, selection: Selection, made: Mapping[str, Decision]
) -> tuple[Action, str]:
    view = each.kind == "materialized view"
    upstream = [made[name] for name in each.reads if name in made]
    rebuilt = [up for up in upstream if up.action in ("replace", "rebuild")]
    if there is not None and view and rebuilt:
        # Also if nobody asked for it: it reads a collection that will be gone.
        return "rebuild", f"{rebuilt[0].name} is computed from scratch"
    if not selection.has(each.name):
        return "skip", "not asked for"
    if there is None:
        return "create", "it is new"
    if selection.anew(each.name):
        return ("replace" if view else "refill"), "a full refresh was asked for"
    if not there.same:
        if not view:
            raise CannotRun(
                f"the columns of {each.kind} {each.name!r} are others than those it has; drop it "
                f"(DROP TABLE {each.name} CASCADE) and run again, or keep its columns"
            )
        return "replace", "its definition changed"
    changed = [up.name for up in upstream if up.action in CHANGES]
    if there.news or changed:
        because = there.news or f"{changed[0]} changes"
        return ("maintain" if view else "append"), because
    return "keep", "nothing changed"


def _require_followed(each: Wanted, action: Action, made: Mapping[str, Decision]) -> None:
    if action in ("create", "refill"):
        return
    for name in each.follows:
        if name in made and made[name].action in ANEW:
            raise CannotRun(
                f"{each.name!r} follows {name!r} as a stream, and {name!r} is computed from "
                f"scratch ({made[name].because}): what is new cannot be told; add --full-refresh "
                f"{each.name}"
            )
