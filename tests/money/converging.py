"""The oracle of every chaos run: our ledger and the provider's books tell the same story, and it has an end."""

from collections import defaultdict
from collections.abc import Mapping
from uuid import UUID

from apps.orders.models import Order, Payment, ProviderMessage, Refund, Ticket
from tests.factories import audit_breaches
from tests.money.books import Books
from ticketing.kernel.outbox.models import OutboxMessage


def assert_money_converged(books: Books, labels: Mapping[UUID, str]) -> None:
    """No ticket without money, no money without ticket or refund, no second charge kept; every order has ended or
    stands; nothing is on its way any more, nothing was given up; the auditor finds nothing. `labels` names the orders
    a reader is told of."""
    wrong = [*_orders(books, labels), *_strays(books), *_messages(), *audit_breaches()]
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])


def _orders(books: Books, labels: Mapping[UUID, str]) -> list[str]:
    wrong: list[str] = []
    payments: dict[UUID, list[Payment]] = defaultdict(list)
    for payment in Payment.objects.order_by("attempt"):
        payments[payment.order_id].append(payment)
    refunds: dict[UUID, list[Refund]] = defaultdict(list)
    for refund in Refund.objects.all():
        refunds[refund.payment_id].append(refund)
    tickets: dict[UUID, int] = defaultdict(int)
    for order_id in Ticket.objects.filter(voided_at=None).values_list("order_id", flat=True):
        tickets[order_id] += 1
    for order in Order.objects.select_related("reservation"):
        problems: list[str] = []
        kept = []
        for payment in payments[order.pk]:
            charge = books.charges.get(str(payment.pk))
            taken, left = (0, 0) if charge is None else (charge.captured_minor, charge.kept_minor)
            if payment.status == Payment.Status.PENDING and (charge is None or charge.is_settled):
                problems.append(f"attempt {payment.attempt} is still pending")
            if payment.captured_minor != taken:
                problems.append(
                    f"attempt {payment.attempt}: {taken} were taken, we know of {payment.captured_minor} "
                    f"({payment.status})"
                )
            if payment.captured_minor - payment.refunded_minor != left:
                problems.append(
                    f"attempt {payment.attempt}: the provider keeps {left}, "
                    f"by our ledger {payment.captured_minor - payment.refunded_minor}"
                )
            sent = {} if charge is None else {key: amount for key, (amount, _) in charge.refunds.items()}
            ours = {str(refund.pk): refund.amount_minor for refund in refunds[payment.pk]}
            if sent != ours:
                problems.append(f"attempt {payment.attempt}: refunds of ours {ours}, of theirs {sent}")
            problems += [
                f"refund of attempt {payment.attempt} is {refund.status}"
                for refund in refunds[payment.pk]
                if refund.status != Refund.Status.SUCCEEDED
            ]
            if left:
                kept.append(left)
        match order.status:
            case Order.Status.CONFIRMED:
                owed = [order.total_minor] if order.total_minor else []
                if kept != owed or tickets[order.pk] != order.reservation.seat_count:
                    problems.append(f"owes {owed}, kept {kept}, {tickets[order.pk]} valid tickets")
            case Order.Status.PARTLY_REFUNDED:
                if len(kept) != 1 or not 0 < kept[0] < order.total_minor or not tickets[order.pk]:
                    problems.append(f"of {order.total_minor} kept {kept}, {tickets[order.pk]} valid tickets")
            case Order.Status.REFUNDED | Order.Status.FAILED | Order.Status.CANCELED:
                if kept or tickets[order.pk]:
                    problems.append(f"kept {kept}, {tickets[order.pk]} valid tickets")
            case _:
                problems.append("has not ended")
        label = labels.get(order.pk, order.number)
        wrong += [f"{label}: {order.status} {order.reason}: {problem}" for problem in problems]
    return wrong


def _strays(books: Books) -> list[str]:
    ours = {str(pk) for pk in Payment.objects.values_list("pk", flat=True)}
    return [
        f"charge {charge.reference} is of no payment" for charge in books.charges.values() if charge.key not in ours
    ]


def _messages() -> list[str]:
    left = [
        f"outbox: {message.topic} {message.body} {'dead' if message.dead_at else 'waits'}: {message.last_error}"
        for message in OutboxMessage.objects.filter(done_at=None)
    ]
    unread = ProviderMessage.objects.filter(processed_at=None)
    return left + [f"inbox: {message} was never processed" for message in unread]
