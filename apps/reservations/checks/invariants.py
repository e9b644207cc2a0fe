"""Audit checks of reservations: I1, I2, I3, I5, I10 and the ledger behind I8, in short reads.

Seats and reservations are scanned once each, in batches, and all checks use the findings. A hold or a release changes
the seat, the line, the reservation and the ledger in one transaction, so these always agree within one statement, also
during a sale. Only the number of a section's seats is summed over several batches: if the sum looks wrong, one
statement checks that section again.

An audit of changes checks the reservations with a ledger entry of a transaction since its horizon and the other live
ones of their admissions; the seats of their lines, and those that staff changed; the general-admission sections of
both, if they have fewer than LINES_MAX live lines; the buyers and addresses of these reservations. Overdue reservations
and the inventory rows of general admission are all checked, since a deadline that passes writes nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.db import sql
from apps.reservations.models import AccessCode, Reservation, ReservationLine, SeatInventory

STRANDED_SECONDS = 5
"""Stock that is neither sold nor held by a live reservation must be for sale after this time (I10)."""
GUARD_KNOWN_SECONDS = 30
"""A hold without a code may still be committed this long after its section was restricted: the longest age of a cached
plan plus the longest wait in a batch queue."""
OVERDUE_MAX = 1_000
LAST_SEAT = 2**63 - 1
LINES_MAX = 5_000
"""An audit of changes sums the lines of a general-admission section that has fewer. A sum of more grows with history,
and is left to the audit of everything."""

_PACKAGE = "apps.reservations"
_seats_of_event = sql.load(_PACKAGE, "audit_seats_of_event")
_seat_counts = sql.load(_PACKAGE, "audit_seat_counts")
_seat_facts = sql.load(_PACKAGE, "audit_seat_facts")
_seat_owners = sql.load(_PACKAGE, "audit_seat_owners")
_seats_shared = sql.load(_PACKAGE, "audit_seats_shared")
_sections = sql.load(_PACKAGE, "audit_sections")
_section = sql.load(_PACKAGE, "audit_section")
_general_admission = sql.load(_PACKAGE, "audit_general_admission")
_general_admission_lost = sql.load(_PACKAGE, "audit_general_admission_lost")
_lines = sql.load(_PACKAGE, "audit_lines")
_lines_of_none = sql.load(_PACKAGE, "audit_lines_of_none")
_reservation_facts = sql.load(_PACKAGE, "audit_reservation_facts")
_admissions = sql.load(_PACKAGE, "audit_admissions")
_ledger = sql.load(_PACKAGE, "audit_ledger")
_caps_of_buyers = sql.load(_PACKAGE, "audit_caps_of_buyers")
_access = sql.load(_PACKAGE, "audit_access")
_access_codes = sql.load(_PACKAGE, "audit_access_codes")
_access_of_buyers = sql.load(_PACKAGE, "audit_access_of_buyers")
_caps_of_emails = sql.load(_PACKAGE, "audit_caps_of_emails")
_overdue = sql.load(_PACKAGE, "audit_overdue")
_changed_reservations = sql.load(_PACKAGE, "audit_changed_reservations")
_changed_seats = sql.load(_PACKAGE, "audit_changed_seats")
_changed_sections = sql.load(_PACKAGE, "audit_changed_sections")
_changes_end = sql.load(_PACKAGE, "audit_changes_end")

Rows = list[Sequence[Any]]


def register() -> None:
    """Add these checks to every audit."""
    auditor.register_changes(_find_end)
    auditor.register("I1", "available + held + sold + blocked = capacity in every section", _check_section_totals)
    auditor.register("I2", "a seat belongs to at most one live reservation", _check_seat_owners)
    auditor.register(
        "I3",
        "a general-admission count equals the sum of its lines, within 0 and capacity",
        _check_general_admission_counts,
    )
    auditor.register("I5", "one live reservation per admission; purchase caps hold", _check_admissions_and_caps)
    auditor.register(
        "I5", "no access code exceeds its limits; no restricted section is held without a code", _check_access
    )
    auditor.register("I8", "every reservation's status is that of its last ledger entry", _check_ledger)
    auditor.register("I10", "only live and confirmed reservations hold stock", _check_stranded)
    auditor.register("I10", f"expired holds are released within {STRANDED_SECONDS} s", _check_overdue)


@dataclass(slots=True)
class _Scope:
    """The audited events."""

    views: list[events.EventView]
    event_id: int | None
    """None: all events."""
    slugs: dict[int, str]

    def name(self, event_id: int | None) -> str:
        return self.slugs.get(event_id or 0, f"event {event_id}")


@dataclass(slots=True)
class _SeatFindings:
    """The findings of a scan of the seats."""

    totals: dict[int, int] = field(default_factory=dict)
    """Seats by section id, summed over the batches."""
    uneven: set[int] = field(default_factory=set)
    """Sections where the inventory and the lines of a batch differ."""
    facts: Rows = field(default_factory=list)
    owners: Rows = field(default_factory=list)
    shared: Rows = field(default_factory=list)


@dataclass(slots=True)
class _ReservationFindings:
    """The findings of a scan of the reservations."""

    lines: Rows = field(default_factory=list)
    facts: Rows = field(default_factory=list)
    admissions: set[Sequence[Any]] = field(default_factory=set)
    ledger: Rows = field(default_factory=list)
    access: Rows = field(default_factory=list)


@dataclass(slots=True)
class _GeneralAdmissionFindings:
    """General-admission sections with errors."""

    rows: Rows = field(default_factory=list)
    lost: Rows = field(default_factory=list)


@dataclass(slots=True)
class _Changes:
    """The keys of the rows that an audit of changes checks."""

    reservations: list[UUID]
    buyers: dict[int, set[str]]
    """By event, as the addresses."""
    emails: dict[int, set[str]]
    access_codes: set[int]
    seats: list[int]
    sections: set[int]
    """General-admission sections."""


def _changes(context: auditor.AuditContext) -> _Changes:
    buyers: dict[int, set[str]] = defaultdict(set)
    emails: dict[int, set[str]] = defaultdict(set)
    with auditor.read_cursor() as cursor:
        rows = _changed_reservations.rows(cursor, **context.changes)
        seats = [seat for (seat,) in _changed_seats.rows(cursor, **context.changes)]
        sections = {section for (section,) in _changed_sections.rows(cursor, **context.changes)}
    for _, event_id, buyer, email, _ in rows:
        buyers[event_id].add(buyer)
        emails[event_id].add(email)
    codes = {code for *_, code in rows if code is not None}
    return _Changes([row[0] for row in rows], buyers, emails, codes, seats, sections)


def _find_end(since: int, limit: int) -> int:
    return auditor.read_end(_changes_end, since, limit)


def _scope(context: auditor.AuditContext) -> _Scope:
    if context.only:
        one = events.get_event(context.only)
        return _Scope([one], one.id, {one.id: one.slug})
    views = events.list_events()
    return _Scope(views, None, {view.id: view.slug for view in views})


def _walk_seats(context: auditor.AuditContext) -> _SeatFindings:
    scope, seen = context.once(_scope), _SeatFindings()

    def scan_facts(cursor: Any, batch: auditor.Batch) -> None:
        seen.facts += batch.rows(_seat_facts, cursor)
        seen.owners += batch.rows(_seat_owners, cursor)
        seen.shared += batch.rows(_seats_shared, cursor)

    if context.since is not None:
        auditor.scan(context, SeatInventory.objects.all(), 0, scan_facts, changed=lambda: context.once(_changes).seats)
        return seen

    def scan(cursor: Any, after: int, until: int) -> None:
        for section_id, seats, *counts in _seat_counts.rows(cursor, after=after, until=until):
            seen.totals[section_id] = seen.totals.get(section_id, 0) + int(seats)
            held, sold, line_held, line_sold = counts
            if (held, sold) != (line_held, line_sold):
                seen.uneven.add(section_id)
        scan_facts(cursor, auditor.Batch({"after": after, "until": until}))

    scan_seats(scan, scope.event_id, context.rest)
    if scope.event_id is not None:
        seen.facts = [row for row in seen.facts if row[1] == scope.event_id]
        seen.owners = [row for row in seen.owners if row[1] == scope.event_id]
        seen.shared = [row for row in seen.shared if row[1] == scope.event_id]
    return seen


def scan_seats(
    scan: Callable[[Any, int, int], None], event_id: int | None, rest: Callable[[float], None] = auditor.no_rest
) -> None:
    """Call `scan(cursor, after, until)` for each batch of seats of this event, or of all events; then once for the ids
    after the last seat, which only lines of missing seats can have. Batches contain other events' seats as well."""
    if event_id is None:
        beyond = auditor.scan_in_batches(SeatInventory.objects.all(), 0, scan, rest=rest)
    else:
        with auditor.read_cursor() as cursor:
            ((first, last, beyond),) = _seats_of_event.rows(cursor, event_id=event_id)
        if first is not None:
            auditor.scan_in_batches(SeatInventory.objects.all(), first - 1, scan, last=last, rest=rest)
    with auditor.read_cursor() as cursor:
        scan(cursor, beyond or 0, LAST_SEAT)


