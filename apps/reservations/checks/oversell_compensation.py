"""What was planned about an oversell is done. It must be impossible, and is prepared for all the same.

Each step is a transaction of its own that decides again under the locks whether it is still needed, so that a plan that
has grown old, or runs twice, compensates nothing twice. What is paid has an order, which is locked first: the app that
took the money joins in through `provide_compensation_hooks`.
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

_PACKAGE = "apps.reservations"
_live_lines = sql.load(_PACKAGE, "live_lines")
_move_line = sql.load(_PACKAGE, "move_line")
_drop_line = sql.load(_PACKAGE, "drop_line")


class ApprovalRequired(Exception):
    """The plan touches more of a section than may be done without a person's approval. Nothing was changed."""


class CompensationHooks(Protocol):
    """What the app that took the money does about a reservation that is compensated, in the same transaction."""

    def lock(self, reservation_id: UUID) -> Any:
        """Its order is locked, before the reservation is; whatever the others need, None without an order."""

    def is_placed(self, reservation_id: UUID) -> bool:
        """Whether it has an order. Asked once the reservation is locked, from when on none can come."""

    def give_back(self, order: Any, who: str, why: str) -> None:
        """The reservation is about to be canceled: its tickets are void, its money is on its way back."""

    def reissue(self, order: Any, reservation_id: UUID) -> None:
        """The reservation's seats are others now: its tickets say so, and its buyer is told."""


class _NoHooks:
    def lock(self, reservation_id: UUID) -> Any:
        return None

    def is_placed(self, reservation_id: UUID) -> bool:
        return False

    def give_back(self, order: Any, who: str, why: str) -> None: ...

    def reissue(self, order: Any, reservation_id: UUID) -> None: ...


_hooks: list[CompensationHooks] = [_NoHooks()]


def provide_compensation_hooks(sale: CompensationHooks) -> None:
    """From now on compensations of what is paid go through this."""
    _hooks[:] = [sale]


@dataclass(frozen=True, slots=True)
class StepResult:
    step: Step
    was_applied: bool
    """False: under the locks it was not needed, or not possible, any more."""


def apply(made: Plan, *, by: str, approved_by: str = "") -> Iterator[StepResult]:
    """Each step of the plan is done as it is asked for, if it is still needed, and told. Raises ApprovalRequired before
    the first."""
    if made.approval_reasons and not approved_by:
        raise ApprovalRequired("; ".join(made.approval_reasons))
    approved = f", approved by {approved_by}" if approved_by else ""
    return (StepResult(step, _apply_step(made, step, by, approved)) for step in made.steps)


def _apply_step(made: Plan, step: Step, by: str, approved: str) -> bool:
    reason = Reason(Kind.COMPENSATED, by, f"oversold: {made.strategy}{approved}")
    if step.reservation_id is None:
        return _release_house_places(step.section_id, reason)
    if step.seat_id is None or step.to_seat_id is None:
        return _with_locked_order(step.reservation_id, lambda cursor, order: _cancel(cursor, made, step, order, reason))
    return _with_locked_order(step.reservation_id, lambda cursor, order: _move(cursor, made, step, order, reason))


def _with_locked_order(reservation_id: UUID, act: Callable[[sql.Cursor, Any], bool]) -> bool:
    with transactions.write(), connection.cursor() as cursor:
        return act(cursor, _hooks[0].lock(reservation_id))


def _release_house_places(section_id: int, reason: Reason) -> bool:
    with transactions.write(), connection.cursor() as cursor:
        repair.lock(cursor, sections=[section_id])
        (row,) = repair.read_places(cursor, [section_id])
        given = min(row.excess, row.house)
        if not given:
            return False
        taken = min(row.by_lines, max(row.room + given, row.taken))
        return repair.set_place_counts(cursor, row, reason, taken=taken, give=given)


