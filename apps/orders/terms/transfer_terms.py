"""The terms of transfers, and the transfers of orders as their buyers see them. Read only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import model_rows, sql
from apps.orders.models import Ticket, TicketTransfer

_policies = sql.load("apps.orders", "transfer_policies_of_events")
_transfers = sql.load("apps.orders", "transfers_of_orders")

TRANSFER = "transfer"
"""`Ticket.replaced_by` of a ticket that was passed on."""


@dataclass(frozen=True, slots=True)
class TransferTerms:
    """The terms under which an event's tickets may be transferred."""

    is_open: bool
    until: datetime
    per_ticket_max: int
    per_recipient_max: int

    def contract(self) -> dict[str, Any]:
        return {"open": self.is_open, "until": clock.iso(self.until)}


@dataclass(frozen=True, slots=True)
class TransferView:
    """A transfer. `state` is offered, accepted, expired, withdrawn, or void: its ticket ended before acceptance."""

    id: UUID
    email: str
    label: str
    state: str
    offered_at: datetime
    expires_at: datetime
    code: str
    """The code of the ticket that was offered."""

    def contract(self) -> dict[str, Any]:
        return {
            "transfer_id": str(self.id),
            "ticket": self.code,
            "label": self.label,
            "email": self.email,
            "state": self.state,
            "offered_at": clock.iso(self.offered_at),
            "expires_at": clock.iso(self.expires_at),
        }


def get_transfer_terms(event: events.EventView, now: datetime) -> TransferTerms | None:
    """Return the terms at this time, or None if the event allows no transfers."""
    with connection.cursor() as cursor:
        rows = _policies.rows(cursor, event_ids=[event.id])
    return read_terms([event], now, rows).get(event.id)


def terms_call(event_ids: Sequence[int]) -> sql.Call:
    """Return the statement whose rows `read_terms` reads."""
    return _policies.call(event_ids=list(event_ids))


def read_terms(
    given: Iterable[events.EventView], now: datetime, policies: Iterable[tuple[Any, ...]]
) -> dict[int, TransferTerms]:
    """Return the terms of these events at this time, by id; those that allow no transfers are omitted."""
    policy_of = {event_id: values for event_id, *values in policies}
    found = {}
    for event in given:
        if event.id in policy_of:
            until_hours, per_ticket_max, per_recipient_max = policy_of[event.id]
            until = event.starts_at - timedelta(hours=until_hours)
            is_open = now <= until and event.status == "published"
            found[event.id] = TransferTerms(is_open, until, per_ticket_max, per_recipient_max)
    return found


def transfers_call(order_ids: Sequence[UUID]) -> sql.Call:
    """Return the statement whose rows `read_transfers` reads."""
    return _transfers.call(order_ids=list(order_ids))


def read_transfers(
    rows: Iterable[tuple[Any, ...]], tickets: Iterable[Ticket], now: datetime
) -> dict[UUID, list[TransferView]]:
    """Return the transfers that the buyers of these orders have started, oldest first, by order, given all tickets of
    the orders. Those of recipients are left out: a buyer must not learn who has the ticket afterwards."""
    ticket_of = {ticket.pk: ticket for ticket in tickets}
    found: dict[UUID, list[TransferView]] = {}
    for transfer in model_rows.build_instances(TicketTransfer, rows):
        transfer.ticket = ticket_of[transfer.ticket_id]
        found.setdefault(transfer.ticket.order_id, []).append(transfer_view(transfer, now))
    return found


def transfer_view(transfer: TicketTransfer, now: datetime) -> TransferView:
    ticket = transfer.ticket
    if transfer.accepted_at is not None:
        state = "accepted"
    elif ticket.voided_at is not None:
        state = "void"
    elif transfer.ended_at is not None and transfer.ended_at < transfer.expires_at:
        state = "withdrawn"
    else:
        state = "offered" if now < transfer.expires_at else "expired"
    return TransferView(
        transfer.pk, transfer.email, ticket.label, state, transfer.offered_at, transfer.expires_at, ticket.code
    )
