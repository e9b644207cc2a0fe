"""The history of a seat, from the append-only ledger.

A reservation has a seat from the transition that made it live to the one that ended it, or until the seat was
returned. A payment made in time that arrives after expiry revives it: it then has the seat again. Only compensations
move lines: a moved line has the former seat until the move and the new one afterwards. A block lasts from the change
that sets it to the one that lifts it. A time on a boundary belongs to the later span.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from apps.events import facade as events
from apps.kernel.checks import auditor
from apps.kernel.db import sql
from apps.reservations.models import InventoryChange, Reservation

_PACKAGE = "apps.reservations"
_lines_of_seat = sql.load(_PACKAGE, "lines_of_seat")
_steps_of_reservations = sql.load(_PACKAGE, "steps_of_reservations")
_changes_of_seat = sql.load(_PACKAGE, "changes_of_seat")

HELD, PAYING, SOLD, BLOCKED = "held", "paying", "sold", "blocked"
_STATES = {
    Reservation.Status.PENDING_PAYMENT: HELD,
    Reservation.Status.PAYING: PAYING,
    Reservation.Status.CONFIRMED: SOLD,
}
_FREE = "available"


@dataclass(frozen=True, slots=True)
class Span:
    """A period in which the seat was not free."""

    state: str
    """held, paying, sold or blocked."""
    since: datetime
    until: datetime | None
    """None: until now."""
    who: str
    """The actor of the change to this state."""
    why: str
    reservation_id: UUID | None = None
    buyer: str = ""
    order: str = ""
    """The name of the reservation's order in the app above."""
    ended_as: str = ""
    """The next state: paying, sold, canceled, expired, returned, or moved to another seat; after a block, available or
    another reason."""

    def covers(self, moment: datetime) -> bool:
        return self.since <= moment and (self.until is None or moment < self.until)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The whole history of a seat, which was free between its spans."""

    seat_id: int
    guid: str
    event: str
    timezone: str
    spans: tuple[Span, ...]
    """In order of their start."""

    def at(self, moment: datetime) -> tuple[Span, ...]:
        """Return the spans that cover the time: none, one, or several if the seat was oversold."""
        return tuple(span for span in self.spans if span.covers(moment))

    def free_since(self, moment: datetime) -> datetime | None:
        """Return when the last span before `moment` ended, or None. The seat must be free at `moment`."""
        return max((span.until for span in self.spans if span.until is not None and span.until <= moment), default=None)


@dataclass(frozen=True, slots=True)
class _Move:
    """A compensation that moved a reservation's line to this seat, or from it to the seat `to`."""

    reservation_id: UUID
    at: datetime
    who: str
    why: str
    to: str = ""


class BadMoment(ValueError):
    """The text does not denote a single time."""


_name_orders: list[Callable[[Sequence[UUID]], dict[UUID, str]]] = []


def provide_order_names(provider: Callable[[Sequence[UUID]], dict[UUID, str]]) -> None:
    """Set the provider of order names by reservation id, which the app above registers when it loads. A later call
    replaces it."""
    _name_orders[:] = [provider]


def timeline(event: events.EventView, seat: events.SeatView) -> Timeline:
    """Read the seat's history from the ledger."""
    with auditor.read_cursor() as cursor:
        changes = [
            (kind, json.loads(detail) if isinstance(detail, str) else detail, who, why, at)
            for kind, detail, who, why, at in _changes_of_seat.rows(cursor, seat_id=seat.id)
        ]
        moves = [*_moves(changes)]
        # Lines do not show former seats of moved reservations.
        moved = sorted({move.reservation_id for move in moves})
        lines = _lines_of_seat.rows(cursor, section_id=seat.section_id, seat_id=seat.id, moved=moved)
        buyers = {reservation_id: buyer for reservation_id, buyer, _ in lines}
        returned = {reservation_id: at for reservation_id, _, at in lines if at is not None}
        ids = sorted(buyers)
        steps = _steps_of_reservations.rows(cursor, reservation_ids=ids) if ids else []
    orders = _name_orders[0](ids) if _name_orders and ids else {}
    steps_of, moves_of = defaultdict[UUID, list[Any]](list), defaultdict[UUID, list[_Move]](list)
    for reservation_id, *step in steps:
        steps_of[reservation_id].append(step)
    for move in moves:
        moves_of[move.reservation_id].append(move)
    spans = [*_blocks(changes)]
    for reservation_id in ids:
        held = _holds(steps_of[reservation_id], reservation_id, buyers[reservation_id], orders.get(reservation_id, ""))
        held = _until_returned(held, returned.get(reservation_id))
        spans += _spans_on_seat(held, moves_of[reservation_id])
    spans.sort(key=lambda span: span.since)
    return Timeline(seat.id, seat.guid, event.slug, event.timezone, tuple(spans))