def _walk_reservations(context: auditor.AuditContext) -> _ReservationFindings:
    scope, seen = context.once(_scope), _ReservationFindings()

    def scan(cursor: Any, batch: auditor.Batch) -> None:
        event = {"event_id": scope.event_id}
        seen.lines += batch.rows(_lines, cursor, **event)
        seen.facts += batch.rows(_reservation_facts, cursor, **event)
        seen.admissions |= set(batch.rows(_admissions, cursor, **event))
        seen.ledger += batch.rows(_ledger, cursor, **event)
        seen.access += batch.rows(_access, cursor, **event, known_seconds=GUARD_KNOWN_SECONDS)

    changed = lambda: context.once(_changes).reservations  # noqa: E731
    auditor.scan(context, Reservation.objects.all(), UUID(int=0), scan, changed=changed)
    return seen


def _walk_lines(context: auditor.AuditContext) -> Rows:
    """Return live lines of reservations that do not exist, which a scan of the reservations cannot find. No transaction
    of ours deletes a reservation, so an audit of changes has none to check."""
    event_id, rows = context.once(_scope).event_id, ReservationLine.objects.all()
    (found,) = auditor.find(context, rows, 0, [_lines_of_none], changed=list, event_id=event_id)
    return found


def _list_sections(context: auditor.AuditContext) -> Rows:
    with auditor.read_cursor() as cursor:
        return list(_sections.rows(cursor, event_id=context.once(_scope).event_id))


