"""Draws by sign-up for tests, and accounts with confirmed addresses."""

from datetime import timedelta

from allauth.account.models import EmailAddress

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.events.models import OnSale
from apps.kernel import clock
from apps.queue import facade as queue
from apps.queue.entries import presale
from apps.queue.room import admission
from tests.support.accounts.credentials import PASSWORD
from tests.support.queue.lobbies import close_lobby, draw_all, make_lobby
from tests.support.queue.rooms import EPOCH


def make_account(address: str, *, confirmed: bool = True, name: str = "") -> accounts.User:
    user = accounts.User.objects.create_user(name or address, address, PASSWORD)
    EmailAddress.objects.create(user=user, email=user.email, verified=confirmed, primary=True)
    return user


def make_accounts(count: int) -> list[accounts.User]:
    return [make_account(f"person-{number}@example.org") for number in range(count)]


def make_draw(slug: str = "concert") -> events.EventView:
    """Create an event whose sign-up is open, an hour before its on-sale and half an hour before sign-up closes."""
    now = clock.now()
    rules = events.Presale("sign_up", now + timedelta(hours=3), now + timedelta(minutes=30))
    return make_lobby(slug, general_admission=20, presale=rules)[0]


def close_sign_up(event: events.EventView) -> events.EventView:
    """Move the closing of sign-up into the past; the on-sale stays upcoming."""
    closes_at = clock.now() - timedelta(seconds=1)
    OnSale.objects.filter(event_id=event.id).update(
        room_lobby_opens_at=closes_at - timedelta(hours=1), sign_up_closes_at=closes_at
    )
    return events.get_event_by_id(event.id)


def run_draw(event: events.EventView) -> events.EventView:
    """Open the on-sale, draw all numbers and admit the first entries."""
    event = close_lobby(event)
    draw_all()
    admission.tick(event.id, EPOCH)
    return event


def try_to_join(
    event: events.EventView, user: accounts.User | None, visitor_secret: str = "", address: str = "192.0.2.1"
) -> queue.EntryView:
    """Join as the views do, with this account or as a browser, from this address."""
    caller = queue.Caller(account_id=None if user is None else user.pk, visitor_id=visitor_secret)
    access = presale.get_access(event, caller, "", lambda: address)
    return queue.join(event, caller, access=access)
