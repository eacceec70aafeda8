"""How a Python worker ends."""

from __future__ import annotations

import pytest

from headwater.compute import worker_daemon


@pytest.mark.parametrize("gone", [BrokenPipeError, ConnectionResetError])
def test_a_worker_without_its_jvm_ends_in_silence(
    monkeypatch: pytest.MonkeyPatch, gone: type[OSError]
) -> None:
    def worker(sock: object, authenticated: bool) -> int:
        if authenticated:
            raise gone
        return 0

    monkeypatch.setattr(worker_daemon, "_worker", worker)
    assert worker_daemon._silent_worker(None, False) == 0
    assert worker_daemon._silent_worker(None, True) == 1


def test_what_else_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def worker(sock: object, authenticated: bool) -> int:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(worker_daemon, "_worker", worker)
    with pytest.raises(ValueError, match="of ours"):
        worker_daemon._silent_worker(None, True)