def _walk_general_admission(context: auditor.AuditContext) -> _GeneralAdmissionFindings:
    scope, seen = context.once(_scope), _GeneralAdmissionFindings()
    general = [
        section_id
        for section_id, event_id, kind, _ in context.once(_list_sections)
        if kind == "general_admission" and event_id in scope.slugs
    ]
    for section_ids in auditor.lists_of(general):
        lines_max: list[int | None] = [None] * len(section_ids)
        if context.since is not None:
            changed = context.once(_changes).sections
            lines_max = [LINES_MAX if section_id in changed else 0 for section_id in section_ids]
        with auditor.read_cursor() as cursor:
            seen.rows += _general_admission.rows(cursor, section_ids=section_ids, lines_max=lines_max)
    with auditor.read_cursor() as cursor:
        seen.lost += _general_admission_lost.rows(cursor, event_id=scope.event_id)
    return seen


def _check_section_totals(context: auditor.AuditContext) -> Iterator[str]:
    scope, seats = context.once(_scope), context.once(_walk_seats)
    for section_id, event_id, kind, capacity in context.once(_list_sections):
        # An audit of changes counts no section.
        is_suspect = context.since is None and (
            section_id in seats.uneven or seats.totals.get(section_id, 0) != capacity
        )
        if kind != "reserved" or event_id not in scope.slugs or not is_suspect:
            continue
        # Seats may have been added between two batches, or the event published after the last one: check again in one
        # statement.
        with auditor.read_cursor() as cursor:
            rows = _section.rows(cursor, section_id=section_id)
        for _, section, capacity_now, total, available, blocked, held, sold, line_held, line_sold in rows:
            yield (
                f"{scope.name(event_id)}/{section}: capacity {capacity_now}, {total} inventory rows, {available} "
                f"available, {blocked} blocked; held {held} against {line_held} by lines, sold {sold} against "
                f"{line_sold}"
            )
    for seat, event_id, status, blocked_for, owner, section_id, place, is_another in seats.facts:
        yield (
            f"{scope.name(event_id)}: seat {seat} has status {status}, blocked for {blocked_for or 'nothing'}, "
            f"reservation {owner}; its section is {section_id}, the plan's {place}"
            + ("; it is sold at another location or price than the plan's" if is_another else "")
        )
    reservations = context.once(_walk_reservations)
    for event_id, reservation, status, live, count, seat_count, quantity, total, cost, wrong in reservations.lines:
        yield (
            f"{scope.name(event_id)}: reservation {reservation} is {status} with {live} of {count} lines live, "
            f"{quantity} tickets against {seat_count} in its header, {cost} against {total} to pay"
            + (f"; {wrong} lines are invalid" if wrong else "")
        )
    for event_id, reservation, _, _, _, _, _, seat_count, total, *_ in reservations.facts:
        if seat_count < 1 or total < 0:
            yield f"{scope.name(event_id)}: reservation {reservation} has {seat_count} tickets for {total}"
    for event_id, section_id, capacity, taken, count in context.once(_walk_general_admission).lost:
        what = f"there are {count} such rows" if count > 1 else "this is not a general-admission section"
        yield f"{scope.name(event_id)}: capacity {capacity}, {taken} taken, of section {section_id}: {what}"
    for event_id, section, published, capacity, blocked, house, taken, _, of_event in context.once(
        _walk_general_admission
    ).rows:
        if capacity is None:
            yield f"{scope.name(event_id)}: general admission {section}: no inventory row"
        elif of_event != event_id:
            yield f"{scope.name(event_id)}: general admission {section}: its inventory belongs to event {of_event}"
        elif capacity != published:
            yield f"{scope.name(event_id)}: general admission {section}: capacity {capacity}, published {published}"
        elif house < 0 or house > blocked:
            yield (
                f"{scope.name(event_id)}: general admission {section}: house seats {house} of {blocked} blocked, "
                f"taken {taken}, capacity {capacity}"
            )


