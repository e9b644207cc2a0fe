"""Reconciliation of this app: orders against reservations and money, unsettled charges and refunds, and differences
from the comparison with providers.

Reconciliation never voids a paid ticket: if a paid order has lost its seats, staff decide. A standing order without
money is canceled after one more inquiry at the provider.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import connection
from django.db.models import F, Sum

from apps.events import facade as events
from apps.kernel.checks import reconciler
from apps.kernel.checks.reconciler import GONE, REPAIRED, Difference, ManualRepairRequired
from apps.kernel.db import sql, transactions
from apps.orders import return_quotes
from apps.orders.cancellation import order_cancellation
from apps.orders.checks import invariants
from apps.orders.errors import OrderNotFound
from apps.orders.locks import lock_order, lock_order_of_reservation
from apps.orders.models import Order, Payment, PaymentDifference
from apps.orders.payments import circuit_breaker, refunds
from apps.orders.payments.providers.protocol import ProviderFault
from apps.orders.provider_sync import status_inquiries
from apps.reservations import facade as reservations

OVERDUE_SECONDS = 900
"""From this age on unsettled money is reported: the outbox and the inquiries have made many attempts by then."""
DIFFERENCES_MAX = 1_000
_overdue_money = sql.load("apps.orders", "overdue_money")

Differences = Iterator[Difference]


def register() -> None:
    """Register these checks with the reconciler. Unsettled money comes first, because inquiries about it may also
    settle differences of the later checks."""
    reconciler.register(
        "unsettled money",
        "no charge and no refund is left unsettled",
        _find_unsettled,
        _repair_unsettled,
        kinds=("unsettled_payment", "unsettled_refund"),
    )
    reconciler.register(
        "orders",
        "orders, reservations and money agree",
        _find_orders,
        _repair_order,
        kinds=("order_without_reservation", "order_without_money", "order_keeps_money", "order_money"),
    )
    reconciler.register(
        "sold without order",
        "every confirmed reservation has a standing order",
        _find_orphans,
        _repair_orphan,
        kinds=("reservation_without_order",),
    )
    reconciler.register(
        "providers",
        "the providers' books and ours agree",
        _find_provider_differences,
        kinds=tuple(PaymentDifference.Kind.values),
    )


# --- unsettled charges and refunds ----------------------------------------------------------------------------------


def _find_unsettled(part: int | None) -> Differences:
    with connection.cursor() as cursor:
        rows = _overdue_money.rows(cursor, seconds=OVERDUE_SECONDS, event_id=part, limit=DIFFERENCES_MAX)
    for kind, pk, number, seconds in rows:
        line = f"order {number}: {kind} {pk} has been unsettled for {seconds} s"
        yield Difference(f"unsettled_{kind}", line, (kind, pk))


def _repair_unsettled(difference: Difference, by: str) -> str:
    kind, pk = difference.about
    reconcile = status_inquiries.reconcile_payment if kind == "payment" else status_inquiries.reconcile_refund
    with _faults_need_staff():
        is_settled = reconcile(pk)
    if not is_settled:
        raise ManualRepairRequired("the provider has not decided yet")
    return REPAIRED


@contextmanager
def _faults_need_staff() -> Iterator[None]:
    """Wrap an inquiry: if the provider does not respond or is paused, the difference stays open for staff."""
    try:
        yield
    except ProviderFault as fault:
        raise ManualRepairRequired(f"the provider did not respond: {fault}") from fault
    except circuit_breaker.ProviderUnavailable as error:
        raise ManualRepairRequired(f"{error}; the inquiry is retried automatically") from error


# --- orders against reservations and money --------------------------------------------------------------------------


def _find_orders(part: int | None) -> Differences:
    money, statuses = invariants.find_order_mismatches(part)
    for number, status, reservation_id, reservation_status in statuses:
        line = f"order {number} is {status}, its reservation {reservation_id} is {reservation_status}"
        if status in Order.STANDING:
            yield Difference(
                "order_without_reservation", line, number, "give the buyer other seats or refund the order"
            )
    for number, status, owed_minor, kept_minor in money:
        line = f"order {number} is {status}: owed {owed_minor}, kept {kept_minor}"
        if status not in Order.STANDING and kept_minor > owed_minor:
            yield Difference("order_keeps_money", line, number)
        elif status in Order.STANDING and kept_minor == 0:
            yield Difference("order_without_money", line, number)
        else:
            yield Difference("order_money", line, number, "compare its payments and refunds with the provider")


def _repair_order(difference: Difference, by: str) -> str:
    order_id = Order.objects.filter(number=difference.about).values_list("pk", flat=True).first()
    if order_id is None:
        return GONE
    if difference.kind == "order_keeps_money":
        return _refund_excess(order_id, by)
    return _cancel_unpaid(order_id, by)


def _refund_excess(order_id: UUID, by: str) -> str:
    """Refund money that an ended order still keeps, except for the fees that a refunded order keeps."""
    with transactions.write():
        order = lock_order(order_id)
        if order.status in (*Order.STANDING, *Order.OPEN):
            return GONE
        excess_minor = _kept_minor(order)
        if order.status == Order.Status.REFUNDED:
            excess_minor -= return_quotes.owed_minor(order)
        if excess_minor <= 0:
            return GONE
        why = f"the order is {order.get_status_display()}"
        refunds.request_of_order(order, excess_minor, why, f"reconcile:{by}")
        return REPAIRED


def _kept_minor(order: Order) -> int:
    payments = Payment.objects.filter(order=order)
    return int(payments.aggregate(kept=Sum(F("captured_minor") - F("refunded_minor")))["kept"] or 0)


def _cancel_unpaid(order_id: UUID, by: str) -> str:
    """Repair a standing order without money: find its payment at the provider, or cancel the order."""
    for payment in Payment.objects.filter(order=order_id).exclude(status=Payment.Status.SUCCEEDED):
        with _faults_need_staff():
            status_inquiries.recheck_payment(payment.pk)
    with transactions.write():
        order = lock_order(order_id)
        if order.status not in Order.STANDING or _kept_minor(order):
            return GONE
        reservations.cancel(order.reservation_id, who=f"reconcile:{by}", why=f"order {order.number} was never paid")
        order_cancellation.cancel_or_refund(order, f"reconcile:{by}")
        return REPAIRED


# --- sold seats without a standing order ----------------------------------------------------------------------------


def _find_orphans(part: int | None) -> Differences:
    slugs = {view.id: view.slug for view in events.list_events()}
    for event_id, reservation_id, number, status in invariants.find_orphaned_reservations(part):
        # Only the audit reports a reservation that never had an order: no data shows whether it was paid.
        if status:
            where = slugs.get(event_id, f"event {event_id}")
            line = f"{where}: reservation {reservation_id} is confirmed; its order {number} is {status}"
            yield Difference("reservation_without_order", line, reservation_id)


def _repair_orphan(difference: Difference, by: str) -> str:
    """Release the seats that an ended order left sold."""
    reservation_id: UUID = difference.about
    with transactions.write():
        order = lock_order_of_reservation(reservation_id)
        if order is None:
            raise OrderNotFound
        if order.status in Order.OPEN:
            raise ManualRepairRequired("the order is open: its payment is being decided, or its status is wrong")
        if order.status in Order.STANDING or reservations.get_reservation(reservation_id).status != "confirmed":
            return GONE
        reservations.cancel(reservation_id, who=f"reconcile:{by}", why=f"order {order.number} is {order.status}")
        return REPAIRED


# --- differences from the comparison with providers -----------------------------------------------------------------


def _find_provider_differences(part: int | None) -> Differences:
    listed = PaymentDifference.objects.filter(settled_at=None).select_related("order").order_by("first_seen_at")
    if part is not None:
        listed = listed.filter(order__event=part)
    for difference in listed[:DIFFERENCES_MAX]:
        order = f", order {difference.order.number}" if difference.order else ""
        ours, theirs = _amount(difference.ours_minor), _amount(difference.theirs_minor)
        amounts = f"ours {ours}, theirs {theirs} {difference.currency}"
        line = f"{difference.provider} {difference.reference}{order}: {difference.get_kind_display()}; {amounts}"
        yield Difference(difference.kind, line, difference.pk, "settle it in the admin, under payment reconciliation")


def _amount(amount_minor: int | None) -> str:
    return "none" if amount_minor is None else str(amount_minor)
