"""Applies a plan that compensates an oversell. This is a precaution: an oversell should be impossible.

Each step is a transaction that decides again under the locks whether it is still needed, so that an old or repeated
plan compensates nothing twice. A paid reservation has an order, which is locked first: the app that took the payment
takes part through `provide_compensation_hooks`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from apps.kernel.db import sql, transactions
from apps.reservations.checks import repair
from apps.reservations.checks.oversell_plan import Plan, Step, claims_on
from apps.reservations.checks.repair import Kind, Reason
from apps.reservations.lifecycle import release
from apps.reservations.models import BlockedFor, Reservation, SeatInventory

_Status = SeatInventory.Status
_PACKAGE = "apps.reservations"
_live_lines = sql.load(_PACKAGE, "live_lines")
_move_line = sql.load(_PACKAGE, "move_line")
_drop_line = sql.load(_PACKAGE, "drop_line")


class ApprovalRequired(Exception):
    """The plan affects so much of a section that it needs an operator's approval. Nothing was changed."""


class CompensationHooks(Protocol):
    """Functions of the app that took the payment, called in the transaction that compensates a reservation."""

    def lock(self, reservation_id: UUID) -> Any:
        """Lock the reservation's order before the reservation; return the order for the other hooks, or None."""

    def is_placed(self, reservation_id: UUID) -> bool:
        """Return whether the reservation has an order. The reservation is locked, so no order can be added."""

    def cancel_or_refund(self, order: Any, who: str) -> None:
        """Cancel the unpaid order of a reservation that is about to be canceled, or void its tickets and refund it."""

    def reissue(self, order: Any, reservation_id: UUID) -> None:
        """Reissue the tickets of a reservation whose seats have changed, and notify its buyer."""


_hooks: list[CompensationHooks] = []
"""One element, set by the app above when it loads."""


def provide_compensation_hooks(sale: CompensationHooks) -> None:
    """Set the hooks for compensations of paid reservations."""
    _hooks[:] = [sale]


@dataclass(frozen=True, slots=True)
class StepResult:
    step: Step
    was_applied: bool
    """False: under the locks it was no longer needed or possible."""


def apply(made: Plan, *, by: str, approved_by: str = "") -> Iterator[StepResult]:
    """Return an iterator that applies the plan's steps one by one, if still needed, and yields each result. Raises
    ApprovalRequired before the first step."""
    if made.approval_reasons and not approved_by:
        raise ApprovalRequired("; ".join(made.approval_reasons))
    approved = f", approved by {approved_by}" if approved_by else ""
    return (StepResult(step, _apply_step(made, step, by, approved)) for step in made.steps)


def _apply_step(made: Plan, step: Step, by: str, approved: str) -> bool:
    reason = Reason(Kind.COMPENSATED, by, f"oversold: {made.strategy}{approved}")
    if step.reservation_id is None:
        return _release_house_tickets(step.section_id, reason)
    if step.seat_id is None or step.to_seat_id is None:
        return _with_locked_order(step.reservation_id, lambda cursor, order: _cancel(cursor, made, step, order, reason))
    return _with_locked_order(step.reservation_id, lambda cursor, order: _move(cursor, made, step, order, reason))


def _with_locked_order(reservation_id: UUID, act: Callable[[sql.Cursor, Any], bool]) -> bool:
    with transactions.write(), connection.cursor() as cursor:
        return act(cursor, _hooks[0].lock(reservation_id))


def _release_house_tickets(section_id: int, reason: Reason) -> bool:
    with transactions.write(), connection.cursor() as cursor:
        repair.lock(cursor, sections=[section_id])
        (row,) = repair.read_general_admission(cursor, [section_id])
        given = min(row.excess, row.house)
        if not given:
            return False
        taken = min(row.by_lines, max(row.room + given, row.taken))
        return repair.set_counts(cursor, row, reason, taken=taken, give=given)