def _check_seat_owners(context: auditor.AuditContext) -> Iterator[str]:
    scope, seats = context.once(_scope), context.once(_walk_seats)
    for seat, event_id, count in seats.shared:
        yield f"{scope.name(event_id)}: seat {seat} is on {count} live lines"
    for seat, event_id, status, owner, by_line, state in seats.owners:
        yield (
            f"{scope.name(event_id)}: seat {seat} (status {status}) belongs to {owner} ({state}), its live line to "
            f"{by_line}"
        )


def _check_general_admission_counts(context: auditor.AuditContext) -> Iterator[str]:
    scope = context.once(_scope)
    for event_id, section, _, capacity, blocked, _, taken, by_lines, _ in context.once(_walk_general_admission).rows:
        if capacity is None:
            continue
        if taken != by_lines or taken < 0 or blocked < 0 or taken + blocked > capacity:
            yield (
                f"{scope.name(event_id)}: general admission {section}: taken {taken} against {by_lines} by lines, "
                f"blocked {blocked}, capacity {capacity}"
            )


def _check_admissions_and_caps(context: auditor.AuditContext) -> Iterator[str]:
    scope = context.once(_scope)
    for event_id, entry, count in sorted(context.once(_walk_reservations).admissions, key=str):
        yield f"{scope.name(event_id)}: admission {entry} has {count} live reservations"
    for event_id, reservation, *_, entry, has_entry in context.once(_walk_reservations).facts:
        if not has_entry:
            yield f"{scope.name(event_id)}: reservation {reservation}: {entry} is not an entry of this event"
    for event in scope.views:
        most = event.policy.per_buyer_max
        if most is not None:
            for kind, buyer, count in _above_cap(context, event, most):
                yield f"{event.slug}: {kind} {buyer} has {count} of at most {most}"


def _above_cap(context: auditor.AuditContext, event: events.EventView, most: int) -> Rows:
    """Return who has more than the limit by a reservation from since it holds: a lower limit takes nothing away."""
    counted = Reservation.objects.filter(event_id=event.id, status__in=Reservation.LIVE_OR_CONFIRMED)
    params = {"event_id": event.id, "per_buyer_max": most, "since": events.cap_since(event)}
    (buyers,) = auditor.find(
        context,
        counted,
        "",
        [_caps_of_buyers],
        changed=lambda: context.once(_changes).buyers.get(event.id, ()),
        key="buyer",
        **params,
    )
    (emails,) = auditor.find(
        context,
        counted.exclude(email=""),
        "",
        [_caps_of_emails],
        changed=lambda: context.once(_changes).emails.get(event.id, ()),
        key="email",
        **params,
    )
    return [*(("buyer", *row) for row in buyers), *(("email", *row) for row in emails)]


