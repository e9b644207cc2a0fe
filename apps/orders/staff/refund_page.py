"""The staff page of one order's money: return tickets, give goodwill refunds, and handle refunds that a bank
rejected."""

import re
from collections.abc import Mapping, Sequence
from uuid import UUID

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods

from apps.accounts import facade as accounts
from apps.kernel.admin_actions import describe_problem, money_amount, whole_number
from apps.kernel.admin_lists import format_count
from apps.kernel.formatting import format_money
from apps.kernel.http import problems
from apps.orders import return_quotes
from apps.orders.models import Order, PaymentDifference, Ticket
from apps.orders.payments import refunds
from apps.orders.returns import returns
from apps.orders.selectors import get_order

URL_NAME = "admin:orders_refund_desk"
PERMISSION = "orders.change_order"
_TICKET_ID = re.compile(r"[0-9]{1,18}", re.ASCII)


@require_http_methods(["GET", "HEAD", "POST"])
def refund_page_view(request: HttpRequest, order_id: UUID, site: AdminSite) -> HttpResponse:
    """Show one order's money. POST either previews the refund (action `look`) or calls a service and shows its result
    or refusal."""
    order = Order.objects.select_related("event").filter(pk=order_id).first()
    if order is None:
        raise Http404
    if not request.user.has_perm(PERMISSION, order.event):
        raise PermissionDenied
    if request.method != "POST":
        return _page(request, order_id, site)
    accounts.require_recent_authentication(request)
    try:
        result = _apply_action(order_id, request.POST, f"staff:{request.user.pk}")
    except problems.Problem as problem:
        messages.error(request, describe_problem(problem))
        return _page(request, order_id, site, status=problem.status)
    if result is None:
        return _page(request, order_id, site)
    accounts.record_staff_action(request, f"order {order_id}: {result}")
    messages.success(request, result)
    return redirect(URL_NAME, order_id)


def _apply_action(order_id: UUID, data: QueryDict, who: str) -> str | None:
    """Execute the form's action and return a message about it; None for a preview."""
    printable = "".join(letter if letter.isprintable() else " " for letter in data.get("why", ""))
    by = {"who": who, "why": " ".join(printable.split())[:200]}
    match data.get("action", ""):
        case "return":
            codes = _codes(order_id, data.getlist("ticket"))
            done = returns.return_by_staff(
                order_id,
                codes,
                set(_codes(order_id, data.getlist("fee"))),
                keep_off_sale=data.get("keep") == "yes",
                also_checked_in=data.get("inside") == "yes",
                seen_minor=_number(data, "seen"),
                **by,
            )
            return f"Returned {format_count(len(codes), 'ticket')}; refunding {_amount(order_id, done.back_minor)}."
        case "goodwill":
            order = get_order(order_id)
            amount_minor = money_amount(data, "amount", order.currency, minor_min=1, minor_max=order.total_minor)
            returns.give_goodwill(order_id, amount_minor, seen_minor=_number(data, "seen"), **by)
            return f"Refunding {_amount(order_id, amount_minor)}. The tickets stay valid."
        case "again":
            sent = refunds.retry_refund(order_id, _refund_id(data), who)
            return f"Retrying the refund of {format_money(sent.amount_minor, sent.currency)}."
        case "paid_out":
            paid = refunds.record_payout(order_id, _refund_id(data), data.get("note", ""), who)
            amount = format_money(paid.amount_minor, paid.currency)
            return f"Recorded that {amount} was paid out by other means. The order's page shows this to the buyer."
        case _:
            return None


def _page(request: HttpRequest, order_id: UUID, site: AdminSite, *, status: int = 200) -> HttpResponse:
    order = get_order(order_id)
    row = Order.objects.get(pk=order_id)
    chosen = _ids(request.POST.getlist("ticket"))
    context = {
        **site.each_context(request),
        "title": f"Refunds of order {order.number}",
        "order": order,
        "tickets": returns.list_returnable_tickets(order_id, fees_back=True) if order.is_standing else [],
        "chosen": chosen,
        "fees": _ids(request.POST.getlist("fee")) if request.method == "POST" else None,
        "given": request.POST,
        "quote": _quote(request, order_id) if status == 200 and chosen else None,
        "kept_minor": return_quotes.owed_minor(row) if order.is_standing or order.status == "refunded" else 0,
        "adjustments": row.adjustments.select_related("line"),
        "differences": PaymentDifference.objects.filter(order=row, settled_at=None),
    }
    return TemplateResponse(request, "admin/orders/refund_desk.html", context, status=status)


def _quote(request: HttpRequest, order_id: UUID) -> return_quotes.ReturnQuote | None:
    data = request.POST
    try:
        return returns.quote_for_staff(
            order_id,
            _codes(order_id, data.getlist("ticket")),
            set(_codes(order_id, data.getlist("fee"))),
            also_checked_in=data.get("inside") == "yes",
        )
    except problems.Problem as problem:
        messages.error(request, describe_problem(problem))
        return None


def _codes(order_id: UUID, given: Sequence[str]) -> list[str]:
    """Return the codes of these tickets. The page has their ids only: with a code anyone could enter, and some staff
    who refund may not see codes. Raises Invalid unless all are tickets of the order."""
    ids = _ids(given)
    codes = dict(Ticket.objects.filter(order_id=order_id, pk__in=ids).values_list("pk", "code"))
    if len(ids) != len(given) or not all(pk in codes for pk in ids):
        raise problems.Invalid({"ticket": "choose tickets of this order"})
    return [codes[pk] for pk in ids]


def _ids(given: Sequence[str]) -> list[int]:
    return [int(value) for value in given if _TICKET_ID.fullmatch(value)]


def _number(data: Mapping[str, str], name: str) -> int:
    return whole_number(data, name, "must be a whole number of the currency's smallest unit")


def _refund_id(data: Mapping[str, str]) -> UUID:
    try:
        return UUID(data.get("refund", ""))
    except ValueError as error:
        raise problems.Invalid({"refund": "is required"}) from error


def _amount(order_id: UUID, amount_minor: int) -> str:
    return format_money(amount_minor, get_order(order_id).currency)
