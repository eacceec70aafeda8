"""Which files are run first: those that take the longest, the longest of all before the others.

Workers take files one after the other. One that is handed a long file when the others have come to
the end of theirs works alone, for minutes, while they have nothing left to do.
"""

from __future__ import annotations

LONG = (
    "tests/spark/test_four_answers.py",
    "tests/spark/test_random_views.py",
    "tests/spark/test_never_refused.py",
    "tests/spark/test_blame.py",
    "tests/spark/test_user_functions.py",
    "tests/spark/test_view_cluster.py",
    "tests/end_to_end/test_skeleton.py",
    "tests/spark/test_catalyst_roundtrip.py",
    "tests/simulation/test_killed_nth.py",
    "tests/integration/test_materialize_sql.py",
    "tests/spark/test_recompute.py",
    "tests/spark/test_pipeline_flows.py",
    "tests/spark/test_object_store.py",
    "tests/spark/test_python_page.py",
    "tests/spark/test_programs.py",
    "tests/spark/test_bounds.py",
    "tests/spark/test_called_functions.py",
    "tests/spark/test_random_failures.py",
    "tests/spark/test_windows.py",
    "tests/spark/test_pairs.py",
    "tests/spark/test_tpch.py",
    "tests/spark/test_dialect.py",
)
"""More than some twenty seconds of processor time."""

_PLACES = {name: place for place, name in enumerate(LONG)}


def place_of(test: str) -> int:
    """Return when a test is run, by its id; those of one place as they come."""
    return _PLACES.get(test.partition("::")[0], len(LONG))
