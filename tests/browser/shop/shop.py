"""A visitor of the shop, and the list of the states in which its pages can be."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.events import facade as events
from apps.kernel.http import problems
from apps.orders.models import Order
from apps.orders.order_pages import views as order_views
from apps.queue import facade as queue
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from tests.support import factories
from tests.support.orders.sale import place_order
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


@dataclass
class Shop:
    """A browser without cookies on the served site. Its methods make rows through the product's services."""

    page: "Page"
    site: str
    settings: Any
    patches: pytest.MonkeyPatch
    folder: Path

    def open(self, path: str, status: int = 200) -> None:
        response = self.page.goto(self.site + path)
        assert response is not None
        assert response.status == status, (path, response.status)

    def press(self, selector: str) -> None:
        """Submit a form by its button, and wait for the page that it leads to."""
        with self.page.expect_navigation():
            self.page.locator(selector).first.click()

    def post(self, path: str, **form: str) -> None:
        """Send a form without showing the answer."""
        answer = self.page.request.post(self.site + path, form=form, headers=SAME_ORIGIN)
        assert answer.ok, (path, answer.status)

    def join(self, event: events.EventView) -> queue.EntryView:
        """Join the event's line in this browser."""
        self.post(f"/events/{event.slug}/join")
        found = queue.entry_by_id(QueueEntry.objects.filter(event_id=event.id).latest("joined_at").pk)
        assert found is not None
        return found

    def hold(self, event: events.EventView, **payload: Any) -> reservations.ReservationView:
        """Reserve tickets for this browser, and show the reservation's page, which names them in its cookie."""
        entry = self.join(event)
        held = in_another_connection(lambda: factories.hold(event, entry, **payload))
        assert isinstance(held, reservations.ReservationView)
        self.open(f"/reservations/{held.id}/")
        return held

    def order(self, event: events.EventView, *, method: str = "sandbox", pays: bool = True, **payload: Any) -> Order:
        """Place an order in this browser, by default for one ticket of the floor; `pays`: and charge it."""
        payload = payload or {"ga_section": "floor", "ga_quantity": 1}
        held = self.hold(event, **payload)
        order = in_another_connection(lambda: place_order(held, method))
        assert isinstance(order, Order)
        if pays:
            deliver_everything()
        order.refresh_from_db()
        return order

    def log_in(self, user: User) -> None:
        client = Client()
        client.force_login(user)
        cookie = client.cookies[self.settings.SESSION_COOKIE_NAME]
        self.page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": self.site}])

    def refuse(self, problem: Exception) -> None:
        """Open a page whose view raises this exception."""

        def refused(*_: Any) -> Any:
            raise problem

        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(order_views.selectors, "list_orders", refused)
            self.open("/tickets/", problem.status if isinstance(problem, problems.Problem) else 500)


Arrange = Callable[[Shop], None]


@dataclass(frozen=True)
class State:
    """A page in one state. `arrange` leads a new browser to it."""

    name: str
    arrange: Arrange
    differs_on_tablets: bool
    """Whether its layout on a tablet is neither that of a phone nor that of a desktop."""


class States(list[State]):
    def add(self, *, tablet: bool = False) -> Callable[[Arrange], Arrange]:
        """Register a state, named by its function."""

        def register(arrange: Arrange) -> Arrange:
            self.append(State(arrange.__name__, arrange, tablet))
            return arrange

        return register


def deliver_everything() -> None:
    """Run the worker's deliveries: charges, then mails."""
    from apps.kernel.outbox import facade as outbox

    while in_another_connection(outbox.deliver):
        pass
