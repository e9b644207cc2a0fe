"""Finds oversold stock and plans its compensation. A plan changes nothing.

There are two strategies, chosen per event: cancel the newest reservations (overdue ones first, then unpaid, then paid),
or use house seats. A reservation is not canceled if the other steps make that unnecessary.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from apps.events import facade as events
from apps.kernel.checks import auditor
from apps.kernel.db import sql
from apps.reservations.checks import repair

CANCEL_NEWEST = "cancel_newest"
HOUSE_SEATS = "house_seats"
APPROVAL_PERCENT = 5
"""A plan that affects more than this share of a section's sold and held tickets needs an operator's approval."""

_PACKAGE = "apps.reservations"
_oversold_seats = sql.load(_PACKAGE, "oversold_seats")
_oversold_claims = sql.load(_PACKAGE, "oversold_claims")
_house_seats = sql.load(_PACKAGE, "house_seats")
_seats_by_id = sql.load(_PACKAGE, "seats_by_id")
_promised_by_section = sql.load(_PACKAGE, "promised_by_section")


@dataclass(frozen=True, slots=True)
class Oversold:
    """A seat with several buyers, or a general-admission section with more tickets sold than available."""

    kind: str
    words: str


class Claim(NamedTuple):
    """One buyer's claim on a seat; the smallest claim keeps the seat."""

    lapsed: bool
    unpaid: bool
    since: Any
    reservation: UUID


class _SeatPosition(NamedTuple):
    seat: int
    guid: str
    section: int
    category: int
    row: int
    place: int
    rank: int
    accessible: bool
    companion: bool


@dataclass(frozen=True, slots=True)
class Step:
    line: str
    """A readable description."""
    section_id: int
    quantity: int
    """The number of the section's tickets that it affects."""
    reservation_id: UUID | None = None
    """The affected reservation; None: house tickets of a general-admission section are used."""
    seat_id: int | None = None
    to_seat_id: int | None = None
    """If both are set, the reservation moves from one seat to the other; otherwise it is canceled."""


@dataclass(slots=True)
class Plan:
    event: events.EventView
    strategy: str
    oversold: tuple[Oversold, ...] = ()
    steps: list[Step] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)
    """Seats and tickets that this strategy cannot compensate: an operator chooses the other strategy or adds stock."""
    approval_reasons: list[str] = field(default_factory=list)
    """The sections in which the plan affects more than APPROVAL_PERCENT of the tickets."""


def find(event_id: int) -> Iterator[Oversold]:
    """Yield all oversold seats and sections of the event."""
    sections = {section.id: section for section in events.list_sections(event_id)}
    with auditor.read_cursor() as cursor:
        claims, names = claims_on(cursor, event_id)
        rows = repair.read_general_admission(
            cursor, [pk for pk, section in sections.items() if section.is_general_admission]
        )
    for seat_id, claimed in claims.items():
        section_id, guid = names[seat_id]
        section = sections[section_id].slug if section_id in sections else f"section {section_id}"
        yield Oversold("oversold_seat", f"{section}: seat {guid} has {len(claimed)} buyers")
    for row in rows:
        if row.excess:
            words = f"{row.section}: {row.by_lines} tickets are sold or held, {row.excess} more than are for sale"
            yield Oversold("oversold_places", words)


def plan(event: events.EventView) -> Plan:
    """Return the compensation plan for the stock that is oversold now, by the event's strategy."""
    made = Plan(event, event.policy.oversell, tuple(find(event.id)))
    if made.oversold:
        with auditor.read_cursor() as cursor:
            claims, names = claims_on(cursor, event.id)
            general = [section.id for section in events.list_sections(event.id) if section.is_general_admission]
            rows = [row for row in repair.read_general_admission(cursor, general) if row.excess]
            if made.strategy == HOUSE_SEATS:
                _plan_moves(cursor, made, claims, names)
                _plan_house_tickets(made, rows)
            else:
                _plan_cancellations(cursor, made, claims, names, rows)
            _list_large_shares(cursor, made)
    return made


def claims_on(
    cursor: sql.Cursor, event_id: int, seat_ids: Iterable[int] | None = None
) -> tuple[dict[int, list[Claim]], dict[int, tuple[int, str]]]:
    """Return the claims on each seat with several buyers, the keeper's first, and each seat's section and public id."""
    wanted = None if seat_ids is None else sorted(seat_ids)
    claims: dict[int, list[Claim]] = defaultdict(list)
    names: dict[int, tuple[int, str]] = {}
    rows = _oversold_seats.rows(cursor, event_id=event_id, seat_ids=wanted)
    for seat_id, guid, section_id, reservation_id, lapsed, paid, since in rows:
        claims[seat_id].append(Claim(lapsed, not paid, since, reservation_id))
        names[seat_id] = (section_id, guid or str(seat_id))
    for claimed in claims.values():
        claimed.sort()
    return dict(claims), names