def _holds(steps: Sequence[Sequence[Any]], reservation_id: UUID, buyer: str, order: str) -> Iterable[Span]:
    # Skip transitions that keep the status: partial returns, whose time is on the returned lines.
    steps = [step for number, step in enumerate(steps) if number == 0 or step[0] != steps[number - 1][0]]
    for number, (status, who, why, at) in enumerate(steps):
        if status not in _STATES:
            continue
        following = steps[number + 1] if number + 1 < len(steps) else None
        yield Span(
            state=_STATES[status],
            since=at,
            until=following[3] if following else None,
            who=who,
            why=why,
            reservation_id=reservation_id,
            buyer=buyer,
            order=order,
            ended_as=_STATES.get(following[0], following[0]) if following else "",
        )


def _until_returned(spans: Iterable[Span], returned_at: datetime | None) -> Iterable[Span]:
    """Cut a reservation's spans at the time when it returned this seat."""
    for span in spans:
        if returned_at is None or (span.until is not None and span.until <= returned_at):
            yield span
        elif span.since < returned_at:
            yield replace(span, until=returned_at, ended_as="returned")


def _moves(changes: Iterable[Sequence[Any]]) -> Iterable[_Move]:
    for kind, detail, who, why, at in changes:
        before, after = detail.get("before"), detail.get("after")
        if kind != InventoryChange.Kind.COMPENSATED or not isinstance(before, dict) or not isinstance(after, dict):
            continue
        if "seat" in after:
            yield _Move(UUID(after["reservation"]), at, who, why, to=after["seat"])
        elif before.get("status") == BLOCKED and after.get("reservation"):
            # A compensation assigns a blocked seat only to the reservation that it moves there.
            yield _Move(UUID(after["reservation"]), at, who, why)


def _spans_on_seat(spans: Iterable[Span], moves: Sequence[_Move]) -> Iterable[Span]:
    """Cut a reservation's spans to the periods in which it had this seat, by its moves to and from it, in order."""
    if not moves:
        yield from spans
        return
    # If the first move is away from this seat, the reservation had it from the beginning.
    stays: list[tuple[_Move | None, _Move | None]] = [(None, moves[0])] if moves[0].to else []
    for number, move in enumerate(moves):
        if not move.to:
            stays.append((move, moves[number + 1] if number + 1 < len(moves) else None))
    for span in spans:
        for come, gone in stays:
            part = span
            if come is not None and come.at > part.since:
                part = replace(part, since=come.at, who=come.who, why=come.why)
            if gone is not None and (part.until is None or gone.at < part.until):
                part = replace(part, until=gone.at, ended_as=f"moved to {gone.to}")
            if part.until is None or part.since < part.until:
                yield part


def _blocks(changes: Iterable[Sequence[Any]]) -> Iterable[Span]:
    """Yield the spans of blocks, from the value after each change. Changes that do not affect blocks are skipped."""
    since: tuple[datetime, str, str] | None = None
    for kind, detail, who, why, at in changes:
        after = detail.get("after")
        if isinstance(after, dict):
            if "status" not in after:
                continue
            after = after["status"]
        if kind == InventoryChange.Kind.BLOCKED:
            is_blocked = True
        elif kind == InventoryChange.Kind.UNBLOCKED:
            is_blocked = False
        elif kind == InventoryChange.Kind.MOVED:
            continue
        else:
            is_blocked = after in ("house", "out_of_use", BLOCKED)
        if since is not None:
            yield Span(BLOCKED, since[0], at, since[1], since[2], ended_as=str(after or _FREE))
        since = (at, who, f"{after}: {why}".rstrip(": ") if after else why) if is_blocked else None
    if since is not None:
        yield Span(BLOCKED, since[0], None, since[1], since[2])


def parse_moment(text: str, timezone: str, now: datetime) -> datetime:
    """Parse a time in ISO 8601; without an offset it is the venue's local time.

    Raises BadMoment, also for a local time that is ambiguous or does not exist, for a time in the future, and for one
    that has no date in UTC or at the venue.
    """
    try:
        moment = datetime.fromisoformat(text.strip() if text.isprintable() else "")
    except ValueError as error:
        raise BadMoment(f"{text[:40]!r} is not a time; write it like 2026-11-21T20:00 or 2026-11-21T19:00Z") from error
    if moment.tzinfo is None:
        zone = ZoneInfo(timezone)
        first, second = moment.replace(tzinfo=zone, fold=0), moment.replace(tzinfo=zone, fold=1)
        if first.utcoffset() != second.utcoffset():
            fault = "is ambiguous" if first.utcoffset() > second.utcoffset() else "does not exist"  # type: ignore[operator]
            raise BadMoment(f"{moment.isoformat()} {fault} in {timezone}, since the clocks change then; add an offset")
        moment = first
    try:
        is_ahead = moment > now
        if not is_ahead:
            # Both times are displayed. Near the first representable day, one of them may have no date.
            moment.astimezone(ZoneInfo(timezone))
            moment = moment.astimezone(UTC)
    except OverflowError as error:
        raise BadMoment(f"{text[:40]!r} is out of range") from error
    if is_ahead:
        raise BadMoment(f"{text[:40]!r} is in the future")
    return moment
