"""Who may check tickets in: an account with the permission `orders.check_in`, or whoever holds a door link.

A door link's signature says that it is ours; whether it is still good stands in its row and is asked with every scan,
so that taking it back works at once.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.contrib.auth import get_user_model
from django.core.signing import BadSignature, Signer
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders.absolute_urls import absolute_url
from apps.orders.errors import CheckInForbidden
from apps.orders.models import DoorLink
from apps.queue import facade as queue

PERMISSION = "orders.check_in"
LINK_DAYS_MAX = 60
_links = Signer(salt="door-link")
_REFUSALS = {
    "revoked": "This door link was taken back. Ask whoever runs the doors for another.",
    "early": "This door link is not good yet. It says from when in the message that it came with.",
    "expired": "This door link has run out. Ask whoever runs the doors for another.",
    "foreign": "This door link is for another event.",
    "damaged": "This is no door link of ours. Look whether it was copied whole.",
    "none": "Your account may not check tickets in. Ask whoever runs the doors for the permission or a door link.",
}


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """Who stands at a door of this event. `only_own`: may take back only what the same one let in."""

    who: str
    name: str
    door: str = ""
    only_own: bool = False


def make_link(event_id: int, *, name: str, door: str, good_from: datetime, good_until: datetime, who: str) -> DoorLink:
    """A new link for one event and time. What its form allowed cannot be wrong here but for the constraints."""
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
    """The link opens nothing any more; False if it was revoked already."""
    found = DoorLink.objects.filter(pk=link_id, revoked_at=None)
    return found.update(revoked_at=clock.now(), revoked_by=who) == 1


def state_of(link: DoorLink, now: datetime) -> Literal["open", "revoked", "early", "expired"]:
    """Whether the link lets its holder check tickets in now, or why not."""
    if link.revoked_at is not None:
        return "revoked"
    if now < link.good_from:
        return "early"
    return "open" if now < link.good_until else "expired"


def link_url(link: DoorLink, event_slug: str) -> str:
    """Where the link leads: whoever has this text stands at the door."""
    return absolute_url(f"{reverse('orders:check_in', args=[event_slug])}?link={_key(link.pk)}")


def _key(link_id: uuid.UUID) -> str:
    return _links.sign(link_id.hex).replace(_links.sep, ".")


def _find(event: events.EventView, key: str) -> DoorLink:
    """The link with this key, open and of this event. Raises CheckInForbidden."""
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
    return f"door-{event.id}"


def set_link_cookie(request: HttpRequest, response: HttpResponse, event: events.EventView, key: str) -> None:
    """This browser stands at the event's door from now on, as long as the link is good; the key leaves the address
    bar. Raises CheckInForbidden."""
    link = _find(event, key)
    left = max(timedelta(seconds=1), link.good_until - clock.process_now())
    response.set_cookie(
        _cookie(event), _key(link.pk), max_age=left, httponly=True, samesite="Lax", secure=request.is_secure()
    )


def authenticate_doorkeeper(request: HttpRequest, event: events.EventView) -> Doorkeeper:
    """Whom the request speaks for at this event's door: an account that may, else a door link's holder. Raises
    TokenMissing for nobody, CheckInForbidden for somebody who may not."""
    caller = queue.authenticate(request)
    account = None if caller.account_id is None else get_user_model().objects.filter(pk=caller.account_id).first()
    if account is not None and account.has_perm(PERMISSION):
        return Doorkeeper(f"staff:{account.pk}", account.get_username())
    key = "" if "Authorization" in request.headers else request.COOKIES.get(_cookie(event), "")
    if key:
        link = _find(event, key)
        return Doorkeeper(f"link:{link.pk}", link.name, link.door, only_own=True)
    if account is None:
        raise problems.TokenMissing("Log in as staff, or open the door link that you were sent.")
    raise CheckInForbidden(_REFUSALS["none"])
