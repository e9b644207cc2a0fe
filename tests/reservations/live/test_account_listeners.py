"""Listeners of an account are disconnected once its version has risen."""

import pytest

from apps.accounts import facade as accounts
from apps.accounts.tokens import versions
from apps.kernel.push.hub import Hub
from apps.reservations.live import account_listeners
from apps.reservations.live.account_listeners import AccountListeners
from tests.kernel.push.test_hub import FakeListener, until

OLD = accounts.AccountVersion(account_id=7, version=1)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> versions._Snapshot:
    """The versions in the memory of this process."""
    snapshot = versions._Snapshot()
    monkeypatch.setattr(versions, "_snapshot", snapshot)
    monkeypatch.setattr(account_listeners, "CHECK_SECONDS", 0.0)
    return snapshot


async def test_only_listeners_of_earlier_versions_end(known: versions._Snapshot) -> None:
    hub, ending, other, newer = Hub(), FakeListener(), FakeListener(), FakeListener()
    listeners = AccountListeners(hub)
    for listener, version in ((ending, OLD), (other, OLD._replace(account_id=8)), (newer, OLD._replace(version=2))):
        hub.listen(listener, ["order:1"])
        listeners.add(listener, version)
    known.versions[7] = 2
    known.revision += 1
    await until(lambda: ending.is_gone)
    assert len(ending.closings) == 1
    assert not other.is_gone
    assert not newer.is_gone
    await hub.close()


async def test_a_version_that_rose_during_the_authentication_ends_the_listener_at_once(
    known: versions._Snapshot,
) -> None:
    hub, listener = Hub(), FakeListener()
    listeners = AccountListeners(hub)
    known.versions[7] = 2
    hub.listen(listener, ["event:1"])
    listeners.add(listener, OLD)
    hub.listen(listener, ["order:1"])
    assert listener.is_gone
    assert not hub.has_listeners("order:1")
    await hub.close()
