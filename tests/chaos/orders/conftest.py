from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.chaos.harness import OpenScenario


@pytest.fixture
def open_scenario(settings: Any, monkeypatch: pytest.MonkeyPatch) -> "OpenScenario":
    """Open a scenario with this number of seats, whose payments the fake provider takes: `open_scenario(seats,
    prices=None)`."""
    from apps.kernel import safe_http
    from apps.kernel.outbox import facade
    from apps.orders.cancellation import event_cancellation
    from apps.orders.payments import providers
    from apps.orders.provider_sync import daily_comparison
    from apps.orders.tickets import ticket_pdf
    from apps.orders.webhooks import delivery
    from tests.support.chaos.harness import Scenario
    from tests.support.chaos.provider_ledger import NAME, FakeProvider, read_webhook
    from tests.support.chaos.webhook_receiver import Organizer

    provider, organizer = FakeProvider(), Organizer()
    settings.PAYMENT_PROVIDER = NAME
    # All orders have one mail address, and each mail must be sent.
    settings.MAIL_PER_HOUR_MAX = settings.MAIL_PER_DAY_MAX = 0
    monkeypatch.setitem(providers._makers, NAME, lambda: provider)
    monkeypatch.setitem(providers._readers, NAME, read_webhook)
    monkeypatch.setattr(daily_comparison, "NAMES", (NAME,))
    monkeypatch.setattr(safe_http, "request", organizer.request)
    monkeypatch.setattr(delivery, "_pauses", delivery.EndpointPauses())
    # Tests deliver explicitly. The layout of tickets is tested elsewhere, since drawing them is slow.
    monkeypatch.setattr(facade, "_wake", [])
    monkeypatch.setattr(ticket_pdf, "tickets_pdf", lambda order: b"%PDF")
    # No stale cache admits requests here: all holds are decided in PostgreSQL.
    monkeypatch.setattr(event_cancellation, "STALE_CACHE_SECONDS", 0)
    return lambda seats, prices=None: Scenario(provider, organizer, seats, prices)
