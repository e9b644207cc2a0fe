"""Everything that the system stores about one person, as JSON values."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.orders.models import (
    CodeUse,
    Order,
    OrderHistoryEntry,
    OrganizerMessage,
    Payment,
    ProviderMessage,
    Refund,
    Ticket,
    TicketTransfer,
)
from apps.orders.privacy.person import Person, entries_of, history_in_orders_of_others
from apps.orders.selectors import get_order
from apps.queue import facade as queue
from apps.reservations import facade as reservations


def export_person(person: Person) -> dict[str, Any]:
    """Return accounts, orders, reservations and queue entries of the person.

    An entry's other orders, with another address, are not exported: browsers are shared.
    """
    entry_ids = entries_of(person)
    orders = Order.objects.filter(person.own_orders).order_by("placed_at")
    return {
        "emails": sorted(person.emails),
        "exported_at": clock.iso(clock.now()),
        "accounts": [
            accounts.export_account(account_id) | {"memberships": events.list_memberships(account_id)}
            for account_id in sorted(person.account_ids)
        ],
        "orders": [_order(order) for order in orders],
        "reservations": reservations.export_reservations(entry_ids),
        "queue_entries": queue.export_entries(entry_ids),
        "recent_searches": events.export_searches(person.account_ids),
        "sign_ups": queue.export_sign_ups(person.account_ids),
        "tickets_from_others": [
            _received(transfer)
            for transfer in TicketTransfer.objects.filter(email__in=person.emails)
            .select_related("ticket__order")
            .order_by("offered_at", "pk")
        ],
        "history_in_orders_of_others": [
            _former(entry)
            for entry in history_in_orders_of_others(person).select_related("order__event").order_by("at", "pk")
        ],
    }


def _former(entry: OrderHistoryEntry) -> dict[str, Any]:
    """Return an entry with the person's address without its order, and without the reason of a correction: both are
    about another person."""
    is_mail = entry.kind == OrderHistoryEntry.Kind.MAIL
    return {
        "event": entry.order.event.slug,
        "at": _iso(entry.at),
        "kind": entry.kind,
        "text": entry.text if is_mail else "",
        "address": entry.address,
    }


def _received(transfer: TicketTransfer) -> dict[str, Any]:
    """Return an offer to this person, without the order that it comes from."""
    names = Ticket.objects.filter(transfer=transfer).order_by("-pk").values_list("holder", flat=True)
    return {
        "event": events.get_event_by_id(transfer.ticket.order.event_id).slug,
        "ticket": transfer.ticket.label,
        "name": next(iter(names[:1]), ""),
        "offered_at": _iso(transfer.offered_at),
        "accepted_at": _iso(transfer.accepted_at),
    }


def _messages_to_organizers(order: Order) -> list[dict[str, Any]]:
    """Return the messages about the order, without the codes and names of tickets that were passed on: these belong to
    the recipients, whose codes admit."""
    own = set(Ticket.objects.filter(order=order, transfer=None).values_list("code", flat=True))
    found = _rows(OrganizerMessage.objects.filter(order=order), ("kind", "created_at", "body"))
    for message in found:
        tickets = [
            ticket if ticket.get("code") in own else {**ticket, "code": "", "holder": ""}
            for ticket in message["body"].get("tickets", ())
        ]
        message["body"] = {**message["body"], "tickets": tickets}
    return found


def _order(order: Order) -> dict[str, Any]:
    codes = CodeUse.objects.filter(order=order).values_list("code__code", "email")
    return {
        **get_order(order.pk).contract(),
        "account": order.account_id,
        "buyer": order.buyer,
        "tickets_sent_at": _iso(order.tickets_sent_at),
        "terms_version": order.terms_version,
        "terms_accepted_at": _iso(order.terms_accepted_at),
        "promo_codes": [{"code": code, "email": email} for code, email in codes],
        "payments": _rows(Payment.objects.filter(order=order), _PAYMENT_FIELDS),
        "refund_records": _rows(Refund.objects.filter(order=order), _REFUND_FIELDS),
        "documents": [invoice.paper | {"number": invoice.number} for invoice in order.invoices.order_by("id")],
        "check_ins": [
            {"ticket": ticket.label, "checked_in_at": _iso(ticket.checked_in_at)}
            for ticket in Ticket.objects.filter(order=order, checked_in_at__isnull=False)
        ],
        "history": _rows(OrderHistoryEntry.objects.filter(order=order), ("at", "kind", "text", "address")),
        "messages_to_organizers": _messages_to_organizers(order),
        "messages_of_providers": [
            {
                "kind": message.kind,
                "received_at": _iso(message.received_at),
                "payload": bytes(message.raw).decode(errors="replace"),
            }
            for message in ProviderMessage.objects.filter(payment__order=order).order_by("id")
        ],
    }


_PAYMENT_FIELDS = ("provider", "method", "reference", "status", "amount_minor", "captured_minor", "created_at")
_REFUND_FIELDS = ("amount_minor", "status", "reason", "requested_by", "requested_at", "paid_out_note")


def _rows(rows: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {name: _iso(value) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows.order_by("pk").values(*names)
    ]


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else clock.iso(moment)
