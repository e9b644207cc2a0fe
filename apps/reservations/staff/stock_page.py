"""The admin page of an event's stock: the counts of every section, the possible changes, and the latest changes."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from apps.events import facade as events
from apps.kernel import admin_actions
from apps.kernel.admin_actions import money_amount, whole_number
from apps.kernel.formatting import format_money
from apps.kernel.http import problems
from apps.reservations.models import BlockedFor, InventoryChange
from apps.reservations.staff import access_restrictions, stock, tiers
from apps.reservations.staff.refusals import recording_refusals
from apps.reservations.staff.selection import SEATS_MAX, Selection
from apps.reservations.staff.stock_summary import latest_changes, read_section_stock

URL_NAME = "admin:reservations_stock"
CHANGES_SHOWN = 20
MAY_SEE = "reservations.view_seatinventory"
MAY_CHANGE_SEATS = "reservations.change_seatinventory"
MAY_CHANGE_GENERAL_ADMISSION = "reservations.change_generaladmissioninventory"
MAY_CHANGE_PRICES = "events.change_category"
MAY_GUARD = "reservations.change_accesscode"
MAY_CHANGE = (MAY_CHANGE_SEATS, MAY_CHANGE_GENERAL_ADMISSION, MAY_CHANGE_PRICES, MAY_GUARD)

_Given = Mapping[str, str]
_Act = Callable[[events.EventView, _Given, dict[str, str]], str]


@require_http_methods(["GET", "HEAD", "POST"])
def stock_view(request: HttpRequest, event_id: int, site: AdminSite) -> HttpResponse:
    """Show one event's stock, or make a submitted change by its service."""
    try:
        event = events.get_event_by_id(event_id)
    except events.EventNotFound as error:
        raise Http404 from error
    if not event.is_public:
        raise Http404
    # A user who may change something may also see the page.
    if not any(events.is_permitted(request.user, permission, event) for permission in (MAY_SEE, *MAY_CHANGE)):
        raise PermissionDenied
    if request.method != "POST":
        return _page(request, event, site)
    by = {"who": request.user.get_username(), "why": request.POST.get("why", "")}
    return admin_actions.run_action(
        request,
        ACTS,
        lambda act: _perform(act, event, request.POST, by),
        lambda status: _page(request, event, site, status=status),
        (URL_NAME, event_id),
        event,
    )


