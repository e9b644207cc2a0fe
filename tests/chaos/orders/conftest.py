from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.chaos.harness import OpenHouse


@pytest.fixture
def open_house(settings: Any, monkeypatch: pytest.MonkeyPatch) -> "OpenHouse":
    """Opens a house with so many seats, whose money the provider `books` takes: `open_house(seats, prices=None)`."""
    from apps.kernel import safe_http
    from apps.kernel.outbox import facade
    from apps.orders.cancellation import event_cancellation
    from apps.orders.payments import providers
    from apps.orders.provider_sync import daily_comparison
    from apps.orders.tickets import ticket_pdf
    from apps.orders.webhooks import delivery
    from tests.support.chaos.harness import House
    from tests.support.chaos.provider_ledger import NAME, Books
    from tests.support.chaos.webhook_receiver import Organizer

    books, organizer = Books(), Organizer()
    settings.PAYMENT_PROVIDER = NAME
    monkeypatch.setitem(providers._makers, NAME, lambda: books)
    monkeypatch.setattr(daily_comparison, "NAMES", (NAME,))
    monkeypatch.setattr(safe_http, "request", organizer.request)
    monkeypatch.setattr(delivery, "_paused_until", {})
    # Whoever delivers here is called by name; and what tickets look like is drawn, at some cost, by other tests.
    monkeypatch.setattr(facade, "_wake", [])
    monkeypatch.setattr(ticket_pdf, "tickets_pdf", lambda order: b"%PDF")
    # What caches may still let through does not come here: all holds go to the ledger.
    monkeypatch.setattr(event_cancellation, "STALE_CACHE_SECONDS", 0)
    return lambda seats, prices=None: House(books, organizer, seats, prices)
