"""What is oversold, and what would be done about it: a plan, which changes nothing.

Two ways, chosen per event: the newest give up what they have (what is past its deadline before anything, then who has
not paid, then who has), or the house gives out what it kept. Nobody gives up whom the others make unnecessary.
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
"""Of what a section has promised: a plan that touches more is applied only with a person's approval."""

_PACKAGE = "apps.reservations"
_oversold_seats = sql.load(_PACKAGE, "oversold_seats")
_oversold_claims = sql.load(_PACKAGE, "oversold_claims")
_house_seats = sql.load(_PACKAGE, "house_seats")
_seats_by_id = sql.load(_PACKAGE, "seats_by_id")
_promised_by_section = sql.load(_PACKAGE, "promised_by_section")


@dataclass(frozen=True, slots=True)
class Oversold:
    """One seat, or one general-admission section, that has more buyers than there is."""

    kind: str
    words: str


class Claim(NamedTuple):
    """One buyer's claim on a seat; the smallest keeps it."""

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
    """What it does, for a person."""
    section_id: int
    places: int
    """How many of the section it touches."""
    reservation_id: UUID | None = None
    """Whose; None: the house gives places of a general-admission section."""
    seat_id: int | None = None
    to_seat_id: int | None = None
    """With both: the reservation moves from one to the other. Without: it is canceled."""


@dataclass(slots=True)
class Plan:
    event: events.EventView
    strategy: str
    oversold: tuple[Oversold, ...] = ()
    steps: list[Step] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)
    """What this strategy cannot make up for; a person chooses the other, or finds more."""
    approval_reasons: list[str] = field(default_factory=list)
    """Sections of which more than APPROVAL_PERCENT would be touched."""


def find(event_id: int) -> Iterator[Oversold]:
    """Everything that more buyers have than there is."""
    sections = {section.id: section for section in events.list_sections(event_id)}
    with auditor.read_cursor() as cursor:
        claims, names = claims_on(cursor, event_id)
        rows = repair.read_places(cursor, [pk for pk, section in sections.items() if section.is_general_admission])
    for seat_id, claimed in claims.items():
        section_id, guid = names[seat_id]
        section = sections[section_id].slug if section_id in sections else f"section {section_id}"
        yield Oversold("oversold_seat", f"{section}: seat {guid} has {len(claimed)} buyers")
    for row in rows:
        if row.excess:
            words = f"{row.section}: {row.by_lines} places are promised, {row.excess} more than there are for sale"
            yield Oversold("oversold_places", words)


def plan(event: events.EventView) -> Plan:
    """What would be done about what is oversold now, in the event's own way. Changes nothing."""
    made = Plan(event, event.policy.oversell, tuple(find(event.id)))
    if made.oversold:
        with auditor.read_cursor() as cursor:
            claims, names = claims_on(cursor, event.id)
            general = [section.id for section in events.list_sections(event.id) if section.is_general_admission]
            rows = [row for row in repair.read_places(cursor, general) if row.excess]
            if made.strategy == HOUSE_SEATS:
                _plan_moves(cursor, made, claims, names)
                _plan_house_places(made, rows)
            else:
                _plan_cancellations(cursor, made, claims, names, rows)
            _list_large_shares(cursor, made)
    return made


def claims_on(
    cursor: sql.Cursor, event_id: int, seat_ids: Iterable[int] | None = None
) -> tuple[dict[int, list[Claim]], dict[int, tuple[int, str]]]:
    """By seat with more than one buyer: their claims, who keeps it first; and the seat's section and public id."""
    asked = None if seat_ids is None else sorted(seat_ids)
    claims: dict[int, list[Claim]] = defaultdict(list)
    names: dict[int, tuple[int, str]] = {}
    rows = _oversold_seats.rows(cursor, event_id=event_id, seat_ids=asked)
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
    rows: list[repair.PlaceCounts],
) -> None:
    """The newest give up, and nobody whom the others make unnecessary."""
    why: dict[UUID, tuple[int, str]] = {}
    for seat_id, claimed in claims.items():
        left = [claim for claim in claimed if claim.reservation not in why]
        for claim in left[1:]:
            section_id, guid = names[seat_id]
            why[claim.reservation] = (section_id, f"seat {guid} is another buyer's")
    for row in rows:
        claimed_places = _oversold_claims.rows(cursor, section_id=row.section_id)
        having = {reservation_id: int(places) for reservation_id, places in claimed_places}
        for reservation_id in choose_newest(having, row.excess, set(why)):
            why.setdefault(
                reservation_id, (row.section_id, f"{row.section} has {row.excess} places too few, and it is the newest")
            )
    for reservation_id, (section_id, reason) in why.items():
        made.steps.append(
            Step(f"cancel reservation {reservation_id}: {reason}", section_id, 0, reservation_id=reservation_id)
        )


