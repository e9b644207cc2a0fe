import pytest

PATIENT_MS = 5_000


@pytest.fixture
def long_lock_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let holds wait for locks longer than the test takes, even on a slow machine."""
    from apps.reservations.holds import service, transaction

    monkeypatch.setattr(transaction, "LOCK_WAIT_MS", PATIENT_MS)
    monkeypatch.setattr(service, "LOCK_WAIT_MS", PATIENT_MS)
