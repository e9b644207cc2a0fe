"""Checking tickets in at the door, and taking a mistaken check-in back.

Whatever a door asks about a ticket is decided under its order's lock, the same that a refund and a new code take: of
two doors that scan one ticket at once, one is told "welcome"; and who gives money back knows who is inside.

A conditional UPDATE of the ticket's own row would settle the two doors as well. It would not settle a door against a
refund, which first asks whether somebody is in and then voids: the check-in could slip in between.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.orders.checkin.ticket_codes import read_code
from apps.orders.locks import lock_order
from apps.orders.models import Order, Ticket, TicketScan
from apps.orders.webhooks import messages

Outcome = TicketScan.Outcome
SCANS_MAX = 100
SCAN_ID_LENGTH_MAX = 64
DOOR_LENGTH_MAX = 60


@dataclass(frozen=True, slots=True)
class Scan:
    """What a device sends: a code to check in, or (`undo`) the id of the scan to take back. `scan_id` is made by the
    device: sent again with the same id it is the same scan."""

    scan_id: str
    code: str = ""
    undo: str = ""
    door: str = ""


@dataclass(frozen=True, slots=True)
class ScannedTicket:
    label: str
    section: str
    row: str
    number: str
    category: str
    holder: str


@dataclass(frozen=True, slots=True)
class ScanAnswer:
    """`since` and `since_door`: where and when the ticket got in, for who comes with it again. `event`: the ticket's
    own, where it is another than the door's."""

    scan_id: str
    outcome: str
    at: datetime
    ticket: ScannedTicket | None
    since: datetime | None = None
    since_door: str = ""
    event: events.EventView | None = None


def scan(event: events.EventView, sent: Scan, who: str, *, only_own: bool = False) -> ScanAnswer:
    """The ticket is checked in, or the check-in taken back, or it is said why not; the scan is on record, once.

    The same scan sent again gets the same answer, however often and from wherever it comes. `only_own`: an undo reaches
    only what the same one let in. Raises IdempotencyMismatch where the scan's id was used for another code.
    """
    try:
        return _record_scan_once(event, sent, who, only_own=only_own)
    except IntegrityError as error:
        # The same id came at the same moment and committed first: about another order, since one's lock would have let
        # us see it, or about a code of nobody. All of ours is undone; its answer can be read now.
        if transactions.violated_constraint(error) != "ticket_scan_once":
            raise
        return _record_scan_once(event, sent, who, only_own=only_own)


def _record_scan_once(event: events.EventView, sent: Scan, who: str, *, only_own: bool) -> ScanAnswer:
    with transactions.write():
        code = read_code(sent.code)
        undoes = _scan_of(event, sent.undo) if sent.undo else None
        if sent.undo:
            code = undoes.code if undoes is not None else code
        ticket = _lock_ticket(code)
        known = _scan_of(event, sent.scan_id)
        if known is not None:
            return _replay_answer(event, known, code, undoes)
        made = TicketScan(event_id=event.id, scan_id=sent.scan_id, code=code, door=sent.door, who=who, at=clock.now())
        if sent.undo:
            _undo(made, ticket, undoes, who if only_own else None)
        else:
            _check_in_ticket(made, ticket)
        made.save(force_insert=True)
        return _answer(event, made)


def _lock_ticket(code: str) -> Ticket | None:
    order_id = Ticket.objects.filter(code=code).values_list("order_id", flat=True).first()
    if order_id is None:
        return None
    order = lock_order(order_id)
    # Read after the lock: a rival may have let it in, voided or replaced it while we waited.
    ticket = Ticket.objects.get(code=code)
    ticket.order = order
    return ticket


def _check_in_ticket(made: TicketScan, ticket: Ticket | None) -> None:
    made.ticket = ticket
    if ticket is None:
        made.outcome = Outcome.UNKNOWN
    elif ticket.order.event_id != made.event_id:
        made.outcome = Outcome.WRONG_EVENT
    elif ticket.successor_id is not None and ticket.order.status in Order.STANDING:
        made.outcome = Outcome.REPLACED
    elif ticket.voided_at is not None or ticket.order.status not in Order.STANDING:
        made.outcome = Outcome.NOT_VALID
    elif ticket.checked_in_at is not None:
        last = _last_check_in(ticket)
        made.outcome = Outcome.ALREADY_IN
        made.since_at, made.since_door = ticket.checked_in_at, last.door if last is not None else ""
    else:
        made.outcome = Outcome.WELCOME
        ticket.checked_in_at = made.at
        # The condition is the last word even for one who comes without the lock.
        let_in = Ticket.objects.filter(pk=ticket.pk, checked_in_at=None, voided_at=None).update(checked_in_at=made.at)
        assert let_in == 1, "the order's lock was held"
        messages.publish_message(ticket.order, messages.Kind.TICKET_CHECKED_IN, [ticket])


def _undo(made: TicketScan, ticket: Ticket | None, undoes: TicketScan | None, own: str | None) -> None:
    """Only the entry that the ticket is in by is taken back: the undo of an older one may have waited in a phone
    without a network while another door let the ticket in anew."""
    made.ticket, made.undoes, made.outcome = ticket, undoes, Outcome.NOT_UNDONE
    if ticket is None or undoes is None or (own is not None and undoes.who != own):
        return
    if ticket.checked_in_at is None or _last_check_in(ticket) != undoes:
        return
    Ticket.objects.filter(pk=ticket.pk).update(checked_in_at=None)
    made.outcome = Outcome.UNDONE


def undo_last_check_in(event: events.EventView, sent: Scan, who: str) -> ScanAnswer:
    """The entry that the ticket with the scan's code is in by is taken back, whoever let it in: for staff away from
    the door. Two of them at once: the second finds nothing to take back."""
    ticket = Ticket.objects.filter(code=read_code(sent.code), order__event_id=event.id).first()
    last = None if ticket is None else _last_check_in(ticket)
    # Where it never got in, the id of a scan that is not made yet: on record as nothing to take back.
    undo = last.scan_id if last is not None else sent.scan_id
    return scan(event, Scan(sent.scan_id, sent.code, undo, sent.door), who)


def _scan_of(event: events.EventView, scan_id: str) -> TicketScan | None:
    return TicketScan.objects.filter(event_id=event.id, scan_id=scan_id).first()


def _last_check_in(ticket: Ticket) -> TicketScan | None:
    return TicketScan.objects.filter(ticket=ticket, outcome=Outcome.WELCOME).order_by("-id").first()


def _replay_answer(event: events.EventView, known: TicketScan, code: str, undoes: TicketScan | None) -> ScanAnswer:
    if known.code != code or known.undoes_id != (undoes.pk if undoes is not None else None):
        raise problems.IdempotencyMismatch("This scan's id was used for another code.")
    return _answer(event, known)


def _answer(event: events.EventView, made: TicketScan) -> ScanAnswer:
    ticket = made.ticket
    other = None
    if made.outcome == Outcome.WRONG_EVENT and ticket is not None:
        other = events.get_event_by_id(ticket.order.event_id)
    return ScanAnswer(
        scan_id=made.scan_id,
        outcome=made.outcome,
        at=made.at,
        ticket=None
        if ticket is None
        else ScannedTicket(ticket.label, ticket.section, ticket.row, ticket.number, ticket.category, ticket.holder),
        since=made.since_at,
        since_door=made.since_door,
        event=other,
    )
