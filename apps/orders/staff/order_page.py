"""The staff page of one order: what staff can do with it, and its whole history."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel.admin_actions import describe_problem
from apps.kernel.admin_lists import format_count
from apps.kernel.http import problems
from apps.orders import mail, organizer_mails, topics
from apps.orders.cancellation import order_cancellation
from apps.orders.models import Order
from apps.orders.staff.buyer_correction import WHY_LENGTH_MAX, correct_buyer
from apps.orders.staff.order_history import HistoryLine, read_history
from apps.orders.tickets import reissue

PERMISSION = "orders.change_order"
_MAIL_TOPICS = {
    "resend": topics.SEND_TICKETS_AGAIN,
    "reissue": topics.SEND_TICKETS_AGAIN,
    "refund": topics.SEND_REFUND_NOTICE,
}
"""Of the mails that an action causes."""


def page_context(order: Order) -> dict[str, Any]:
    """Return the context of the page beside that of Django's admin: the history, and which actions apply. Only for
    staff with PERMISSION at the order's event."""
    history = read_history(order.pk)
    names = _staff_names(history)
    return {
        "history": [(line, names.get(line.who, line.who)) for line in reversed(history)],
        "timezone": events.get_event_by_id(order.event_id).timezone,
        "is_standing": order.status in Order.STANDING,
        "is_open": order.status in Order.OPEN,
        "is_correctable": not order.is_erased,
        "inside_count": order.tickets.filter(voided_at=None, checked_in_at__isnull=False).count(),
        "why_length_max": WHY_LENGTH_MAX,
    }


def _staff_names(history: list[HistoryLine]) -> dict[str, str]:
    ids = {int(line.who[6:]) for line in history if line.who.startswith("staff:") and line.who[6:].isdigit()}
    rows = accounts.User.objects.filter(pk__in=ids).values_list("pk", "username") if ids else []
    return {f"staff:{pk}": name for pk, name in rows}


@require_POST
def order_action_view(request: HttpRequest, order_id: UUID) -> HttpResponse:
    """Carry out one action of the page, and return to it with the result or the refusal."""
    order = Order.objects.select_related("event").filter(pk=order_id).first()
    if order is None:
        raise Http404
    if not request.user.has_perm(PERMISSION, order.event):
        raise PermissionDenied
    accounts.require_recent_authentication(request)
    try:
        result = _apply(request, order, f"staff:{request.user.pk}")
    except problems.Problem as problem:
        messages.error(request, describe_problem(problem))
    else:
        if result:
            accounts.record_staff_action(request, f"order {order.number}: {result}")
            topic = _MAIL_TOPICS.get(request.POST.get("action", ""))
            wait = organizer_mails.describe_wait(topic, Order.objects.filter(pk=order.pk)) if topic else ""
            messages.success(request, result + wait)
        else:
            messages.warning(request, "Nothing has changed.")
    return redirect("admin:orders_order_change", order.pk)


def _apply(request: HttpRequest, order: Order, who: str) -> str:
    """Return what was done; empty for nothing."""
    match request.POST.get("action", ""):
        case "resend" if order.status in Order.STANDING:
            mail.resend_tickets(order.pk, who)
            return f"The tickets are being sent to {order.email}."
        case "reissue":
            count = reissue.reissue_order(order.pk, who)
            return f"{format_count(count, 'ticket')} got a new code, which is being sent to {order.email}."
        case "refund":
            return "The order is canceled or refunded." if order_cancellation.refund_order(order.pk, who) else ""
        case "correct":
            fields = {name: request.POST.get(name, "") for name in ("email", "name", "why")}
            changed = correct_buyer(
                order.pk, **fields, who=who, is_handed_over=request.POST.get("is_handed_over") == "on"
            )
            return f"Corrected the {changed}." if changed else ""
    return ""
