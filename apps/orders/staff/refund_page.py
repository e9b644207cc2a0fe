"""The staff's page of one order's money: which tickets to give back, what that comes to, goodwill, and refunds that a
bank has refused."""

from collections.abc import Mapping
from uuid import UUID

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods

from apps.kernel.admin_actions import describe_problem, whole_number
from apps.kernel.formatting import format_money
from apps.kernel.http import problems
from apps.orders import return_quotes
from apps.orders.errors import OrderNotFound
from apps.orders.models import Order, PaymentDifference
from apps.orders.payments import refunds
from apps.orders.returns import returns
from apps.orders.selectors import get_order

URL_NAME = "admin:orders_refund_desk"
PERMISSION = "orders.change_order"


@require_http_methods(["GET", "HEAD", "POST"])
def refund_page_view(request: HttpRequest, order_id: UUID, site: AdminSite) -> HttpResponse:
    """One order. What is sent is first said (`look`), then done by a service; what is refused is told."""
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    if not Order.objects.filter(pk=order_id).exists():
        raise Http404
    if request.method != "POST":
        return _page(request, order_id, site)
    try:
        said = _apply_action(order_id, request.POST, f"staff:{request.user.pk}")
    except problems.Problem as problem:
        messages.error(request, describe_problem(problem))
        return _page(request, order_id, site, status=problem.status)
    if said is None:
        return _page(request, order_id, site)
    messages.success(request, said)
    return redirect(URL_NAME, order_id)


def _apply_action(order_id: UUID, given: QueryDict, who: str) -> str | None:
    """What was done, in words; None where it was only looked at."""
    printable = "".join(letter if letter.isprintable() else " " for letter in given.get("why", ""))
    by = {"who": who, "why": " ".join(printable.split())[:200]}
    match given.get("action", ""):
        case "return":
            codes = given.getlist("ticket")
            done = returns.return_by_staff(
                order_id,
                codes,
                set(given.getlist("fee")),
                keep_places=given.get("keep") == "yes",
                also_checked_in=given.get("inside") == "yes",
                seen_minor=_number(given, "seen"),
                **by,
            )
            return f"{len(codes)} given back; {_amount(order_id, done.back_minor)} on its way."
        case "goodwill":
            amount_minor = _number(given, "amount")
            returns.give_goodwill(order_id, amount_minor, seen_minor=_number(given, "seen"), **by)
            return f"{_amount(order_id, amount_minor)} on its way; the tickets stay valid."
        case "again":
            sent = refunds.retry_refund(_refund_id(given), who)
            return f"{format_money(sent.amount_minor, sent.currency)} is sent again."
        case "paid_out":
            paid = refunds.record_payout(_refund_id(given), given.get("note", ""), who)
            return f"{format_money(paid.amount_minor, paid.currency)} was paid out by other means; the buyer reads so."
        case _:
            return None


def _page(request: HttpRequest, order_id: UUID, site: AdminSite, *, status: int = 200) -> HttpResponse:
    try:
        order = get_order(order_id)
    except OrderNotFound as error:
        raise Http404 from error
    row = Order.objects.get(pk=order_id)
    chosen = request.POST.getlist("ticket")
    context = {
        **site.each_context(request),
        "title": f"Money of order {order.number}",
        "order": order,
        "tickets": returns.list_returnable_tickets(order_id, fees_back=True) if order.is_standing else [],
        "chosen": chosen,
        "fees": request.POST.getlist("fee") if request.method == "POST" else None,
        "given": request.POST,
        "quote": _quote(request, order_id) if status == 200 and chosen else None,
        "kept_minor": return_quotes.owed_minor(row) if order.is_standing or order.status == "refunded" else 0,
        "adjustments": row.adjustments.select_related("line"),
        "differences": PaymentDifference.objects.filter(order=row, settled_at=None),
    }
    return TemplateResponse(request, "admin/orders/refund_desk.html", context, status=status)


def _quote(request: HttpRequest, order_id: UUID) -> return_quotes.ReturnQuote | None:
    given = request.POST
    try:
        return returns.quote_for_staff(
            order_id,
            given.getlist("ticket"),
            set(given.getlist("fee")),
            also_checked_in=given.get("inside") == "yes",
        )
    except problems.Problem as problem:
        messages.error(request, describe_problem(problem))
        return None


def _number(given: Mapping[str, str], name: str) -> int:
    return whole_number(given, name, "a whole number, in the smallest unit, is expected")


def _refund_id(given: Mapping[str, str]) -> UUID:
    try:
        return UUID(given.get("refund", ""))
    except ValueError as error:
        raise problems.Invalid({"refund": "which one?"}) from error


def _amount(order_id: UUID, amount_minor: int) -> str:
    return format_money(amount_minor, get_order(order_id).currency)
