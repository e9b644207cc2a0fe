"""The checklist of a draft: everything that is missing or unsafe, each with a link to the place where it is changed.

One function, `list_findings`, serves the form, the command and the publication itself, which refuses a draft with a
finding of the level `missing`.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from django.urls import reverse

from apps.events.checklist.draft import Draft, DraftOnSale
from apps.events.checklist.registry import Finding, Level, registered_checks
from apps.events.plans import Plan
from apps.kernel.formatting import format_datetime, format_money, minor_digits

_MISSING, _WARNING = Level.MISSING, Level.WARNING


def list_findings(draft: Draft, now: datetime) -> list[Finding]:
    """Return the findings of this app and of the apps above: first what is missing, then the warnings."""
    found = [finding for check in (*_CHECKS, *registered_checks()) for finding in check(draft, now)]
    return sorted(found, key=lambda finding: finding.level != _MISSING)


def digest(findings: Sequence[Finding]) -> str:
    """Return a value that differs if the findings do: what staff saw when they pressed the button."""
    seen = "\n".join(f"{finding.level} {finding.text}" for finding in findings)
    return hashlib.sha256(seen.encode()).hexdigest()[:24]


def used_categories(plan: Plan) -> list[str]:
    """Return the names of the categories that have seats, in the plan's order."""
    found = {seat.category for section in plan.sections for seat in section.seats}
    return [category.name for index, category in enumerate(plan.categories) if index in found]


# --- what is sold ----------------------------------------------------------------------------------------------------


def _check_offer(draft: Draft, now: datetime) -> Iterator[Finding]:
    if not draft.general_admission and (draft.plan is None or not draft.plan.seat_count):
        yield Finding(
            _MISSING,
            "There is nothing to sell: add a seating plan or a general admission section.",
            draft.form_link("id_plan"),
        )
    if draft.plan is None:
        return
    priced = {price.key for price in draft.prices}
    for name in used_categories(draft.plan):
        if name not in priced:
            yield Finding(_MISSING, f"There is no price for “{name}”.", draft.prices_link)
    taken = {slug for slug, _ in draft.general_admission}
    for section in draft.plan.sections:
        if section.slug in taken:
            text = f"The section id {section.slug} is in the seating plan and in general admission."
            yield Finding(_MISSING, text, draft.form_link("sections-group"))


def _check_prices(draft: Draft, now: datetime) -> Iterator[Finding]:
    link = draft.prices_link
    unit = 10 ** minor_digits(draft.currency)
    for price in draft.prices:
        if not price.price_minor:
            yield Finding(_WARNING, f"“{price.name}” is free.", link)
        elif price.price_minor < unit:
            shown = format_money(price.price_minor, draft.currency)
            yield Finding(_WARNING, f"“{price.name}” costs only {shown}.", link)
    by_color: dict[str, list[str]] = defaultdict(list)
    for price in draft.prices:
        by_color[price.color].append(f"“{price.name}”")
    for names in by_color.values():
        if len(names) > 1:
            yield Finding(
                _WARNING,
                f"{' and '.join(names)} have the same color on the seat map.",
                draft.form_link("categories-group"),
            )


# --- when ------------------------------------------------------------------------------------------------------------