def _cancel(cursor: sql.Cursor, made: Plan, step: Step, order: Any, reason: Reason) -> bool:
    """The reservation is canceled by the same service as any other, if it still is one too many."""
    victim = step.reservation_id
    assert victim is not None
    lines = _live_lines.rows(cursor, reservation_ids=[victim])
    seat_ids = [seat_id for _, _, _, seat_id, _ in lines if seat_id is not None]
    sections = {section_id for _, _, section_id, seat_id, _ in lines if seat_id is None}
    if not _lock_with_rivals(cursor, made.event.id, victim, order, seat_ids, sections):
        return False
    claims, _ = claims_on(cursor, made.event.id, seat_ids)
    shared = {seat_id: claimed for seat_id, claimed in claims.items() if claimed[0].reservation != victim}
    rows = repair.read_places(cursor, sections)
    # Judged with every row locked that could make it unnecessary: of two runs the second finds the first one's work.
    if not shared and not any(row.excess for row in rows):
        return False
    if order is not None:
        _hooks[0].give_back(order, reason.who, reason.why)
    for seat_id, claimed in shared.items():
        _transfer_seat(cursor, seat_id, victim, claimed[0].reservation, reason)
    for row in rows:
        # What it is about to give back must be counted as taken first.
        repair.set_place_counts(cursor, row, reason, taken=max(row.taken, min(row.by_lines, row.room)))
    reservation = Reservation.objects.get(pk=victim)
    status = reservation.status
    release.end(reservation, who=reason.who, why=reason.why)
    for row in repair.read_places(cursor, sections):
        repair.set_place_counts(cursor, row, reason, taken=min(row.by_lines, max(row.room, row.taken)))
    before, after = ({"reservation": str(victim), "status": status} for status in (status, "canceled"))
    repair.record(reason, made.event.id, step.section_id, quantity=reservation.seat_count, before=before, after=after)
    return True


def _move(cursor: sql.Cursor, made: Plan, step: Step, order: Any, reason: Reason) -> bool:
    """The reservation has the other seat instead, if it still shares this one and the house still keeps that one."""
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
    if not is_shared or to is None or to.reservation_ids or not _is_house_seat(to_seat_id):
        return False
    keeper = claimed[0].reservation
    if _move_line.count(cursor, reservation_id=victim, seat_id=seat_id, to_seat_id=to_seat_id) != 1:
        raise RuntimeError(f"reservation {victim} has no line on seat {seat_id}")
    repair.set_seat_owner(cursor, to, victim, reason)
    # The line remembers no seat it was on before: who had the one it left stands in this record alone.
    names = events.seat_guids(cursor, [seat_id, to_seat_id])
    before, after = ({"reservation": str(victim), "seat": names[one]} for one in (seat_id, to_seat_id))
    repair.record(reason, to.event_id, step.section_id, quantity=1, before=before, after=after, seat_id=seat_id)
    _set_keeper(cursor, seat_id, keeper, reason)
    if order is not None:
        _hooks[0].reissue(order, victim)
    return True


def _is_house_seat(seat_id: int) -> bool:
    kept = SeatInventory.objects.filter(status=SeatInventory.Status.BLOCKED, blocked_for=BlockedFor.HOUSE)
    return kept.filter(pk=seat_id).exists()


def _lock_with_rivals(
    cursor: sql.Cursor,
    event_id: int,
    victim: UUID,
    order: Any,
    seat_ids: Iterable[int],
    sections: Iterable[int],
    extra: Iterable[int] = (),
) -> bool:
    """The reservation, those it shares a seat with, its seats and its sections are locked; False if it stands no more,
    or somebody else has come to share a seat meanwhile, or its buyer to pay when there was no order to lock yet: the
    next plan knows."""
    seats = sorted(set(seat_ids))
    claims, _ = claims_on(cursor, event_id, seats)
    rivals = {claim.reservation for claimed in claims.values() for claim in claimed}
    repair.lock(cursor, reservations={victim, *rivals}, seats={*seats, *extra}, sections=sections)
    if order is None and _hooks[0].is_placed(victim):
        return False
    claims, _ = claims_on(cursor, event_id, seats)
    known = {claim.reservation for claimed in claims.values() for claim in claimed} <= {victim, *rivals}
    return known and Reservation.objects.filter(pk=victim, status__in=repair.LIVE_OR_CONFIRMED).exists()


def _transfer_seat(cursor: sql.Cursor, seat_id: int, victim: UUID, keeper: UUID, reason: Reason) -> None:
    """The seat is the keeper's alone."""
    _drop_line.count(cursor, reservation_id=victim, seat_id=seat_id)
    _set_keeper(cursor, seat_id, keeper, reason)


def _set_keeper(cursor: sql.Cursor, seat_id: int, keeper: UUID, reason: Reason) -> None:
    seat = repair.read_seat(cursor, seat_id)
    if seat is not None and seat.status != SeatInventory.Status.BLOCKED:
        repair.set_seat_owner(cursor, seat, keeper, reason)
