"""Correction of an order's buyer by staff: another email address, another name."""

from uuid import UUID

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.form_fields.invisible_characters import KEPT, remove_invisible
from apps.kernel.http import problems
from apps.orders import organizer_mails, topics
from apps.orders.checkout.buyer_details import read_email, read_name
from apps.orders.locks import lock_order
from apps.orders.models import CodeUse, Order, OrderHistoryEntry, Ticket
from apps.orders.tickets import reissue, ticket_issuance
from apps.orders.webhooks import messages
from apps.reservations import facade as reservations

WHY_LENGTH_MAX = 160


def correct_buyer(order_id: UUID, *, email: str, name: str, why: str, who: str, is_handed_over: bool = False) -> str:
    """Change the order's address and name, and commit; return what changed, empty for nothing.

    A paid order's tickets are sent again. With another address the former one gets a notice, links mailed before stop
    working, and tickets that are not checked in get new codes: the former address may belong to a stranger, who has the
    old ones. A transferred ticket stays its recipient's, and invoices keep the buyer that they were issued to.

    `is_handed_over`: the address is another person's than that of the account and the browser that placed the order,
    which then lose it for good: only links that are mailed to the address open it. Refunds go back to the payment that
    paid the order.

    Raises OrderNotFound, Invalid, PurchaseCapReached if the new address would have too many tickets, and ReissueRefused
    if the tickets had too many codes already.
    """
    errors: dict[str, str] = {}
    email = read_email({"email": email}, errors)
    if errors:
        raise problems.Invalid(errors)
    name = read_name({"name": name})
    why = " ".join(remove_invisible(why).split())
    if not why or not all(one.isprintable() or one in KEPT for one in why) or len(why) > WHY_LENGTH_MAX:
        raise problems.Invalid({"why": f"is required, at most {WHY_LENGTH_MAX} printable characters"})
    event_id = Order.objects.filter(pk=order_id).values_list("event_id", flat=True).first()
    if event_id is not None:
        # Outside the transaction, which would make concurrent checkouts wait for the new cap row.
        reservations.prepare_payment(event_id, email, events.get_event_by_id(event_id))
    with transactions.write():
        order = lock_order(order_id)
        if order.is_erased:
            raise problems.Invalid({"order": "its buyer was erased"})
        # Not later than what the correction writes: an export tells by it what is about the former owner.
        corrected_at = clock.now()
        former, changes = order.email, []
        if name != order.name:
            changes.append("name")
            Ticket.objects.filter(order=order, transfer=None, holder=order.name, voided_at=None).update(holder=name)
            order.name = name
        if email != former:
            changes.append("email address")
            reservations.change_email(order.reservation_id, email)
            CodeUse.objects.filter(order=order).update(email=email)
            order.email = email
        if is_handed_over and not order.is_handed_over:
            changes.append("owner")
            _hand_over(order)
        if not changes:
            return ""
        if changes != ["name"]:
            if order.is_handed_over:
                order.handed_over_at = corrected_at
            _end_former_access(order, who)
        order.save(update_fields=["email", "name", "link_version", "account", "is_handed_over", "handed_over_at"])
        entry = OrderHistoryEntry.objects.create(
            order=order, kind=OrderHistoryEntry.Kind.CORRECTED, who=who, address=former, at=corrected_at,
            text=f"{' and '.join(changes)}: {why}",
        )  # fmt: skip
        if email != former:
            organizer_mails.publish(topics.SEND_CORRECTION_NOTICE, str(order.pk), {"entry": entry.pk}, order)
        if order.status in Order.STANDING:
            key = topics.tickets_key(order.pk, order.link_version, is_of_staff=True)
            organizer_mails.publish(topics.SEND_TICKETS_AGAIN, key, {"order": str(order.pk), "again": True}, order)
        return " and ".join(changes)


def _hand_over(order: Order) -> None:
    if order.status not in Order.STANDING:
        raise problems.Invalid({"order": "is not paid: only a paid order can be given to another person"})
    order.account = None
    order.is_handed_over = True


def _end_former_access(order: Order, who: str) -> None:
    """End the validity of mailed links, and replace the tickets that are not checked in."""
    order.link_version += 1
    if order.status not in Order.STANDING:
        return
    now = clock.now()
    replaced = list(
        Ticket.objects.filter(order=order, transfer=None, voided_at=None, checked_in_at=None).order_by("id")
    )
    reissue.require_room(order, len(replaced))
    for ticket in replaced:
        ticket_issuance.replace(ticket, who, now)
    if replaced:
        messages.publish_message(order, messages.Kind.TICKET_REISSUED)
