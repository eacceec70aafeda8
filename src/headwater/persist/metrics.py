"""What persist counts: every metric of the layer, in one list, one registry per runtime."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from headwater.base.retry import RetryState


class Metrics:
    """The metrics of one runtime."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        counter, one = self._counter, "headwater_persist_"
        self.requests = counter(one + "requests", "Requests resolved.")
        self.entries = counter(one + "entries", "Log entries committed by this process.")
        self.entry_bytes = counter(one + "entry_bytes", "Bytes of those entries.")
        self.races_lost = counter(one + "races_lost", "Entries another process won.")
        self.failures = counter(one + "failures", "Failures of the storage.", ["kind"])
        self.retry_attempts = self._gauge(
            one + "retry_attempts", "How often what is failing just now has failed; 0: all is well."
        )
        self.retry_next_try_ms = self._gauge(
            one + "retry_next_try_ms", "When it is tried again, in ms since the Unix epoch."
        )
        self.retry_cause = Info(
            one + "retry_cause", "Why it failed the last time.", registry=self.registry
        )
        self.merges = counter(one + "merges", "Merges applied.")
        self.merged_rows = counter(one + "merged_rows", "Updates read by merges.")
        self.collected = counter(one + "collected_objects", "Objects deleted as garbage.")
        self.rollups = counter(one + "rollups", "Rollups written.")
        self.parts_read = counter(one + "parts_read", "Parts read.")
        self.parts_skipped = counter(one + "parts_skipped", "Parts skipped by statistics.")
        self.parts_audited = counter(one + "parts_audited", "Skipped parts read to audit the skip.")
        self.cache_hits = counter(one + "cache_hits", "Segments found in the cache.")
        self.cache_misses = counter(one + "cache_misses", "Segments not found in the cache.")
        self.cache_bytes = self._gauge(one + "cache_bytes", "Bytes held by the cache.")
        self.commit_seconds = Histogram(
            one + "commit_seconds", "Submission to durability.", registry=self.registry
        )

        self.disk_full = self._gauge(one + "disk_full", "Whether there is no room to write (0, 1).")

    def _counter(self, name: str, text: str, labels: list[str] | None = None) -> Counter:
        return Counter(name, text, labels or [], registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)

    def show_retry(self, state: RetryState | None) -> None:
        """Show what is failing just now."""
        self.retry_attempts.set(0 if state is None else state.attempts)
        self.retry_next_try_ms.set(0 if state is None else state.next_try_ms)
        self.retry_cause.info({"cause": "" if state is None else state.cause})
