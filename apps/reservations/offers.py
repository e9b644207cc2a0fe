"""Offers: up to three choices for a party, before anything is held. A buyer takes one by holding its seats.

An offer is read without locks and promises nothing. The best category comes first. All offers are seats side by side,
unless there are none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from apps.kernel.codes import code_format
from apps.kernel.db import sql
from apps.kernel.http import problems
from apps.queue import facade as queue
from apps.reservations.errors import AccessCodeRequired
from apps.reservations.holds import access_codes
from apps.reservations.holds.replacement import read_seats_of
from apps.reservations.holds.requests import (
    EventAreas,
    EventLookup,
    code_of,
    guarded_of,
    presale_guard,
    resolve_best_available,
)
from apps.reservations.holds.seat_choice.area_candidates import Proposer
from apps.reservations.holds.seat_choice.areas import Areas
from apps.reservations.holds.seat_choice.best_available import BestAvailable, count_groups
from apps.reservations.holds.seat_choice.free_runs import FreeSeat

OFFERS_MAX = 3

Choice = tuple[FreeSeat, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    seats: tuple[events.SeatView, ...]
    """By row and seat."""
    is_together: bool
    """Whether they are side by side in one row."""

    @property
    def seat_ids(self) -> list[str]:
        return [seat.guid for seat in self.seats]

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """The rows and the numbers of the seats in each."""
        found: dict[str, list[str]] = {}
        for seat in self.seats:
            found.setdefault(seat.row, []).append(seat.number)
        return list(found.items())

    def bill(self, policy: events.PricePolicy) -> events.Bill:
        """Return what an order of these seats would cost, without a promo code."""
        items = [
            events.BillItem(place, 1, seat.guid, seat.category_name, seat.price_minor, seat.tax_rate)
            for place, seat in enumerate(self.seats, 1)
        ]
        return events.calculate_bill(items, policy)

    def contract(self, event: events.EventView) -> dict[str, Any]:
        """Return the offer in the format of the public API."""
        return {
            "seats": [
                {
                    "seat_id": seat.guid,
                    "section_id": seat.section_slug,
                    "row": seat.row,
                    "number": seat.number,
                    "category": seat.category,
                    "price_minor": seat.price_minor,
                }
                for seat in self.seats
            ],
            "together": self.is_together,
            "total_minor": sum(seat.price_minor for seat in self.seats),
            "to_pay_minor": self.bill(event.price_policy).total_minor,
            "currency": event.currency,
        }


def propose_offers(
    event: events.EventView,
    entry: queue.EntryView,
    asked: Any,
    *,
    access_code: Any = None,
    replaces: UUID | None = None,
) -> list[Offer]:
    """Return up to OFFERS_MAX offers of different seats for a party described like `best_available` of a hold. Seats of
    the reservation that it would replace count as free.

    Raises Invalid, and AccessCodeRequired and the other refusals of a code if all that fits the party is behind one.
    """
    code = code_of(access_code)
    if code is None:
        raise problems.Invalid({"access_code": f"at most {code_format.LENGTH_MAX} printable characters"})
    demand = _open_areas(event, entry, _resolve(event, asked), code)
    with connection.cursor() as cursor:
        own = {} if replaces is None else read_seats_of(cursor, replaces)
        chosen = _choose(cursor, demand, own)
    seats = events.seats_by_id(seat.seat_id for one in chosen for seat in one)
    return [
        Offer(
            tuple(seats[seat.seat_id] for seat in sorted(one, key=attrgetter("row_index", "place_index"))),
            count_groups(one) == 1,
        )
        for one in chosen
    ]


def _resolve(event: events.EventView, asked: Any) -> BestAvailable:
    sections = {section.slug: section for section in events.list_sections(event.id)}
    categories = {category.key: category.id for category in events.list_categories(event.id)}
    wrong: dict[str, Any] = {}
    demand = resolve_best_available(event, EventLookup(sections, categories, {}), asked, wrong)
    if demand is None:
        raise problems.Invalid(wrong or {"best_available": "an object is expected"})
    if demand.quantity > event.policy.seats_per_reservation_max:
        raise problems.Invalid(f"at most {event.policy.seats_per_reservation_max} tickets per reservation")
    if demand.areas:
        return demand
    section = [one for one in sections.values() if one.id == demand.section_id]
    return replace(demand, areas=EventAreas(section, categories).find(event, asked.get("category"), None))


def _open_areas(event: events.EventView, entry: queue.EntryView, demand: BestAvailable, code: str) -> BestAvailable:
    """Return the request without the areas that need an access code, except those that this code opens."""
    sections = events.list_sections(event.id)
    guarded = presale_guard(event, entry, sections) or guarded_of(sections)
    closed = {section_id: guarded[section_id] for section_id in demand.section_ids if section_id in guarded}
    if not closed:
        return demand
    try:
        opened = access_codes.opened_sections(event.id, code, entry.buyer, closed) if code else []
    except problems.Problem:
        if len(closed) == len(demand.section_ids):
            raise
        opened = []
    areas = Areas(area for area in demand.areas if area.section_id not in closed or area.section_id in opened)
    if not areas:
        raise AccessCodeRequired(sections=sorted(closed.values()))
    return replace(demand, areas=areas)


def _choose(cursor: sql.Cursor, demand: BestAvailable, own: Mapping[int, FreeSeat]) -> list[Choice]:
    """Return the first choice of each category, the most expensive first, then further choices. If no
    area has seats side by side, return the best of all seats."""
    proposer = Proposer(cursor, [demand], set())
    by_price: list[Sequence[Choice]] = []
    lower = demand
    while lower.areas and len(by_price) < OFFERS_MAX:
        # The best seats cost the highest price that has seats side by side: prices without them are not read.
        best = next(proposer.propose_by_area(lower, own), None)
        if best is None:
            break
        price = demand.areas.price_by_category[best[0].category_id]
        same = replace(demand, areas=Areas(area for area in lower.areas if area.price_minor == price))
        by_price.append(_choose_of_one_price(proposer, same, own))
        lower = replace(demand, areas=Areas(area for area in lower.areas if area.price_minor < price))
    ranks = zip_longest(*by_price)
    chosen = [choice for rank in ranks for choice in rank if choice is not None][:OFFERS_MAX]
    # In the order of their prices; the sort is stable.
    chosen.sort(key=lambda choice: next(at for at, found in enumerate(by_price) if choice in found))
    if not chosen and (other := proposer.propose(demand, own).seats) is not None:
        chosen.append(other)
    return chosen


def _choose_of_one_price(proposer: Proposer, demand: BestAvailable, own: Mapping[int, FreeSeat]) -> list[Choice]:
    """Return up to OFFERS_MAX choices side by side: the best of each section, then the next best."""
    found: list[Choice] = []
    count = -1
    while len(found) > count:
        count = len(found)
        for chosen in proposer.propose_by_area(demand, own):
            proposer.take(chosen)
            found.append(chosen)
            if len(found) == OFFERS_MAX:
                return found
    return found
