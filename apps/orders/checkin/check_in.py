"""Check tickets in at the door, and undo mistaken check-ins.

Each scan is decided under its order's lock, which refunds and reissues also take. If two doors scan one ticket at once,
only one gets "welcome", and a refund sees which tickets are checked in.

A conditional UPDATE of the ticket's row would also decide between two doors, but not between a door and a refund: the
refund first checks that the ticket is not checked in and then voids it, and a check-in could commit in between.
"""

from dataclasses import dataclass, field
from datetime import datetime

from django.db import IntegrityError

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.orders.checkin.entry_times import WARNINGS, find_warning
from apps.orders.checkin.ticket_codes import read_code
from apps.orders.locks import lock_order
from apps.orders.models import Order, Ticket, TicketScan
from apps.orders.webhooks import messages

Outcome = TicketScan.Outcome
SCANS_MAX = 20
"""In one request, which takes up to half a second of one thread with so many."""
SCAN_ID_LENGTH_MAX = 64
DOOR_LENGTH_MAX = 60


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan from a device: a code to check in, or (`undo`) the id of the scan to undo. The device generates `scan_id`;
    a retry has the same id and is the same scan. `anyway`: staff let the ticket in despite a warning about the time."""

    scan_id: str
    code: str = field(default="", repr=False)
    undo: str = ""
    door: str = ""
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class ScanAnswer:
    """The result of a scan. For an already checked-in ticket, `since` and `since_door` are the time and the door of its
    check-in. `event` is the ticket's event if it is not the door's."""

    scan_id: str
    outcome: str
    at: datetime
    ticket: Ticket | None
    since: datetime | None = None
    since_door: str = ""
    event: events.EventView | None = None

    @property
    def is_warning(self) -> bool:
        """Whether another scan with `anyway` admits the ticket."""
        return self.outcome in WARNINGS


def scan(event: events.EventView, sent: Scan, who: str, *, only_own: bool = False) -> ScanAnswer:
    """Check the ticket in or undo a check-in, and record the scan, once. Return the outcome, which may be a refusal.

    A retry of the same scan gets the same answer, from any device. `only_own`: the caller can undo only its own
    check-ins. Raises IdempotencyMismatch if the scan's id was used for another code, or without the same `anyway`.
    """
    try:
        return _record_scan_once(event, sent, who, only_own=only_own)
    except IntegrityError as error:
        # A concurrent scan with the same id committed first. It was of another order's ticket or of an unknown code:
        # two scans of one order wait for its lock. Our transaction was rolled back; the second try finds that scan.
        if transactions.violated_constraint(error) != "ticket_scan_once":
            raise
        return _record_scan_once(event, sent, who, only_own=only_own)


def _record_scan_once(event: events.EventView, sent: Scan, who: str, *, only_own: bool) -> ScanAnswer:
    with transactions.write():
        undoes = _scan_of(event, sent.undo) if sent.undo else None
        code = undoes.code if undoes is not None else read_code(sent.code)
        ticket = _lock_ticket(code, event.organizer_id)
        known = _scan_of(event, sent.scan_id)
        if known is not None:
            if known.code != code or known.undoes_id != (undoes.pk if undoes is not None else None):
                raise problems.IdempotencyMismatch("This scan's id was used for another code.")
            if known.anyway != sent.anyway:
                raise problems.IdempotencyMismatch("A confirmation to let in anyway needs a scan_id of its own.")
            return _answer(known)
        record = TicketScan(
            event_id=event.id,
            scan_id=sent.scan_id,
            code=code,
            door=sent.door,
            who=who,
            anyway=sent.anyway,
            at=clock.now(),
        )
        if sent.undo:
            _undo(record, ticket, undoes, who if only_own else None)
        else:
            _check_in_ticket(record, ticket, event)
        record.save(force_insert=True)
        return _answer(record)


def _lock_ticket(code: str, organizer_id: int) -> Ticket | None:
    """Lock the order of the ticket with this code, and return the ticket. To a door, the tickets of another organizer's
    events are unknown: the answer would show whose they are."""
    known = Ticket.objects.filter(code=code, order__event__organizer=organizer_id)
    order_id = known.values_list("order_id", flat=True).first()
    if order_id is None:
        return None
    order = lock_order(order_id)
    # Read the ticket after the lock: another transaction may have checked it in, voided or replaced it meanwhile.
    ticket = Ticket.objects.get(code=code)
    ticket.order = order
    return ticket


def _check_in_ticket(record: TicketScan, ticket: Ticket | None, event: events.EventView) -> None:
    record.ticket = ticket
    if ticket is None:
        record.outcome = Outcome.UNKNOWN
    elif ticket.order.event_id != record.event_id:
        record.outcome = Outcome.WRONG_EVENT
    elif ticket.successor_id is not None and ticket.order.status in Order.STANDING:
        record.outcome = Outcome.REPLACED
    elif ticket.voided_at is not None or ticket.order.status not in Order.STANDING:
        record.outcome = Outcome.NOT_VALID
    elif ticket.checked_in_at is not None:
        last = _last_check_in(ticket)
        record.outcome = Outcome.ALREADY_IN
        record.since_at, record.since_door = ticket.checked_in_at, last.door if last is not None else ""
    elif event.selling_state(record.at) == "canceled":
        # The refunds of a canceled event take a while; until then its tickets are still valid.
        record.outcome = Outcome.CANCELED
    elif not record.anyway and (warning := find_warning(event, record.at)) is not None:
        record.outcome = warning
    else:
        record.outcome = Outcome.WELCOME
        ticket.checked_in_at = record.at
        # The conditions also exclude a double check-in by a writer that does not take the order's lock.
        updated = Ticket.objects.filter(pk=ticket.pk, checked_in_at=None, voided_at=None).update(
            checked_in_at=record.at
        )
        assert updated == 1, "the order's lock was held"
        messages.publish_message(ticket.order, messages.Kind.TICKET_CHECKED_IN, [ticket])


def _undo(record: TicketScan, ticket: Ticket | None, undoes: TicketScan | None, own: str | None) -> None:
    """Undo the check-in only if it is the ticket's latest. An offline phone may send the undo of an older one after
    another door has checked the ticket in again."""
    record.ticket, record.undoes, record.outcome = ticket, undoes, Outcome.NOT_UNDONE
    if ticket is None or undoes is None or (own is not None and undoes.who != own):
        return
    if ticket.checked_in_at is None or _last_check_in(ticket) != undoes:
        return
    Ticket.objects.filter(pk=ticket.pk).update(checked_in_at=None)
    record.outcome = Outcome.UNDONE


def undo_last_check_in(event: events.EventView, sent: Scan, who: str) -> ScanAnswer:
    """Undo the latest check-in of the ticket with the scan's code, whichever scanner made it. For staff away from the
    door. The second of two concurrent calls finds nothing to undo."""
    ticket = Ticket.objects.filter(code=read_code(sent.code), order__event_id=event.id).first()
    last = None if ticket is None else _last_check_in(ticket)
    # For a ticket that was never checked in, pass this scan's own id: no such scan is stored yet, so nothing is undone.
    undo = last.scan_id if last is not None else sent.scan_id
    return scan(event, Scan(sent.scan_id, sent.code, undo, sent.door), who)


def _scan_of(event: events.EventView, scan_id: str) -> TicketScan | None:
    return TicketScan.objects.filter(event_id=event.id, scan_id=scan_id).first()


def _last_check_in(ticket: Ticket) -> TicketScan | None:
    return TicketScan.objects.filter(ticket=ticket, outcome=Outcome.WELCOME).order_by("-id").first()


def _answer(record: TicketScan) -> ScanAnswer:
    ticket, other = record.ticket, None
    if record.outcome == Outcome.WRONG_EVENT and ticket is not None:
        other = events.get_event_by_id(ticket.order.event_id)
    return ScanAnswer(
        scan_id=record.scan_id,
        outcome=record.outcome,
        at=record.at,
        ticket=ticket,
        since=record.since_at,
        since_door=record.since_door,
        event=other,
    )
