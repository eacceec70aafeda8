"""What every test run has in common: Hypothesis profiles, and what may skip.

In CI (``CI=true``) a skipped test fails the run unless its reason speaks of Kafka, whose broker
only Maven has: a suite that quietly stops testing is worse than one that fails.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.order import place_of
from tests.seeds import leave_out_soak

# No deadline: a slow machine is not a wrong answer. The blob reproduces a failure anywhere.
PATIENT = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", PATIENT, max_examples=30)
settings.register_profile("ci", PATIENT, max_examples=30)
settings.register_profile("nightly", PATIENT, max_examples=5_000)

# A test's JVM is young when it ends: most of its processor time went into optimizing what was not
# run often enough to pay for it, and into a garbage collector made for many processors. Without
# that optimizing Java has room for 48 MiB of compiled code, which a session of Spark's fills in a
# minute: from then on it threw away what it had compiled, and compiled it again.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
)

MAY_BE_MISSING = "kafka"
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev"))


def pytest_configure(config: pytest.Config) -> None:
    """Collect the seeds of the soak only where they may run."""
    if "not soak" in config.getoption("markexpr"):
        leave_out_soak()
    gc.disable()  # What is imported and collected stays; there is nothing to find in it.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long files first."""
    items.sort(key=lambda item: place_of(item.nodeid))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays until the end: every module and every test."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def sqlite_without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SQLite endpoints survive a crash of the process, and no loss of power: it is quicker."""
    from headwater.materialize.drivers.sqlite import SqliteDriver

    connect = SqliteDriver._connect

    def without_fsync(self: SqliteDriver, config: Mapping[str, Any]) -> None:
        connect(self, config)
        self._open_db.execute("PRAGMA synchronous = OFF")

    monkeypatch.setattr(SqliteDriver, "_connect", without_fsync)


def _forbidden_skips(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not IN_CI:
        return []
    # A skip's longrepr is (path, line, reason), also when it comes from another process.
    reasons = ((r.nodeid, str(r.longrepr)) for r in reporter.stats.get("skipped", []))
    return [f"{test}: {reason}" for test, reason in reasons if MAY_BE_MISSING not in reason.lower()]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a CI run that skipped what it must not."""
    if _forbidden_skips(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which skips failed the run."""
    skips = _forbidden_skips(config)
    if skips:
        terminalreporter.section("skipped, which CI does not permit", red=True)
        for skip in skips:
            terminalreporter.line(skip)
