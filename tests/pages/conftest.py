from typing import TYPE_CHECKING

import pytest
from django.test import Client

if TYPE_CHECKING:
    from apps.events.facade import EventView


@pytest.fixture
def concert(db: None) -> "EventView":
    """On sale: 5 rows of 10 seats in `hall`, and 20 places on the `floor`."""
    # Imported here: this file is read before Django is set up.
    from tests import factories

    return factories.make_event("concert", general_admission=20)


@pytest.fixture
def browser(db: None) -> Client:
    """A browser on our own pages, with cookies of its own."""
    return Client(headers={"sec-fetch-site": "same-origin"})


@pytest.fixture
def shopper(browser: Client, concert: "EventView") -> Client:
    """The same browser, let in to the concert."""
    response = browser.post("/events/concert/join", follow=True)
    assert response.status_code == 200
    return browser
