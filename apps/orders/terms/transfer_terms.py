"""The terms of transfers, and the transfers of orders as their buyers see them. Read only."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from apps.events import facade as events
from apps.kernel import clock
from apps.orders.models import TicketTransfer, TransferPolicy

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
    policy = TransferPolicy.objects.filter(event_id=event.id).first()
    if policy is None:
        return None
    until = event.starts_at - timedelta(hours=policy.until_hours)
    is_open = now <= until and event.status == "published"
    return TransferTerms(is_open, until, policy.per_ticket_max, policy.per_recipient_max)


def transfers_of_orders(order_ids: Collection[UUID], now: datetime) -> dict[UUID, list[TransferView]]:
    """Return the transfers that the buyers of these orders have started, oldest first, by order. Those of recipients
    are left out: a buyer must not learn who has the ticket afterwards."""
    rows = TicketTransfer.objects.filter(ticket__order__in=order_ids, sequence=1).select_related("ticket")
    found: dict[UUID, list[TransferView]] = {}
    for transfer in rows.order_by("offered_at", "pk"):
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
