"""Reconciliation of reservations: compares the plan with the inventory rows, reservations with their lines, and seats
and counts with both; and finds overdue holds.

Each check uses one short statement per batch. A statement sees every hold, release, sweep and payment completely or not
at all, so that operations in progress are not differences. Each repair reads again under locks in the lock order. It
takes nothing from a live or confirmed reservation; where that would be necessary, it reports this and leaves the
difference to an operator.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from apps.kernel.checks import auditor, reconciler
from apps.kernel.checks.reconciler import GONE, REPAIRED, Difference, ManualRepairRequired, Repair
from apps.kernel.db import sql, transactions
from apps.reservations.checks import oversell_plan, repair
from apps.reservations.checks.invariants import scan_seats
from apps.reservations.checks.repair import Kind, Reason
from apps.reservations.inventory import setup
from apps.reservations.lifecycle import release
from apps.reservations.models import GeneralAdmissionInventory, Reservation, SeatInventory

ORPHANED_SECONDS = 60
"""Sweeps release overdue holds within seconds: they cannot release one that is left after a minute."""
FOUND_MAX = 1_000
"""The most reported differences of one kind in one event or section; the next run finds the others."""
ATTEMPTS_MAX = 3

_Status = SeatInventory.Status
_PACKAGE = "apps.reservations"
_capacity = sql.load(_PACKAGE, "reconcile_capacity")
_lines = sql.load(_PACKAGE, "audit_lines")
_lines_of_none = sql.load(_PACKAGE, "reconcile_lines_of_none")
_seats = sql.load(_PACKAGE, "reconcile_seats")
_overdue = sql.load(_PACKAGE, "reconcile_overdue")
_entries = sql.load(_PACKAGE, "reconcile_entries")
_live_lines = sql.load(_PACKAGE, "live_lines")
_all_lines = sql.load(_PACKAGE, "all_lines")
_free_taken_seats = sql.load(_PACKAGE, "free_taken_seats")
_end_lines = sql.load(_PACKAGE, "end_lines")
_revive_lines = sql.load(_PACKAGE, "revive_lines")

Differences = Iterator[Difference]
FindInEvent = Callable[[events.EventView], Differences]
FindDifferences = Callable[[int | None], Differences]


def register() -> None:
    """Add these checks to every reconciliation, in the order of their repairs: lines before the seats and counts
    derived from them, and these before the sweep that releases them."""

    def add(name: str, promise: str, find: FindDifferences, fix: Repair | None = None, *kinds: str) -> None:
        reconciler.register(name, promise, find, fix, kinds=kinds or None)

    add(
        "inventory", "every seat and section of the plan has an inventory row", _for_each_event(_find_capacity),
        _repair_capacity,
        "inventory_missing", "capacity",
    )  # fmt: skip
    add(
        "lines", "a reservation's lines are live while it is live or confirmed", _find_lines, _repair_lines,
        "hold_of_ended", "holds_nothing", "header", "price",
    )  # fmt: skip
    add(
        "seats", "a seat's status follows from the reservation on it", _find_seats, _repair_seat,
        "seat_without_hold", "hold_without_seat", "seat_status",
    )  # fmt: skip
    add(
        "places",
        "a general-admission count equals the sum of its lines",
        _for_each_event(_find_general_admission),
        _repair_general_admission,
    )
    add("overdue", "no hold outlives its deadline", _for_each_event(_find_overdue), _repair_overdue)
    add("entries", "a live hold has a valid queue entry", _for_each_event(_find_entries))
    add("oversell", "nothing is sold twice", _for_each_event(_find_oversold), None, "oversold_seat", "oversold_places")


def _events(part: int | None) -> list[events.EventView]:
    return events.list_events() if part is None else [events.get_event_by_id(part)]


def _for_each_event(find: FindInEvent) -> FindDifferences:
    def find_all(part: int | None) -> Differences:
        for event in _events(part):
            yield from find(event)

    return find_all


# --- the plan against the rows ---------------------------------------------------------------------------------------


def _find_capacity(event: events.EventView) -> Differences:
    with auditor.read_cursor() as cursor:
        rows = _capacity.rows(cursor, event_id=event.id)
    for section, kind, capacity, seats, without, present, stock in rows:
        where = f"{event.slug}/{section}"
        if without or (kind != "reserved" and stock is None):
            what = f"{without} of {seats} seats have" if without else "it has"
            yield Difference("inventory_missing", f"{where}: {what} no inventory row", event.id)
        else:
            what = f"{present} seats in the inventory" if kind == "reserved" else f"{stock} tickets in the inventory"
            yield Difference(
                "capacity", f"{where}: {what}, and a capacity of {capacity}", event.id,
                "only the organizer knows which is right; see manage.py stock",
            )  # fmt: skip


def _repair_capacity(difference: Difference, by: str) -> str:
    """Create the missing inventory rows as free; the following checks assign them to the reservations on them."""
    event_id: int = difference.about
    with transactions.write():
        before = _count_rows(event_id)
        setup.create_inventory(event_id)
        after = _count_rows(event_id)
        if before == after:
            return GONE
        reason = Reason(Kind.REPAIRED, by, difference.line)
        repair.record(
            reason, event_id, None, quantity=after - before,
            before={"inventory_rows": before}, after={"inventory_rows": after},
        )  # fmt: skip
    return REPAIRED


def _count_rows(event_id: int) -> int:
    seats = SeatInventory.objects.filter(event_id=event_id).count()
    return seats + GeneralAdmissionInventory.objects.filter(event_id=event_id).count()


# --- reservations against their lines --------------------------------------------------------------------------------


def _find_lines(part: int | None) -> Differences:
    views = _events(part)
    slugs = {event.id: event.slug for event in views}
    (seen,) = auditor.collect(Reservation.objects.all(), UUID(int=0), [_lines], event_id=part)
    for event_id, reservation_id, status, live, lines, seat_count, quantity, total, cost, wrong in seen:
        where, about = f"{slugs.get(event_id, event_id)}: reservation {reservation_id}", (event_id, reservation_id)
        if status not in Reservation.LIVE_OR_CONFIRMED and live:
            yield Difference(
                "hold_of_ended", f"{where} is {status}, and {live} of its {lines} lines are still live", about
            )
        elif quantity != seat_count:
            yield Difference(
                "header", f"{where} is {status}: its lines have {quantity} tickets, its header {seat_count}", about,
                "no other record shows which is right; ask its buyer",
            )  # fmt: skip
        elif status in Reservation.LIVE_OR_CONFIRMED and (live < lines or not lines):
            what = f"{lines - live} of its {lines} lines are not live"
            yield Difference("holds_nothing", f"{where} is {status}, and {what}", about)
        else:
            invalid = f", and {wrong} of its lines are invalid" if wrong else ""
            yield Difference(
                "price", f"{where} is {status}: its lines cost {cost}, its header says {total}{invalid}", about,
                "the agreed price is in its order, or known to its buyer",
            )  # fmt: skip
    for event in views:
        yield from _find_orphaned_lines(event)


def _find_orphaned_lines(event: events.EventView) -> Differences:
    slugs = {section.id: section.slug for section in events.list_sections(event.id)}
    for section_ids in auditor.lists_of(sorted(slugs)):
        with auditor.read_cursor() as cursor:
            rows = _lines_of_none.rows(cursor, section_ids=section_ids, limit=FOUND_MAX)
        for section_id, reservation_id, count, quantity in rows:
            yield Difference(
                "hold_of_ended",
                f"{event.slug}/{slugs[section_id]}: {count} lines hold {quantity} tickets for reservation "
                f"{reservation_id}, which does not exist",
                (event.id, reservation_id),
            )


def _repair_lines(difference: Difference, by: str) -> str:
    event_id, reservation_id = difference.about
    reason = Reason(Kind.REPAIRED, by, difference.line)
    with transactions.write(), connection.cursor() as cursor:
        repair.lock(cursor, reservations=[reservation_id])
        status = Reservation.objects.filter(pk=reservation_id).values_list("status", flat=True).first()
        if status in Reservation.LIVE_OR_CONFIRMED:
            return _restore_lines(cursor, reservation_id, reason)
        return _end_leftover_lines(cursor, event_id, reservation_id, reason)


def _end_leftover_lines(cursor: sql.Cursor, event_id: int, reservation_id: UUID, reason: Reason) -> str:
    """End the live lines of an ended reservation, and free the stock that is still assigned to it."""
    lines = _live_lines.rows(cursor, reservation_ids=[reservation_id])
    if not lines:
        return GONE
    seat_ids = sorted(seat_id for _, _, _, seat_id, _ in lines if seat_id is not None)
    general = {section_id for _, _, section_id, seat_id, _ in lines if seat_id is None}
    repair.lock(cursor, seats=seat_ids, sections=general)
    freed = 0
    if seat_ids:
        owners = [reservation_id] * len(seat_ids)
        freed = _free_taken_seats.count(cursor, seat_ids=seat_ids, reservation_ids=owners)
    ended = _end_lines.count(cursor, reservation_ids=[reservation_id])
    one = {"reservation": str(reservation_id)}
    repair.record(
        reason,
        event_id,
        None,
        quantity=freed,
        before={**one, "lines_holding": ended},
        after={**one, "lines_holding": 0},
    )
    for row in repair.read_general_admission(cursor, general):
        # Counts that are not lowered here are reported by the check of counts.
        if row.excess == 0 and not repair.find_reservation_missing_lines(cursor, row):
            repair.set_counts(cursor, row, reason, taken=row.by_lines)
    return REPAIRED


def _restore_lines(cursor: sql.Cursor, reservation_id: UUID, reason: Reason) -> str:
    """Revive all lines of a live or confirmed reservation, if no other reservation has their stock by now."""
    lines = _all_lines.rows(cursor, reservation_id=reservation_id)
    live = {row[0] for row in _live_lines.rows(cursor, reservation_ids=[reservation_id])}
    if not lines:
        raise ManualRepairRequired("it has no lines, so what it held is unknown")
    dead = [line for line in lines if line[0] not in live]
    if not dead:
        return GONE
    seat_ids = [seat_id for _, _, seat_id, _ in dead if seat_id is not None]
    quantities: dict[int, int] = {}
    for _, section_id, seat_id, quantity in dead:
        if seat_id is None:
            quantities[section_id] = quantities.get(section_id, 0) + quantity
    repair.lock(cursor, seats=seat_ids, sections=quantities)
    seats = [(seat_id, repair.read_seat(cursor, seat_id)) for seat_id in sorted(seat_ids)]
    for seat_id, seat in seats:
        if seat is None or seat.standing or not (seat.status == _Status.AVAILABLE or seat.owner == reservation_id):
            raise ManualRepairRequired(f"its seat {seat_id} is no longer free")
    for row in repair.read_general_admission(cursor, quantities):
        if row.by_lines + quantities[row.section_id] > row.room:
            raise ManualRepairRequired(f"{row.section} no longer has its {quantities[row.section_id]} tickets free")
    _revive_lines.count(cursor, reservation_id=reservation_id)
    for _, seat in seats:
        if seat is not None:
            repair.set_seat_owner(cursor, seat, reservation_id, reason)
    for row in repair.read_general_admission(cursor, quantities):
        if not repair.find_reservation_missing_lines(cursor, row):
            repair.set_counts(cursor, row, reason, taken=row.by_lines)
    event_id = Reservation.objects.values_list("event_id", flat=True).get(pk=reservation_id)
    one = {"reservation": str(reservation_id)}
    before, after = {**one, "lines_holding": len(live)}, {**one, "lines_holding": len(lines)}
    repair.record(reason, event_id, None, quantity=-sum(line[3] for line in dead), before=before, after=after)
    return REPAIRED


# --- seats against the lines on them ---------------------------------------------------------------------------------


def _find_seats(part: int | None) -> Differences:
    slugs = {event.id: event.slug for event in _events(part)}
    seen: list[Sequence[Any]] = []

    def scan(cursor: Any, after: int, until: int) -> None:
        seen.extend(_seats.rows(cursor, after=after, until=until))

    scan_seats(scan, part)
    for event_id, section, seat_id, guid, status, owner, owner_status, holder, holder_status in seen:
        if part not in (None, event_id):
            continue
        where = f"{slugs.get(event_id, event_id)}/{section}: seat {guid or seat_id}"
        stands = "has no inventory row" if status is None else f"is {_Status(status).label}"
        names = "" if owner is None else f" for reservation {owner} ({owner_status or 'which does not exist'})"
        if holder is None:
            yield Difference("seat_without_hold", f"{where} {stands}{names}, and no line holds it", seat_id)
        elif owner == holder:
            line = f"{where} {stands}, and its reservation {holder} is {holder_status}"
            yield Difference("seat_status", line, seat_id)
        else:
            line = f"{where} {stands}{names}, and reservation {holder} ({holder_status}) holds it"
            yield Difference("hold_without_seat", line, seat_id)


def _repair_seat(difference: Difference, by: str) -> str:
    seat_id: int = difference.about
    reason = Reason(Kind.REPAIRED, by, difference.line)
    for _ in range(ATTEMPTS_MAX):
        with transactions.write(), connection.cursor() as cursor:
            seen = repair.read_seat(cursor, seat_id)
            if seen is None:
                raise ManualRepairRequired("there is no inventory row to repair")
            repair.lock(cursor, reservations=seen.reservation_ids, seats=[seat_id])
            # Read again under the locks. If the seat has another reservation by now, the next attempt locks that first.
            seat = repair.read_seat(cursor, seat_id)
            if seat is not None and seat.status == _Status.BLOCKED and not seat.reservation_ids:
                return GONE  # Repaired by another process, and blocked since: it must not be put on sale.
            if seat is not None and seat.reservation_ids <= seen.reservation_ids:
                return REPAIRED if repair.set_seat_owner(cursor, seat, _owner_of(seat), reason) else GONE
    return GONE


def _owner_of(seat: repair.Seat) -> UUID | None:
    """Return the reservation that should have the locked seat. Raises ManualRepairRequired if a buyer would lose it."""
    if len(seat.standing) > 1:
        raise ManualRepairRequired("it is sold twice: manage.py compensate")
    owner = seat.standing[0] if seat.standing else None
    if seat.status == _Status.BLOCKED and owner is None:
        raise ManualRepairRequired("it is blocked, but names a reservation that has no line on it")
    if seat.owner is not None and seat.owner != owner and seat.has_standing_owner:
        if seat.owner_has_line:
            raise ManualRepairRequired(f"reservation {seat.owner} has a line for it that is not live")
        if seat.owner_line_quantity != seat.owner_seat_count:
            raise ManualRepairRequired(f"reservation {seat.owner} may have lost its line")
    return owner


# --- counts against the lines ----------------------------------------------------------------------------------------


def _find_general_admission(event: events.EventView) -> Differences:
    rows = []
    general = [section.id for section in events.list_sections(event.id) if section.is_general_admission]
    for section_ids in auditor.lists_of(general):
        with auditor.read_cursor() as cursor:
            rows += repair.read_general_admission(cursor, section_ids)
    for row in rows:
        if row.taken != row.by_lines or row.taken < 0:
            yield Difference(
                "places",
                f"{event.slug}/{row.section}: {row.taken} of {row.capacity} tickets are counted as taken, the lines "
                f"have {row.by_lines}",
                row.section_id,
            )


def _repair_general_admission(difference: Difference, by: str) -> str:
    section_id: int = difference.about
    with transactions.write(), connection.cursor() as cursor:
        repair.lock(cursor, sections=[section_id])
        # A transaction that changes lines changes this row too: while it is locked, both show committed values.
        rows = repair.read_general_admission(cursor, [section_id])
        if not rows:
            return GONE
        if rows[0].excess and rows[0].taken != rows[0].by_lines:
            raise ManualRepairRequired(f"{rows[0].excess} more are sold than available: manage.py compensate")
        missed = repair.find_reservation_missing_lines(cursor, rows[0])
        if missed:
            raise ManualRepairRequired(f"reservation {missed} may have lost its line")
        reason = Reason(Kind.REPAIRED, by, difference.line)
        return REPAIRED if repair.set_counts(cursor, rows[0], reason, taken=rows[0].by_lines) else GONE


# --- overdue holds, and their queue entries --------------------------------------------------------------------------


def _find_overdue(event: events.EventView) -> Differences:
    with auditor.read_cursor() as cursor:
        rows = _overdue.rows(cursor, event_id=event.id, seconds=ORPHANED_SECONDS, limit=FOUND_MAX)
    for reservation_id, status, seat_count, seconds in rows:
        yield Difference(
            "overdue",
            f"{event.slug}: reservation {reservation_id} ({status}) still holds {seat_count} tickets {seconds} s after "
            "its deadline",
            (event.id, reservation_id),
        )


def _repair_overdue(difference: Difference, by: str) -> str:
    """Run the event's sweep, which decides under its own locks and writes the ledger."""
    event_id, reservation_id = difference.about
    if not Reservation.objects.filter(pk=reservation_id, status__in=Reservation.LIVE).exists():
        return GONE
    swept = release.sweep(event_id=event_id, by=f"reconcile:{by}")
    while swept.reservations == release.SWEEP_MAX or (swept.reservations and swept.left):
        swept = release.sweep(event_id=event_id, by=f"reconcile:{by}")
    if Reservation.objects.filter(pk=reservation_id, status__in=Reservation.LIVE).exists():
        raise ManualRepairRequired("its stock cannot be released, or another transaction has it locked")
    return REPAIRED


def _find_entries(event: events.EventView) -> Differences:
    with auditor.read_cursor() as cursor:
        rows = _entries.rows(cursor, event_id=event.id, limit=FOUND_MAX)
    for reservation_id, status, seat_count, entry_id, entry_status in rows:
        entry = f"queue entry {entry_id} " + (f"is {entry_status}" if entry_status else "does not exist")
        yield Difference(
            "entries",
            f"{event.slug}: reservation {reservation_id} ({status}) holds {seat_count} tickets, and its {entry}",
            reservation_id,
            "its buyer may still pay, and it ends at its deadline; cancel it in the admin if no buyer can pay",
        )


# --- oversold stock --------------------------------------------------------------------------------------------------


def _find_oversold(event: events.EventView) -> Differences:
    needs = f"manage.py compensate {event.slug}"
    for one in oversell_plan.find(event.id):
        yield Difference(one.kind, f"{event.slug}/{one.words}", None, needs)