def _plan_cancellations(
    cursor: sql.Cursor,
    made: Plan,
    claims: dict[int, list[Claim]],
    names: dict[int, tuple[int, str]],
    rows: list[repair.GeneralAdmissionCounts],
) -> None:
    """Plan to cancel the newest reservations, except those that need not be canceled because of the others."""
    why: dict[UUID, tuple[int, str]] = {}
    for seat_id, claimed in claims.items():
        left = [claim for claim in claimed if claim.reservation not in why]
        for claim in left[1:]:
            section_id, guid = names[seat_id]
            why[claim.reservation] = (section_id, f"seat {guid} belongs to another buyer")
    for row in rows:
        claims_of_section = _oversold_claims.rows(cursor, section_id=row.section_id)
        for reservation_id in choose_newest(dict(claims_of_section), row.excess, set(why)):
            why.setdefault(
                reservation_id, (row.section_id, f"{row.section} is oversold by {row.excess}, and it is the newest")
            )
    for reservation_id, (section_id, reason) in why.items():
        made.steps.append(
            Step(f"cancel reservation {reservation_id}: {reason}", section_id, 0, reservation_id=reservation_id)
        )


def choose_newest(having: dict[UUID, int], excess: int, given_up: set[UUID]) -> list[UUID]:
    """Return the reservations to cancel so that `excess` tickets become free: the first of `having` (newest first),
    except those that need not be canceled because of the others. Those in `given_up` are canceled anyway."""
    left = excess - sum(quantity for one, quantity in having.items() if one in given_up)
    picked: list[UUID] = []
    for one, quantity in having.items():
        if left <= 0:
            break
        if one not in given_up:
            picked.append(one)
            left -= quantity
    # In reverse, so that the oldest is spared first.
    for one in reversed(picked):
        if left + having[one] <= 0:
            left += having[one]
            picked = [other for other in picked if other != one]
    return picked


def _plan_moves(
    cursor: sql.Cursor, made: Plan, claims: dict[int, list[Claim]], names: dict[int, tuple[int, str]]
) -> None:
    """Plan to move later buyers to the nearest house seat of the same section and price."""
    if not claims:
        return
    lost = {row[0]: _SeatPosition(*row) for row in _seats_by_id.rows(cursor, seat_ids=sorted(claims))}
    sections = sorted({section_id for section_id, _ in names.values()})
    kept = {row[0]: _SeatPosition(*row) for row in _house_seats.rows(cursor, section_ids=sections)}
    for seat_id, claimed in claims.items():
        section_id, guid = names[seat_id]
        for claim in claimed[1:]:
            subject = f"reservation {claim.reservation}"
            if claim.lapsed:
                # It is overdue, and a sweep cannot release a seat that is assigned to another reservation.
                line = f"cancel {subject}: its deadline has passed, and seat {guid} belongs to another buyer"
                made.steps.append(Step(line, section_id, 0, reservation_id=claim.reservation))
                continue
            to = _nearest(lost.get(seat_id), kept.values())
            if to is None:
                made.uncovered.append(f"{subject}: no house seat like {guid} is left")
                continue
            del kept[to.seat]
            made.steps.append(
                Step(
                    f"move {subject} from seat {guid} to {to.guid}", section_id, 1, claim.reservation, seat_id, to.seat
                )
            )


def _nearest(lost: _SeatPosition | None, kept: Iterable[_SeatPosition]) -> _SeatPosition | None:
    """Return the house seat most similar to the lost one. A lost accessible seat is replaced only by an
    accessible one; another lost seat is replaced by an accessible one only if no other is left."""
    if lost is None:
        return None
    like = [
        place
        for place in kept
        if (place.section, place.category) == (lost.section, lost.category)
        and (place.accessible or not lost.accessible)
    ]
    return min(
        like,
        key=lambda place: (
            place.accessible != lost.accessible,
            place.companion != lost.companion,
            abs(place.row - lost.row),
            abs(place.place - lost.place),
            abs(place.rank - lost.rank),
            place.seat,
        ),
        default=None,
    )


def _plan_house_tickets(made: Plan, rows: list[repair.GeneralAdmissionCounts]) -> None:
    for row in rows:
        given = min(row.excess, row.house)
        if given:
            made.steps.append(Step(f"use {given} house tickets of {row.section}", row.section_id, given))
        if given < row.excess:
            made.uncovered.append(f"{row.section}: {row.house} house tickets for an oversell of {row.excess}")


def _list_large_shares(cursor: sql.Cursor, made: Plan) -> None:
    """Add the sections for which the plan needs approval."""
    canceled = [step.reservation_id for step in made.steps if step.reservation_id and step.to_seat_id is None]
    names = {section.id: section.slug for section in events.list_sections(made.event.id)}
    rows = _promised_by_section.rows(cursor, event_id=made.event.id, reservation_ids=canceled)
    for section_id, promised, given_up in rows:
        touched = given_up + sum(step.quantity for step in made.steps if step.section_id == section_id)
        if touched * 100 > APPROVAL_PERCENT * promised:
            share = 100 * touched / promised
            made.approval_reasons.append(
                f"{names.get(section_id, section_id)}: {touched} of {promised} sold and held tickets ({share:.1f} %)"
            )