def _check_times(draft: Draft, now: datetime) -> Iterator[Finding]:
    if draft.starts_at <= now:
        text = f"The event starts in the past, at {_at_venue(draft, draft.starts_at)}."
        yield Finding(_MISSING, text, draft.form_link("id_starts_at"))
    on_sale = draft.on_sale
    if on_sale is None:
        text = "Enter when sales open."
        yield Finding(_MISSING, text, draft.form_link("on_sale-group"))
        return
    opens = draft.form_link("id_on_sale-0-opens_at")
    if on_sale.opens_at >= draft.starts_at:
        yield Finding(_MISSING, "Sales open only after the event has started.", opens)
    elif on_sale.opens_at <= now and on_sale.lobby_opens_at is not None:
        text = (
            f"Sales would open at once ({_at_venue(draft, on_sale.opens_at)} has passed), but the event has a lobby: "
            "open sales later, or remove the lobby."
        )
        yield Finding(_MISSING, text, opens)
    elif on_sale.opens_at <= now and not on_sale.opens_at_once:
        text = f"Sales open as soon as you publish: {_at_venue(draft, on_sale.opens_at)} has passed."
        yield Finding(_WARNING, text, opens)
    ends = draft.form_link("id_on_sale-0-closes_at")
    if on_sale.closes_at is not None and on_sale.closes_at <= max(now, on_sale.opens_at):
        text = "Sales have ended already." if on_sale.closes_at <= now else "Sales end before they open."
        yield Finding(_MISSING, text, ends)
    if on_sale.closes_at is not None and on_sale.closes_at > draft.starts_at:
        yield Finding(_MISSING, "Sales end after the event has started.", ends)
    yield from _check_presale(draft, on_sale)


def _check_presale(draft: Draft, on_sale: DraftOnSale) -> Iterator[Finding]:
    if on_sale.presale_until is not None and on_sale.presale_until > (on_sale.closes_at or draft.starts_at):
        text = "The presale ends after all sales do."
        yield Finding(_MISSING, text, draft.form_link("id_on_sale-0-presale_until"))


def _at_venue(draft: Draft, moment: datetime) -> str:
    return format_datetime(moment, draft.timezone, with_zone_name=True)


# --- limits and the waiting room -------------------------------------------------------------------------------------


def _check_limits(draft: Draft, now: datetime) -> Iterator[Finding]:
    on_sale = draft.on_sale
    if on_sale is None:
        return
    rate, most = on_sale.room_rate_per_second, on_sale.room_active_max
    if (rate is None) != (most is None):
        is_cap = most is None
        text = (
            f"The waiting room would stay off: it has a {'rate' if is_cap else 'cap'}, but no "
            f"{'cap' if is_cap else 'rate'}. Enter both, or neither."
        )
        name = "room_active_max" if is_cap else "room_rate_per_second"
        yield Finding(_MISSING, text, draft.form_link(f"id_on_sale-0-{name}"))
    elif on_sale.lobby_opens_at is not None and rate is None:
        text = "There is a lobby without a waiting room: enter its rate and its cap."
        yield Finding(_MISSING, text, draft.form_link("id_on_sale-0-room_rate_per_second"))
    per_buyer = on_sale.per_buyer_max
    if per_buyer is not None and per_buyer < on_sale.seats_per_reservation_max:
        text = (
            f"A buyer may have {per_buyer}, but the page offers up to {on_sale.seats_per_reservation_max} at a time: "
            "lower that limit, too."
        )
        yield Finding(_WARNING, text, draft.form_link("id_on_sale-0-seats_per_reservation_max"))


# --- venue and organizer ---------------------------------------------------------------------------------------------


def _check_venue(draft: Draft, now: datetime) -> Iterator[Finding]:
    link = reverse("admin:events_venue_change", args=[draft.venue_id])
    if draft.timezone == "UTC":
        text = f"Times are shown in UTC: {draft.venue_name} has no time zone of its own."
        yield Finding(_WARNING, text, link)
    if not draft.venue_address:
        yield Finding(_WARNING, f"{draft.venue_name} has no address, so buyers get no directions.", link)


def _check_legal_pages(draft: Draft, now: datetime) -> Iterator[Finding]:
    absent = [label for kind, label in _LEGAL_PAGES.items() if kind not in draft.legal_kinds]
    if absent:
        *others, last = absent
        text = f"{draft.organizer_name} has no {', '.join(others)}{' or ' if others else ''}{last}."
        yield Finding(_WARNING, text, reverse("admin:events_organizer_change", args=[draft.organizer_id]))


_LEGAL_PAGES = {"terms": "terms of sale", "privacy": "privacy notice", "imprint": "imprint"}

_CHECKS: tuple[Callable[[Draft, datetime], Iterator[Finding]], ...] = (
    _check_times,
    _check_offer,
    _check_prices,
    _check_limits,
    _check_venue,
    _check_legal_pages,
)