def choose_newest(having: dict[UUID, int], excess: int, given_up: set[UUID]) -> list[UUID]:
    """Whom to take `excess` places from: in this order (the newest first), without anybody whom the others make
    unnecessary. Those in `given_up` give theirs up anyway."""
    left = excess - sum(places for one, places in having.items() if one in given_up)
    picked: list[UUID] = []
    for one, places in having.items():
        if left <= 0:
            break
        if one not in given_up:
            picked.append(one)
            left -= places
    # The oldest of them first: whoever came first is spared first.
    for one in reversed(picked):
        if left + having[one] <= 0:
            left += having[one]
            picked = [other for other in picked if other != one]
    return picked


def _plan_moves(
    cursor: sql.Cursor, made: Plan, claims: dict[int, list[Claim]], names: dict[int, tuple[int, str]]
) -> None:
    """Who came later moves to the nearest seat the house kept, in the same section and at the same price."""
    if not claims:
        return
    lost = {place.seat: place for place in _parse_positions(_seats_by_id.rows(cursor, seat_ids=sorted(claims)))}
    sections = sorted({section_id for section_id, _ in names.values()})
    kept = {place.seat: place for place in _parse_positions(_house_seats.rows(cursor, section_ids=sections))}
    for seat_id, claimed in claims.items():
        section_id, guid = names[seat_id]
        for claim in claimed[1:]:
            who = f"reservation {claim.reservation}"
            if claim.lapsed:
                # Its time is over, and it cannot give back a seat that is not its own.
                line = f"cancel {who}: its deadline has passed, and seat {guid} is another buyer's"
                made.steps.append(Step(line, section_id, 0, reservation_id=claim.reservation))
                continue
            to = _nearest(lost.get(seat_id), kept.values())
            if to is None:
                made.uncovered.append(f"{who}: no seat like {guid} is left that the house kept")
                continue
            del kept[to.seat]
            made.steps.append(
                Step(f"move {who} from seat {guid} to {to.guid}", section_id, 1, claim.reservation, seat_id, to.seat)
            )


def _nearest(lost: _SeatPosition | None, kept: Iterable[_SeatPosition]) -> _SeatPosition | None:
    """The kept seat most like the lost one. Who needs an accessible seat gets one; nobody else does while there is
    another."""
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


def _parse_positions(rows: Iterable[tuple[Any, ...]]) -> Iterator[_SeatPosition]:
    return (_SeatPosition(*row) for row in rows)


def _plan_house_places(made: Plan, rows: list[repair.PlaceCounts]) -> None:
    for row in rows:
        given = min(row.excess, row.house)
        if given:
            made.steps.append(Step(f"give {given} places of {row.section} that the house kept", row.section_id, given))
        if given < row.excess:
            made.uncovered.append(f"{row.section}: the house keeps {row.house} places, {row.excess} are missing")


def _list_large_shares(cursor: sql.Cursor, made: Plan) -> None:
    """Which sections the plan touches too much of to go without approval."""
    canceled = [step.reservation_id for step in made.steps if step.reservation_id and step.to_seat_id is None]
    names = {section.id: section.slug for section in events.list_sections(made.event.id)}
    rows = _promised_by_section.rows(cursor, event_id=made.event.id, reservation_ids=canceled)
    for section_id, promised, given_up in rows:
        touched = int(given_up) + sum(step.places for step in made.steps if step.section_id == section_id)
        if touched * 100 > APPROVAL_PERCENT * int(promised):
            share = 100 * touched / int(promised)
            made.approval_reasons.append(
                f"{names.get(section_id, section_id)}: {touched} of {promised} places promised ({share:.1f} %)"
            )