def _perform(act: _Act, event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    kind = KINDS[given.get("action", "")]
    names = ("section", "rows", "seats", "quantity", "capacity", "category", "price", "reason", "to")
    wanted = " ".join(f"{name}={given[name][:40]}" for name in names if given.get(name))
    with recording_refusals(event.id, kind, wanted, **by):
        return act(event, given, by)


def _page(request: HttpRequest, event: events.EventView, site: AdminSite, *, status: int = 200) -> HttpResponse:
    rows = read_section_stock(event.id)
    context = {
        **site.each_context(request),
        "title": f"Stock of {event.name}",
        "event": event,
        "rows": rows,
        "reserved": [row for row in rows if not row.section.is_general_admission],
        "general_admission": [row for row in rows if row.section.is_general_admission],
        "categories": (categories := events.list_categories(event.id)),
        "prices": _price_rows(event, categories),
        "notes_url": f"{reverse(events.BUYER_PRICE_URL)}?event={event.id}",
        "reasons": BlockedFor.choices,
        "changes": latest_changes(event, CHANGES_SHOWN),
        "given": request.POST,
        "may_change_seats": events.is_permitted(request.user, MAY_CHANGE_SEATS, event),
        "may_change_general_admission": events.is_permitted(request.user, MAY_CHANGE_GENERAL_ADMISSION, event),
        "may_guard": events.is_permitted(request.user, MAY_GUARD, event),
        "may_change_prices": events.is_permitted(request.user, MAY_CHANGE_PRICES, event),
    }
    return TemplateResponse(request, "admin/reservations/stock.html", context, status=status)


def _price_rows(event: events.EventView, categories: Sequence[Any]) -> list[tuple[Any, str, str]]:
    """Return each category with the id of its field and what a buyer pays for it."""
    notes = events.describe_buyer_prices(event)
    return [(category, f"price-{category.id}", notes.get(category.key, "")) for category in categories]


def _block(event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    reason, only_free = given.get("reason", ""), given.get("only_free") == "yes"
    count = stock.block_seats(event, _selection(given), reason, only_free=only_free, **by)
    return f"Blocked, {BlockedFor(reason).label}: {_seats(count)}." if count else "These seats were blocked already."


def _unblock(event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    count = stock.unblock_seats(event, _selection(given), **by)
    return f"Unblocked: {_seats(count)}." if count else "None of these seats was blocked."


def _move(event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    category = given.get("to", "")
    count = tiers.move_seats(event, _selection(given), category, **by)
    return f"Moved to {category}: {_seats(count)}." if count else f"All of these seats are in {category} already."


def _resize(event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    counts = stock.resize(event, given.get("section", ""), whole_number(given, "capacity"), **by)
    return f"Capacity {counts.capacity:,}, {counts.free:,} free."


def _block_general_admission(event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    quantity, reason, seen = whole_number(given, "quantity"), given.get("reason", ""), whole_number(given, "seen")
    counts = stock.block_general_admission(event, given.get("section", ""), quantity, reason, seen=seen, **by)
    return f"{quantity:,} more {BlockedFor(reason).label}; {counts.free:,} free."


def _unblock_general_admission(event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    quantity, reason, seen = whole_number(given, "quantity"), given.get("reason", ""), whole_number(given, "seen")
    counts = stock.unblock_general_admission(event, given.get("section", ""), quantity, reason, seen=seen, **by)
    return f"{quantity:,} unblocked; {counts.free:,} free."


def _reprice(event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    changed = tiers.reprice(event, given.get("category", ""), _price(event, given), **by)
    now = f"{changed.category} costs {format_money(changed.after, event.currency)}"
    return f"{now}, unchanged." if changed.before == changed.after else f"{now} for tickets reserved from now on."


def _add_price(event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    added = tiers.add_price(event, given.get("category", ""), _price(event, given), **by)
    return f"{added.category} costs {format_money(added.after, event.currency)}. You can now move seats to it."


def _price(event: events.EventView, given: _Given) -> int:
    return money_amount(given, "price", event.currency, minor_max=events.PRICE_MINOR_MAX)


def _guard(event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    is_new = access_restrictions.guard(event, given.get("section", ""), needs_access=True, **by)
    return f"The section {'now needs' if is_new else 'already needed'} an access code."


def _open(event: events.EventView, given: _Given, by: dict[str, str]) -> str:
    is_new = access_restrictions.guard(event, given.get("section", ""), needs_access=False, **by)
    return f"The section {'is now' if is_new else 'was already'} open to all buyers."


ACTS: dict[str, tuple[_Act, str]] = {
    "block": (_block, MAY_CHANGE_SEATS),
    "unblock": (_unblock, MAY_CHANGE_SEATS),
    "move": (_move, MAY_CHANGE_PRICES),
    "resize": (_resize, MAY_CHANGE_GENERAL_ADMISSION),
    "block_quantity": (_block_general_admission, MAY_CHANGE_GENERAL_ADMISSION),
    "unblock_quantity": (_unblock_general_admission, MAY_CHANGE_GENERAL_ADMISSION),
    "reprice": (_reprice, MAY_CHANGE_PRICES),
    "add_price": (_add_price, MAY_CHANGE_PRICES),
    "guard": (_guard, MAY_GUARD),
    "open": (_open, MAY_GUARD),
}

_Kind = InventoryChange.Kind
KINDS = {
    "block": _Kind.BLOCKED,
    "block_quantity": _Kind.BLOCKED,
    "unblock": _Kind.UNBLOCKED,
    "unblock_quantity": _Kind.UNBLOCKED,
    "move": _Kind.MOVED,
    "resize": _Kind.RESIZED,
    "reprice": _Kind.REPRICED,
    "add_price": _Kind.REPRICED,
    "guard": _Kind.GUARDED,
    "open": _Kind.OPENED,
}
"""The recorded kind of each action."""


def _selection(given: _Given) -> Selection:
    seats = re.split(r"[\s,;]+", given.get("seats", "").strip(), maxsplit=SEATS_MAX + 1)
    rows = [row.strip() for row in given.get("rows", "").split(",")]
    chosen = Selection(tuple(filter(None, seats)), given.get("section", ""), tuple(filter(None, rows)))
    if chosen.section and not chosen.rows and given.get("whole") != "yes":
        # An empty field must not take a whole section off sale.
        raise problems.Invalid({"rows": "name the rows, or tick the box for the whole section"})
    return chosen


def _seats(count: int) -> str:
    return f"{count:,} seat{'' if count == 1 else 's'}"
