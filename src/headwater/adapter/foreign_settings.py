"""Variables of PostgreSQL's that nobody acts on here: known, checked, remembered, shown.

Clients set them unasked (``SET jit = off``, ``SET enable_seqscan = on``) and would fail without.
Which there are, and what they may be, the shadow knows: a value is tried there first.

Nothing is accepted and ignored. What a value asks for is so anyway (:data:`HOLDS` says of which
variables, and why), or the value is the one that the variable has; any other is refused. A name
with a point in it is the client's own, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.adapter.catalog_queries import CatalogQueries
from headwater.adapter.errors import Unsupported
from headwater.adapter.setting_errors import NotHonoured, UnknownSetting
from headwater.adapter.shadow.errors import PostgresRejected

_UNKNOWN: Final = "42704"

HOLDS: Final = {
    "It says how PostgreSQL makes its plans. No answer depends on it.": (
        *("enable_", "geqo", "geqo_", "jit", "jit_", "cpu_"),
        *("parallel_", "min_parallel_", "max_parallel_"),
        *("seq_page_cost", "random_page_cost", "effective_", "from_collapse_limit"),
        *("join_collapse_limit", "cursor_tuple_fraction", "constraint_exclusion"),
        *("plan_cache_mode", "default_statistics_target", "recursive_worktable_factor"),
        *("debug_parallel_query", "stats_fetch_consistency"),
    ),
    "It bounds what PostgreSQL's own process uses. Ours is bounded by the server's settings.": (
        *("work_mem", "maintenance_", "hash_mem_multiplier", "temp_buffers", "gin_"),
        *("logical_decoding_work_mem", "backend_flush_after", "io_combine_limit"),
        *("commit_siblings", "wal_skip_threshold"),
    ),
    "It says how PostgreSQL tidies its tables up. Ours are tidied without it.": ("vacuum_",),
    "What is acknowledged is durable here, so whatever is asked for is so.": (
        "synchronous_commit",
    ),
    "No function is defined here whose body it could be about.": ("check_function_bodies",),
    "Nothing is warned of that it could be about.": ("escape_string_warning",),
    "A read never waits for a write, nor is it refused, so none has to be put off.": (
        *("default_transaction_deferrable", "transaction_deferrable"),
    ),
    "A client that is gone is noticed at once.": ("client_connection_check_interval",),
}
"""Why a variable may have any value: names, or what they begin with where that ends with ``_``."""

_LISTED: Final = (
    "SELECT coalesce((SELECT name FROM pg_catalog.pg_settings WHERE lower(name) = lower($1)), '')"
)
"""Which are somebody's here; ``shadow/numbers.py`` says."""

_NAMES: Final = tuple(name for names in HOLDS.values() for name in names)


def holds(name: str) -> bool:
    """Whether what a variable asks for is so, whatever its value."""
    return any(name == each or (each[-1:] == "_" and name.startswith(each)) for each in _NAMES)


class ForeignSettings:
    """Which there are, and what they may be; what is set the session keeps."""

    def __init__(self, queries: CatalogQueries | None) -> None:
        self._queries = queries

    def show(self, name: str, assigned: Mapping[str, str]) -> str:
        """The value of a variable, beside those that are set."""
        if name in assigned:
            return assigned[name]
        value = self._ask("SELECT current_setting($1)", name)
        if "." in name:
            return value
        if not self._ask(_LISTED, name):
            raise Unsupported(
                f'parameter "{name}"',
                detail="It is one of how a PostgreSQL is run, and this is none.",
                hint="SHOW ALL lists those there are.",
            )
        return value

    def accepted(self, name: str, value: str | None, assigned: Mapping[str, str]) -> str | None:
        """A value as PostgreSQL takes it; None restores what it was."""
        if value is None:
            self.show(name, assigned)  # Refused if there is no such variable.
            return None
        written = value.strip().strip("'")
        if "." in name or holds(name):
            return self._ask("SELECT set_config($1, $2, true)", name, written)
        stays = self.show(name, {})
        # Compared as PostgreSQL writes it.
        found = self._ask("SELECT set_config($1, $2, true)", name, written)
        if found != stays:
            raise NotHonoured(name, written, stays or "''")
        return None

    def _ask(self, text: str, *parameters: str) -> str:
        if self._queries is None:
            raise UnknownSetting(parameters[0])
        try:
            ((value,),) = self._queries.rows(text, *parameters)
        except PostgresRejected as error:
            if error.sqlstate == _UNKNOWN:
                raise UnknownSetting(parameters[0]) from error
            raise
        return value or ""
