"""The figures of an event's holds and stock for the report after the sale, counted from the ledger in short reads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q

from apps.events import facade as events
from apps.kernel.checks import auditor
from apps.kernel.db import sql
from apps.reservations.models import Reservation
from apps.reservations.staff.stock_summary import read_section_stock

_PACKAGE = "apps.reservations"
_flows = sql.load(_PACKAGE, "report_flows")
_partial_returns = sql.load(_PACKAGE, "report_partial_returns")
_buyers = sql.load(_PACKAGE, "report_buyers")
_networks = sql.load(_PACKAGE, "report_networks")
_stock_acts = sql.load(_PACKAGE, "report_stock_acts")

_CONFIRMED, _CANCELED, _EXPIRED = "confirmed", "canceled", "expired"
FLOWS = ("made", "bought", "canceled", "expired", "revived", "returned")


@dataclass(slots=True)
class SaleFigures:
    """Counts up to one moment. Lists have one value for each given point in time."""

    reservations: Counter[str] = field(default_factory=Counter)
    tickets: Counter[str] = field(default_factory=Counter)
    """By what happened to them, FLOWS: holds made; bought; canceled or expired unpaid; bought although expired
    (also among the bought); returned after they were bought."""
    held_at: list[int] = field(default_factory=list)
    sold_at: list[int] = field(default_factory=list)
    """The change of the number of held and of sold tickets between the previous point in time and this one."""
    steps_at: list[int] = field(default_factory=list)
    """How many reservations changed between the two points."""
    tickets_of_buyers: dict[str, int] = field(default_factory=dict)
    """By the key of purchase caps, including tickets returned later."""
    account_buyers: int = 0
    performed: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    """Changes of the stock by kind."""


def count_sale(event: events.EventView, as_of: datetime, edges: Sequence[int]) -> SaleFigures:
    """Count the event's sale up to `as_of`. `edges` are points in time, in seconds since the opening, the last one
    after `as_of`."""
    size = len(edges)
    found = SaleFigures(held_at=[0] * size, sold_at=[0] * size, steps_at=[0] * size)
    points = {"event_id": event.id, "as_of": as_of, "opens_at": event.policy.opens_at, "edges": list(map(float, edges))}
    with_account: set[str] = set()

    def count_batch(cursor: Any, after: UUID, until: UUID) -> None:
        limits = {"after": after, "until": until}
        for at, was, now, count, tickets, unreturned in _flows.rows(cursor, **limits, **points):
            _count_step(found, at, was, now, count, tickets, unreturned)
        for at, lines, tickets in _partial_returns.rows(cursor, **limits, **points):
            found.tickets["returned"] += tickets
            found.sold_at[at] -= tickets
            found.steps_at[at] += lines
        for buyer, has_account, tickets in _buyers.rows(cursor, **limits, event_id=event.id, as_of=as_of):
            found.tickets_of_buyers[buyer] = found.tickets_of_buyers.get(buyer, 0) + tickets
            if has_account:
                with_account.add(buyer)

    auditor.scan_in_batches(Reservation.objects.filter(event_id=event.id), UUID(int=0), count_batch)
    found.account_buyers = len(with_account)
    with auditor.read_cursor() as cursor:
        for kind, is_refused, count in _stock_acts.rows(cursor, event_id=event.id, as_of=as_of):
            (found.refused if is_refused else found.performed)[kind] = count
    return found


def count_networks(event_id: int, as_of: datetime) -> dict[bytes | None, dict[str, int]]:
    """Return the tickets bought up to `as_of`, by the digest of the network and the buyer. None: not recorded."""
    found: dict[bytes | None, dict[str, int]] = {}

    def count_batch(cursor: Any, after: UUID, until: UUID) -> None:
        for buyer, network, tickets in _networks.rows(cursor, after=after, until=until, event_id=event_id, as_of=as_of):
            of_buyers = found.setdefault(None if network is None else bytes(network), {})
            of_buyers[buyer] = of_buyers.get(buyer, 0) + tickets

    auditor.scan_in_batches(Reservation.objects.filter(event_id=event_id), UUID(int=0), count_batch)
    return found


def _count_step(found: SaleFigures, at: int, was: str, now: str, count: int, tickets: int, unreturned: int) -> None:
    """Count reservations that changed from one status to another."""
    held = sold = 0
    what = ""
    if not was:
        what, held = "made", tickets
    elif was == _CONFIRMED:
        # Tickets returned before are counted at their own time.
        what, tickets, sold = "returned", unreturned, -unreturned
    elif now == _CONFIRMED:
        what, sold = "bought", tickets
        held = 0 if was == _EXPIRED else -tickets
        if was == _EXPIRED:
            found.reservations["revived"] += count
            found.tickets["revived"] += tickets
    elif now in (_CANCELED, _EXPIRED):
        what, held = now, -tickets
    if what:
        found.reservations[what] += count
        found.tickets[what] += tickets
        found.held_at[at] += held
        found.sold_at[at] += sold
        found.steps_at[at] += count


def is_settled(event_id: int, as_of: datetime) -> bool:
    """Return whether no reservation of the event is live, and none was bought or given up after `as_of`. One that was
    bought before may be returned at any time: figures as of `as_of` leave that out."""
    given_up = Q(ended_at__gt=as_of, confirmed_at__isnull=True)
    unsettled = Q(status__in=Reservation.LIVE) | Q(confirmed_at__gt=as_of) | given_up
    return not Reservation.objects.filter(unsettled, event_id=event_id).exists()


def read_stock(event_id: int) -> dict[str, int]:
    """Return the event's present capacity and blocked stock, in tickets."""
    rows = read_section_stock(event_id)
    return {"capacity": sum(row.capacity for row in rows), "blocked": sum(row.blocked for row in rows)}
