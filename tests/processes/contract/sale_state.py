"""The state that generated calls meet: events at every stage, an account's reservations and orders, and tokens."""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from apps.accounts.tokens.account_tokens import AccessToken
from apps.events.announcements import service as announcements
from apps.events.models import Event
from apps.kernel.db import transactions
from apps.kernel.feeds import facade as feeds
from apps.orders.models import FeedKey, Order, ReturnPolicy
from apps.orders.payments.providers import sandbox
from apps.queue.identity.caller import issue_admission_token, issue_queue_token
from apps.reservations import facade as reservations
from tests.support import factories
from tests.support.orders import sale
from tests.support.orders.webhook_endpoints import make_feed_key
from tests.support.queue.lobbies import make_lobby
from tests.support.queue.rooms import join_waiting_entries, make_room

BUYERS = 150
WAITING = 40
USERNAME, PASSWORD = "contract@example.org", "a password that no list has"


def prepare() -> dict[str, Any]:
    """Create the state; return the `values` that calls name, and `tokens` by what they open."""
    concert = factories.make_event(
        "concert", rows=20, seats_per_row=20, general_admission=2_000, halls=("Hall", "Loge"), needs_access=("loge",)
    )
    factories.make_access_code(concert, "loge")
    sale.make_code(concert)
    announcements.post(concert.id, "Doors open at seven.", author="staff:1")
    busy = make_room("busy", rate=1, active=1)
    waiting = join_waiting_entries(busy, WAITING)
    lobby, entrants = make_lobby("lobby", WAITING)
    user = get_user_model().objects.create_user(USERNAME, email=USERNAME, password=PASSWORD, first_name="Ada")
    user.user_permissions.add(Permission.objects.get(codename="check_in", content_type__app_label="orders"))
    held, orders = _account_sales(user.pk)
    organizer_id = Event.objects.get(pk=concert.id).organizer_id
    feed_key, _ = make_feed_key(organizer_id=organizer_id, scopes=[str(scope) for scope in FeedKey.Scope])
    with transactions.write():
        feeds.put_feed(organizer_id, "jobs", 86_400, 1_000)
    feeds.send(organizer_id, "jobs", [feeds.NewMessage(f"known-{number}", "key", "1") for number in range(5)])
    tickets = [ticket for order in orders for ticket in order.tickets.all()]
    return {
        "tokens": {
            "account": [str(AccessToken.for_user(user))],
            "feed": [feed_key],
            "concert": [
                issue_admission_token(entry.id, concert.slug, entry.number, None)
                for entry in (factories.join(concert) for _ in range(BUYERS))
            ],
            "busy": [issue_queue_token(entry.id, busy.slug, entry.number) for entry in waiting],
            "lobby": [issue_queue_token(entry.id, lobby.slug, None) for entry in entrants],
        },
        "values": {
            "event": ["concert", "concert", "concert", "busy", "lobby", "show-0", "show-1"],
            "section": ["hall", "loge", "floor"],
            "seat": [f"hall-{row}-{number}" for row in "ABCDEFGHIJ" for number in range(1, 21)],
            "general_admission": ["floor"],
            "reservation": [str(one.id) for one in held],
            "order": [str(order.pk) for order in orders],
            "ticket": [ticket.code for ticket in tickets],
            "scan": [f"scan-{number:08}" for number in range(50)],
            "key": [f"key-{number}" for number in range(1_000)],
            "code": ["HALFPRICE", "half price", *(ticket.code for ticket in tickets)],
            "access_code": ["FANCLUB"],
            "email": ["ann@example.org", "bob@example.org"],
            "method": [sandbox.APPROVES, sandbox.DECLINES],
            "provider": [sandbox.NAME],
            "feed": ["jobs", "jobs", "more"],
            "message": [f"known-{number}" for number in range(50)],
            "username": [USERNAME],
            "password": [PASSWORD],
        },
    }


def _account_sales(account_id: int) -> tuple[list[reservations.ReservationView], list[Order]]:
    """The account's reservations and orders at several events, in every state that a buyer can bring about."""
    held, orders = [], []
    for number in range(16):
        event = factories.make_event(f"show-{number}", rows=2, general_admission=50)
        sale.make_code(event)
        ReturnPolicy.objects.create(event_id=event.id, until_hours=24)
        entry = factories.join(event, account_id=account_id)
        one = factories.hold(event, entry, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=1)
        held.append(one)
        if number % 4 == 1:
            orders.append(sale.buy(one))
        elif number % 4 == 2:
            orders.append(sale.place_order(one))
        elif number == 3:
            reservations.release(one.id, "buyer")
        elif number == 7:
            factories.backdate_deadline(one.id)
    return held, orders
