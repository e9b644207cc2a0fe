from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.chaos.orders.harness import OpenHouse


@pytest.fixture
def open_house(settings: Any, monkeypatch: pytest.MonkeyPatch) -> "OpenHouse":
    """Opens a house with so many seats, whose money the provider `books` takes: `open_house(seats, prices=None)`."""
    from apps.orders import comparing, documents, event_canceling, providers
    from apps.orders.organizers import webhooks
    from tests.chaos.orders.books import NAME, Books
    from tests.chaos.orders.harness import House
    from tests.chaos.orders.organizers import Organizer
    from ticketing.kernel import outbound
    from ticketing.kernel.outbox import facade

    books, organizer = Books(), Organizer()
    settings.PAYMENT_PROVIDER = NAME
    monkeypatch.setitem(providers._makers, NAME, lambda: books)
    monkeypatch.setattr(comparing, "NAMES", (NAME,))
    monkeypatch.setattr(outbound, "post", organizer.post)
    monkeypatch.setattr(webhooks, "_rests_until", {})
    # Whoever delivers here is called by name; and what tickets look like is drawn, at some cost, by other tests.
    monkeypatch.setattr(facade, "_wake", [])
    monkeypatch.setattr(documents, "tickets_pdf", lambda order: b"%PDF")
    # What caches may still let through does not come here: all holds go to the ledger.
    monkeypatch.setattr(event_canceling, "STRAGGLERS_SECONDS", 0)
    return lambda seats, prices=None: House(books, organizer, seats, prices)