def _check_access(context: auditor.AuditContext) -> Iterator[str]:
    scope = context.once(_scope)
    for event_id, reservation, status, section, code in context.once(_walk_reservations).access:
        which = f"{scope.name(event_id)}: reservation {reservation} is {status}"
        if code is not None:
            yield f"{which} by access code {code}, which belongs to another event"
        else:
            yield f"{which} in {section}, which requires an access code, without one"
    statements = [_access_codes, _access_of_buyers]
    changed = lambda: context.once(_changes).access_codes  # noqa: E731
    rows = AccessCode.objects.all()
    found = auditor.find(context, rows, 0, statements, changed=changed, event_id=scope.event_id)
    for event_id, code, buyer, most, count in chain(*found):
        yield f"{scope.name(event_id)}: access code {code}{buyer}: used by {count} reservations of at most {most}"


def _check_ledger(context: auditor.AuditContext) -> Iterator[str]:
    scope, reservations = context.once(_scope), context.once(_walk_reservations)
    for event_id, reservation, status, pay_deadline, expires_at, confirmed_at, ended_at, *_ in reservations.facts:
        when = {"paying": pay_deadline, "confirmed": confirmed_at, "canceled": ended_at, "expired": ended_at}
        if when.get(status, status) is None or status not in (*when, "pending_payment"):
            yield f"{scope.name(event_id)}: reservation {reservation} is {status} without the time of that status"
        if pay_deadline is not None and pay_deadline < expires_at:
            yield (
                f"{scope.name(event_id)}: reservation {reservation} had to be paid by {clock.iso(pay_deadline)}, "
                f"before its hold ended at {clock.iso(expires_at)}"
            )
    for event_id, reservation, status, before, after, stood, is_last in reservations.ledger:
        which = f"{scope.name(event_id)}: reservation {reservation}"
        if before is not None and before != stood:
            yield f"{which} was {stood or 'new'}, but its next ledger entry is {before or 'new'} → {after}"
        elif is_last is False:
            yield f"{which}: {before or 'new'} → {after} is not a valid transition"
        else:
            yield f"{which} is {status}, its last ledger entry is {before} → {after}"


def _check_stranded(context: auditor.AuditContext) -> Iterator[str]:
    scope, seats = context.once(_scope), context.once(_walk_seats)
    for seat, event_id, status, owner, _, state in seats.owners:
        if status is not None and state not in Reservation.LIVE_OR_CONFIRMED:
            yield f"{scope.name(event_id)}: seat {seat} (status {status}) is held by {owner} ({state or 'unknown'})"
    for event_id, reservation, status, live, *_ in context.once(_walk_reservations).lines:
        if live and status not in Reservation.LIVE_OR_CONFIRMED:
            yield f"{scope.name(event_id)}: reservation {reservation} is {status}, {live} of its lines are live"
    for event_id, reservation, quantity in context.once(_walk_lines):
        yield f"{scope.name(event_id)}: a line holds {quantity} for reservation {reservation}, which does not exist"
    for event_id, section, _, capacity, _, _, taken, by_lines, _ in context.once(_walk_general_admission).rows:
        if capacity is not None and taken > by_lines:
            yield (
                f"{scope.name(event_id)}: general admission {section}: {taken - by_lines} of {taken} taken have no line"
            )


def _check_overdue(context: auditor.AuditContext) -> Iterator[str]:
    scope = context.once(_scope)
    # The time is fixed before the read, since an index cannot be used with clock_timestamp().
    before = clock.now() - timedelta(seconds=STRANDED_SECONDS)
    with auditor.read_cursor() as cursor:
        rows = _overdue.rows(cursor, before=before, event_id=scope.event_id, limit=OVERDUE_MAX)
    for event_id, reservation, status, deadline in rows:
        yield (
            f"overdue: {scope.name(event_id)}: reservation {reservation} is {status}, its deadline was "
            f"{clock.iso(deadline)}"
        )
