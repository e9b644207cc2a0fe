"""The statements of the pages that a buyer sees between the event's page and the payment. None is read twice."""

import re
from collections import Counter

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.events.facade import EventView, WaitingRoomSettings
from tests.support.factories import make_event

FORM = {"seats": "hall-A-1", "idempotency_key": "first"}
CLOCK = "SELECT clock_timestamp()"


def statements(browser: Client, path: str) -> Counter[str]:
    """Return the statements of the page, which is rendered, by their text without values."""
    with CaptureQueriesContext(connection) as captured:
        response = browser.get(path)
    assert response.status_code == 200
    return Counter(re.sub(r"'[^']*'|\b[0-9]+\b", "?", query["sql"]) for query in captured.captured_queries)


@pytest.mark.django_db
def test_the_pages_of_a_hold_take_few_statements(concert: EventView, shopper: Client) -> None:
    choose = statements(shopper, "/events/concert/choose")
    reservation = shopper.post("/events/concert/choose", FORM).headers["Location"]
    hold, checkout = statements(shopper, reservation), statements(shopper, f"{reservation}checkout")
    assert [page.total() for page in (choose, hold, checkout)] == [8, 6, 11]
    for page in (choose, hold, checkout):
        assert [text for text, times in page.items() if times > 1 and text != CLOCK] == []


@pytest.mark.django_db
def test_a_waiting_page_takes_few_statements(browser: Client) -> None:
    make_event("roomy", room=WaitingRoomSettings(rate_per_second=1, active_max=1))
    for visitor in (Client(headers={"sec-fetch-site": "same-origin"}), browser):
        visitor.post("/events/roomy/join", follow=True)
    assert statements(browser, "/events/roomy/wait").total() == 5