def _cancel(cursor: sql.Cursor, made: Plan, step: Step, order: Any, reason: Reason) -> bool:
    """Cancel the reservation by the usual service, if it is still in excess."""
    victim = step.reservation_id
    assert victim is not None
    lines = _live_lines.rows(cursor, reservation_ids=[victim])
    seat_ids = [seat_id for _, _, _, seat_id, _ in lines if seat_id is not None]
    sections = {section_id for _, _, section_id, seat_id, _ in lines if seat_id is None}
    if not _lock_with_rivals(cursor, made.event.id, victim, order, seat_ids, sections):
        return False
    claims, _ = claims_on(cursor, made.event.id, seat_ids)
    shared = {seat_id: claimed for seat_id, claimed in claims.items() if claimed[0].reservation != victim}
    rows = repair.read_general_admission(cursor, sections)
    # All rows on which this depends are locked: of two concurrent runs, the second finds the step done.
    if not shared and not any(row.excess for row in rows):
        return False
    if order is not None:
        _hooks[0].cancel_or_refund(order, reason.who)
    for seat_id, claimed in shared.items():
        _drop_line.count(cursor, reservation_id=victim, seat_id=seat_id)
        _set_keeper(cursor, seat_id, claimed[0].reservation, reason)
    for row in rows:
        # Ending the reservation lowers the count by its tickets, so they must first be counted as taken.
        repair.set_counts(cursor, row, reason, taken=max(row.taken, min(row.by_lines, row.room)))
    reservation = Reservation.objects.get(pk=victim)
    status = reservation.status
    release.end(reservation, who=reason.who, why=reason.why)
    for row in repair.read_general_admission(cursor, sections):
        repair.set_counts(cursor, row, reason, taken=min(row.by_lines, max(row.room, row.taken)))
    before, after = ({"reservation": str(victim), "status": status} for status in (status, "canceled"))
    repair.record(reason, made.event.id, step.section_id, quantity=reservation.seat_count, before=before, after=after)
    return True


def _move(cursor: sql.Cursor, made: Plan, step: Step, order: Any, reason: Reason) -> bool:
    """Move the reservation to the house seat, if its seat is still shared and the house seat still unused."""
    victim, seat_id, to_seat_id = step.reservation_id, step.seat_id, step.to_seat_id
    assert victim is not None
    assert seat_id is not None
    assert to_seat_id is not None
    if not _lock_with_rivals(cursor, made.event.id, victim, order, [seat_id], (), extra=[to_seat_id]):
        return False
    claims, _ = claims_on(cursor, made.event.id, [seat_id])
    claimed = claims.get(seat_id, [])
    to = repair.read_seat(cursor, to_seat_id)
    is_shared = victim in (claim.reservation for claim in claimed[1:])
    house_seat = SeatInventory.objects.filter(pk=to_seat_id, status=_Status.BLOCKED, blocked_for=BlockedFor.HOUSE)
    if not is_shared or to is None or to.reservation_ids or not house_seat.exists():
        return False
    keeper = claimed[0].reservation
    if _move_line.count(cursor, reservation_id=victim, seat_id=seat_id, to_seat_id=to_seat_id) != 1:
        raise RuntimeError(f"reservation {victim} has no line on seat {seat_id}")
    repair.set_seat_owner(cursor, to, victim, reason)
    # The line does not keep its former seat: only this record shows that the reservation had it.
    names = events.seat_guids(cursor, [seat_id, to_seat_id])
    before, after = ({"reservation": str(victim), "seat": names[one]} for one in (seat_id, to_seat_id))
    repair.record(reason, to.event_id, step.section_id, quantity=1, before=before, after=after, seat_id=seat_id)
    _set_keeper(cursor, seat_id, keeper, reason)
    if order is not None:
        _hooks[0].reissue(order, victim)
    return True


def _lock_with_rivals(
    cursor: sql.Cursor,
    event_id: int,
    victim: UUID,
    order: Any,
    seat_ids: Iterable[int],
    sections: Iterable[int],
    extra: Iterable[int] = (),
) -> bool:
    """Lock the reservation, those that share a seat with it, its seats and its sections.

    Returns False, and a new plan is needed, if the reservation has ended, or if by now a reservation that is not
    locked shares a seat with it, or it has an order that is not locked.
    """
    seats = sorted(set(seat_ids))
    claims, _ = claims_on(cursor, event_id, seats)
    rivals = {claim.reservation for claimed in claims.values() for claim in claimed}
    repair.lock(cursor, reservations={victim, *rivals}, seats={*seats, *extra}, sections=sections)
    if order is None and _hooks[0].is_placed(victim):
        return False
    claims, _ = claims_on(cursor, event_id, seats)
    known = {claim.reservation for claimed in claims.values() for claim in claimed} <= {victim, *rivals}
    return known and Reservation.objects.filter(pk=victim, status__in=Reservation.LIVE_OR_CONFIRMED).exists()


def _set_keeper(cursor: sql.Cursor, seat_id: int, keeper: UUID, reason: Reason) -> None:
    seat = repair.read_seat(cursor, seat_id)
    if seat is not None and seat.status != _Status.BLOCKED:
        repair.set_seat_owner(cursor, seat, keeper, reason)
