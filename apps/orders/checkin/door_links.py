"""Authorization of check-in: an account with the permission `orders.check_in` for the event, or the holder of a door
link.

The signature proves that we issued the link. Every scan reads the link's row to check that the link is still valid, so
a revocation takes effect at once.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.core.signing import BadSignature, Signer
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders.absolute_urls import absolute_url
from apps.orders.errors import CheckInForbidden
from apps.orders.models import DoorLink
from apps.queue import facade as queue

PERMISSION = "orders.check_in"
LINK_DAYS_MAX = 60
_COOKIE_PREFIX = "door-"
_links = Signer(salt="door-link")
_REFUSALS = {
    "revoked": "This door link was revoked. Ask the door manager for a new one.",
    "early": "This door link is not valid yet. Ask the door manager when it starts.",
    "expired": "This door link has expired. Ask the door manager for a new one.",
    "foreign": "This door link is for another event.",
    "damaged": "This door link is not valid. Check that you copied all of it.",
    "factor": "Staff accounts need a second factor. Add one on your account's page, or use a door link.",
    "none": "Your account cannot check in tickets. Ask the door manager for permission or for a door link.",
}


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """An authorized scanner at a door of this event. `only_own`: it can undo only its own check-ins."""

    who: str
    name: str
    door: str = ""
    only_own: bool = False


def make_link(event_id: int, *, name: str, door: str, good_from: datetime, good_until: datetime, who: str) -> DoorLink:
    """Create a link for one event and period. The form validates the values; the constraints are the last check."""
    return DoorLink.objects.create(
        event_id=event_id,
        name=name,
        door=door,
        good_from=good_from,
        good_until=good_until,
        created_by=who,
        created_at=clock.now(),
    )


def revoke_link(link_id: uuid.UUID, who: str) -> bool:
    """Revoke the link. Return False if it was revoked already."""
    found = DoorLink.objects.filter(pk=link_id, revoked_at=None)
    return found.update(revoked_at=clock.now(), revoked_by=who) == 1


def state_of(link: DoorLink, now: datetime) -> Literal["open", "revoked", "early", "expired"]:
    """Return "open" if the link authorizes check-ins at this time, else the reason why not."""
    if link.revoked_at is not None:
        return "revoked"
    if now < link.good_from:
        return "early"
    return "open" if now < link.good_until else "expired"


def link_url(link: DoorLink, event_slug: str) -> str:
    """Return the link's URL, which authorizes its holder."""
    return absolute_url(f"{reverse('orders:check_in', args=[event_slug])}?link={_key(link.pk)}")


def _key(link_id: uuid.UUID) -> str:
    return _links.sign(link_id.hex).replace(_links.sep, ".")


def _find(event: events.EventView, key: str) -> DoorLink:
    """Return the link with this key if it is open and for this event. Raises CheckInForbidden."""
    try:
        found = DoorLink.objects.filter(pk=uuid.UUID(_links.unsign(key.replace(".", _links.sep, 1)))).first()
    except (BadSignature, ValueError):
        found = None
    if found is None:
        raise CheckInForbidden(_REFUSALS["damaged"])
    state = state_of(found, clock.now()) if found.event_id == event.id else "foreign"
    if state != "open":
        raise CheckInForbidden(_REFUSALS[state])
    return found


def _cookie(event: events.EventView) -> str:
    return f"{_COOKIE_PREFIX}{event.id}"


def set_link_cookie(request: HttpRequest, response: HttpResponse, event: events.EventView, key: str) -> None:
    """Store the link's key in a cookie, so that it does not stay in the address bar. The cookie lasts as long as the
    link. Raises CheckInForbidden."""
    link = _find(event, key)
    left = max(timedelta(seconds=1), link.good_until - clock.process_now())
    response.set_cookie(
        _cookie(event), _key(link.pk), max_age=left, httponly=True, samesite="Lax", secure=request.is_secure()
    )


def delete_link_cookies(request: HttpRequest, response: HttpResponseBase) -> None:
    """Delete this browser's door links of all events."""
    for name in request.COOKIES:
        if name.startswith(_COOKIE_PREFIX):
            response.delete_cookie(name, samesite="Lax")


def authenticate_doorkeeper(request: HttpRequest, event: events.EventView) -> Doorkeeper:
    """Return the request's scanner: an account with the permission, else a door link's holder. Raises TokenMissing
    without credentials, CheckInForbidden if the credentials do not authorize check-in at this event."""
    caller = queue.authenticate(request)
    account = None if caller.account_id is None else accounts.User.objects.filter(pk=caller.account_id).first()
    if account is not None and events.is_permitted(account, PERMISSION, event):
        if accounts.lacks_required_factor(account):
            raise CheckInForbidden(_REFUSALS["factor"])
        return Doorkeeper(f"staff:{account.pk}", account.get_username())
    key = "" if "Authorization" in request.headers else request.COOKIES.get(_cookie(event), "")
    if key:
        link = _find(event, key)
        return Doorkeeper(f"link:{link.pk}", link.name, link.door, only_own=True)
    if account is None:
        raise problems.TokenMissing("Log in as staff, or open your door link.")
    raise CheckInForbidden(_REFUSALS["none"])
