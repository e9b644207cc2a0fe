"""Everything that the system stores about one person, as JSON values."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.orders.models import (
    CodeUse,
    Invoice,
    Order,
    OrderHistoryEntry,
    OrganizerMessage,
    Payment,
    ProviderMessage,
    Refund,
    Ticket,
    TicketTransfer,
)
from apps.orders.privacy.person import (
    Person,
    documents_in_orders_of_others,
    history_in_orders_of_others,
    own_entries,
)
from apps.orders.selectors import OrderView, find_orders
from apps.queue import facade as queue
from apps.reservations import facade as reservations

ORDERS_IN_A_BATCH = 100
_Rows = dict[UUID, list[dict[str, Any]]]


def export_person(person: Person) -> dict[str, Any]:
    """Return accounts, orders, reservations and queue entries of the person.

    An entry's other orders, with another address, are not exported: browsers are shared. Of an order that only has one
    of the addresses, the rest of its entry may be another person's: its reservation and its number are exported, but no
    other reservation, nor what staff wrote about the entry. Of an order that staff gave to this person, reservation and
    entry are about the former owner.
    """
    own = own_entries(person)
    by_address = Order.objects.filter(person.own_orders, is_handed_over=False).exclude(entry__in=own)
    found = by_address.order_by("pk").values_list("entry_id", "reservation_id")
    other_entries, other_reservations = {entry for entry, _ in found}, [reservation for _, reservation in found]
    return {
        "emails": sorted(person.emails),
        "exported_at": clock.iso(clock.now()),
        "accounts": [
            accounts.export_account(account_id) | {"memberships": events.list_memberships(account_id)}
            for account_id in sorted(person.account_ids)
        ],
        "orders": _orders(Order.objects.filter(person.own_orders)),
        "reservations": reservations.export_reservations(own, other_reservations),
        "queue_entries": queue.export_entries(own) + queue.export_numbers(sorted(other_entries)),
        "recent_searches": events.export_searches(person.account_ids),
        "sign_ups": queue.export_sign_ups(person.account_ids),
        "tickets_from_others": _received(TicketTransfer.objects.filter(email__in=person.emails)),
        "documents_in_orders_of_others": [
            invoice.paper | {"number": invoice.number}
            for invoice in documents_in_orders_of_others(person).order_by("pk")
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


def _received(transfers: QuerySet[TicketTransfer]) -> list[dict[str, Any]]:
    """Return offers to this person, without the orders that they come from."""
    # The latest ticket of a transfer replaces its earlier ones.
    names = dict(Ticket.objects.filter(transfer__in=transfers).order_by("pk").values_list("transfer", "holder"))
    return [
        {
            "event": transfer.ticket.order.event.slug,
            "ticket": transfer.ticket.label,
            "name": names.get(transfer.pk, ""),
            "offered_at": _iso(transfer.offered_at),
            "accepted_at": _iso(transfer.accepted_at),
        }
        for transfer in transfers.select_related("ticket__order__event").order_by("offered_at", "pk")
    ]


def _orders(orders: QuerySet[Order]) -> list[dict[str, Any]]:
    """Return these orders, oldest first, read in batches: each batch takes the same number of statements."""
    ids = list(orders.order_by("placed_at", "pk").values_list("pk", flat=True))
    batches = (ids[begin : begin + ORDERS_IN_A_BATCH] for begin in range(0, len(ids), ORDERS_IN_A_BATCH))
    return [exported for batch in batches for exported in _read_batch(batch)]


def _read_batch(ids: list[UUID]) -> list[dict[str, Any]]:
    views, orders = find_orders(ids), Order.objects.in_bulk(ids)
    tickets = Ticket.objects.filter(order__in=ids)
    own_codes = set(tickets.filter(transfer=None).values_list("code", flat=True))
    codes = _grouped(CodeUse.objects.filter(order__in=ids), ("code__code", "email"))
    payments = _grouped(Payment.objects.filter(order__in=ids), _PAYMENT_FIELDS)
    refunds = _grouped(Refund.objects.filter(order__in=ids), _REFUND_FIELDS)
    # An invoice keeps its buyer: those of an order that staff gave to this person are about the former owner.
    invoices = _grouped(Invoice.objects.filter(order__in=ids, order__is_handed_over=False), ("paper", "number"))
    check_ins = _grouped(tickets.filter(checked_in_at__isnull=False), ("label", "checked_in_at"))
    # What happened while the order had another address is about another person.
    own_history = OrderHistoryEntry.objects.filter(Q(address="") | Q(address=F("order__email")), order__in=ids)
    history = _grouped(own_history, ("at", "kind", "text", "address"))
    messages = _grouped(
        _since_correction(OrganizerMessage.objects.filter(order__in=ids), "order", "created_at"),
        ("kind", "created_at", "body"),
    )
    payloads = _grouped(
        _since_correction(ProviderMessage.objects.filter(payment__order__in=ids), "payment__order", "received_at"),
        ("kind", "received_at", "raw"),
        order="payment__order",
    )
    return [
        _own_fields(views[order_id], orders[order_id])
        | {
            "promo_codes": [{"code": use["code__code"], "email": use["email"]} for use in codes[order_id]],
            "payments": payments[order_id],
            "refund_records": refunds[order_id],
            "documents": [invoice["paper"] | {"number": invoice["number"]} for invoice in invoices[order_id]],
            "check_ins": [
                {"ticket": ticket["label"], "checked_in_at": ticket["checked_in_at"]} for ticket in check_ins[order_id]
            ],
            "history": history[order_id],
            "messages_to_organizers": _without_codes_of_others(messages[order_id], own_codes),
            "messages_of_providers": [
                {
                    "kind": message["kind"],
                    "received_at": message["received_at"],
                    "payload": bytes(message["raw"]).decode(errors="replace"),
                }
                for message in payloads[order_id]
            ],
        }
        for order_id in ids
        if order_id in views and order_id in orders
    ]


def _since_correction(rows: QuerySet[Any], order: str, at: str) -> QuerySet[Any]:
    """Return those of the rows that are later than the last correction of their order from another address."""
    corrections = OrderHistoryEntry.objects.filter(order=OuterRef(order), kind=OrderHistoryEntry.Kind.CORRECTED)
    latest = corrections.exclude(address=OuterRef(f"{order}__email")).order_by("-at").values("at")[:1]
    return rows.annotate(corrected_at=Subquery(latest)).filter(
        Q(corrected_at=None) | Q(**{f"{at}__gte": F("corrected_at")})
    )


def _own_fields(view: OrderView, order: Order) -> dict[str, Any]:
    return {
        **view.contract(),
        "account": order.account_id,
        "buyer": order.buyer,
        "tickets_sent_at": _iso(order.tickets_sent_at),
        "terms_version": order.terms_version,
        "terms_accepted_at": _iso(order.terms_accepted_at),
    }


def _without_codes_of_others(messages: Iterable[dict[str, Any]], own_codes: set[str]) -> list[dict[str, Any]]:
    """Return the messages about an order without the codes and names of tickets that were passed on: these belong to
    the recipients, whose codes admit."""
    found = []
    for message in messages:
        tickets = [
            ticket if ticket.get("code") in own_codes else {**ticket, "code": "", "holder": ""}
            for ticket in message["body"].get("tickets", ())
        ]
        found.append({**message, "body": {**message["body"], "tickets": tickets}})
    return found


_PAYMENT_FIELDS = ("provider", "method", "reference", "status", "amount_minor", "captured_minor", "created_at")
_REFUND_FIELDS = ("amount_minor", "status", "reason", "requested_by", "requested_at", "paid_out_note")


def _grouped(rows: QuerySet[Any], names: Sequence[str], *, order: str = "order") -> _Rows:
    """Return these columns of the rows by the order's id, the oldest row first."""
    grouped: _Rows = defaultdict(list)
    for order_id, *columns in rows.order_by("pk").values_list(order, *names):
        row = zip(names, columns, strict=True)
        grouped[order_id].append({name: _iso(value) if isinstance(value, datetime) else value for name, value in row})
    return grouped


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else clock.iso(moment)
