"""The holds that the header of every page shows to their owner, found by what the browser sends.

A guest's browser names its newest reservations in a cookie, which the response to the hold sets. The cookie grants
nothing: a reservation is shown only to its account or to the browser with its visitor cookie. Scripts read the cookie,
too: a browser without it has nothing to ask for. So a hold that another client makes with the token of the browser's
queue entry is shown once a page of that event has named it.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection

from apps.events import facade as events
from apps.kernel.db import arrays, sql
from apps.kernel.http.request_types import AnyRequest, AnyResponse
from apps.queue import facade as queue
from apps.reservations.models import Reservation

COOKIE = "holds"
COOKIE_HOURS = 6  # Longer than the longest hold, with the time to pay.
NAMED_MAX = 4
"""Reservations that the cookie names, and newest reservations of an account that are considered."""
ENDED_MINUTES_MAX = 15
"""How long an expired hold is shown."""

_holds_for_header = sql.load("apps.reservations", "holds_for_header")


@dataclass(frozen=True, slots=True)
class HeldTickets:
    """A live hold, or one that expired a moment ago."""

    id: uuid.UUID
    event: events.EventView
    status: str
    """pending_payment, paying or expired."""
    count: int
    noun: str
    """seats, or tickets if some are for general admission."""
    deadline: datetime

    @property
    def is_live(self) -> bool:
        return self.status in Reservation.LIVE


class _Row(NamedTuple):
    id: uuid.UUID
    event_id: int
    status: str
    ticket_count: int
    deadline: datetime
    has_seats_only: bool
    now: datetime

    @property
    def shown_status(self) -> str:
        """The status, also before the sweep; empty if the header does not show the reservation."""
        if self.status in Reservation.LIVE and self.deadline > self.now:
            return self.status
        has_expired = self.status in (*Reservation.LIVE, Reservation.Status.EXPIRED)
        is_recent = self.now - self.deadline < timedelta(minutes=ENDED_MINUTES_MAX)
        return str(Reservation.Status.EXPIRED) if has_expired and is_recent else ""


def find_held_tickets(caller: queue.Caller, named: list[uuid.UUID]) -> list[HeldTickets]:
    """Return the caller's holds, newest first: of each event only the newest, so that a purchase after an expired hold
    hides the hold."""
    buyers = [f"visitor:{caller.visitor_id}"] if caller.visitor_id else []
    if caller.account_id is not None:
        buyers.append(f"account:{caller.account_id}")
    elif not named:
        return []
    if not buyers:
        return []
    with connection.cursor() as cursor:
        rows = _holds_for_header.rows(
            cursor,
            reservation_ids=arrays.uuids(named),
            account_id=caller.account_id,
            newest=NAMED_MAX,
            buyers=buyers,
        )
    newest: dict[int, _Row] = {}
    for row in map(_Row._make, rows):
        newest.setdefault(row.event_id, row)
    by_event = events.get_events_by_id(newest)
    return [
        HeldTickets(
            row.id,
            by_event[row.event_id],
            row.shown_status,
            row.ticket_count,
            "seats" if row.has_seats_only else "tickets",
            row.deadline,
        )
        for row in newest.values()
        if row.shown_status
    ]


def named_reservations(cookies: Mapping[str, str]) -> list[uuid.UUID]:
    """Return the reservations that the browser's cookie names; ignores what is not an id."""
    found = []
    for text in cookies.get(COOKIE, "")[: 40 * NAMED_MAX].split(".")[:NAMED_MAX]:
        try:
            found.append(uuid.UUID(hex=text))
        except ValueError:
            continue
    return found


def name_reservation_of_browser(request: AnyRequest, response: AnyResponse, reservation_id: uuid.UUID) -> None:
    """Make the cookie name this reservation first, if the call came from a browser. Other clients of the API get no
    cookie."""
    if queue.sends_visitor_cookie(request):
        name_reservation(request, response, reservation_id)


def name_reservation(request: AnyRequest, response: AnyResponse, reservation_id: uuid.UUID) -> None:
    """Make the browser's cookie name this reservation first."""
    earlier = [one for one in named_reservations(request.COOKIES) if one != reservation_id]
    keep_named(request, response, [reservation_id, *earlier])


def keep_named(request: AnyRequest, response: AnyResponse, reservation_ids: list[uuid.UUID]) -> None:
    """Make the browser's cookie name exactly these reservations; without any, delete it."""
    if not reservation_ids:
        response.delete_cookie(COOKIE, samesite="Lax")
        return
    response.set_cookie(
        COOKIE,
        ".".join(one.hex for one in reservation_ids[:NAMED_MAX]),
        max_age=timedelta(hours=COOKIE_HOURS),
        samesite="Lax",
        secure=request.is_secure(),
    )
