"""What the winners of a hold write: one aggregated change per row, each checked by its count; headers, lines, ledger
and answers last."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.queue import facade as queue
from apps.reservations import aftermath
from apps.reservations.ending import give_back
from apps.reservations.holds.replacing import Replaced
from apps.reservations.holds.requests import HoldRequest
from apps.reservations.models import Reservation
from ticketing.kernel import sql

ANSWER_STATUS = 201

_PACKAGE = "apps.reservations"
_take_seats = sql.load(_PACKAGE, "take_seats")
_take_general_admission = sql.load(_PACKAGE, "take_general_admission")
_insert_reservations = sql.load(_PACKAGE, "insert_reservations")
_insert_lines = sql.load(_PACKAGE, "insert_lines")
_insert_transitions = sql.load(_PACKAGE, "insert_transitions")
_remember_answers = sql.load(_PACKAGE, "remember_answers")


@dataclass(frozen=True, slots=True)
class Line:
    section_id: int
    category_id: int
    seat_id: int | None
    """Empty: general admission."""
    quantity: int
    price_minor: int
    """Of one, frozen here."""


@dataclass(frozen=True, slots=True)
class Win:
    request: HoldRequest
    account_id: int | None
    lines: tuple[Line, ...]
    total_minor: int
    reserved_until: datetime
    answer: str
    replaced: Replaced | None = None

    @property
    def hold(self) -> aftermath.Hold:
        """The news of it, once it is committed."""
        taken: dict[int, int] = {}
        for line in self.lines:
            taken[line.section_id] = taken.get(line.section_id, 0) + line.quantity
        request = self.request
        return aftermath.Hold(request.event.id, request.reservation_id, request.entry_id, self.reserved_until, taken)

    @property
    def ending(self) -> aftermath.Ended | None:
        """The news of what it replaced."""
        if self.replaced is None:
            return None
        returned = dict(self.replaced.places)
        for seat in self.replaced.seats.values():
            returned[seat.section_id] = returned.get(seat.section_id, 0) + 1
        return aftermath.Ended(self.replaced.event_id, self.replaced.id, returned)


class LostRow(RuntimeError):
    """A write did not touch exactly the rows that were locked for it: the transaction is given up."""


def write_wins(cursor: sql.Cursor, wins: Sequence[Win], now: datetime) -> None:
    """Every winner holds what it won. Joins the transaction that holds the locks of all of it. Raises LostRow."""
    if not wins:
        return
    wins = sorted(wins, key=lambda win: win.request.reservation_id)
    won = [win.request for win in wins]
    ids = [request.reservation_id for request in won]
    _end_replaced(cursor, wins)
    _take_all_seats(cursor, wins)
    _take_all_places(cursor, wins)
    _insert_reservations.count(
        cursor,
        ids=ids,
        event_ids=[request.event.id for request in won],
        entry_ids=[request.entry_id for request in won],
        account_ids=[win.account_id for win in wins],
        buyers=[request.buyer for request in won],
        deadlines=[win.reserved_until for win in wins],
        seat_counts=[request.seat_count for request in won],
        totals=[win.total_minor for win in wins],
        currencies=[request.event.currency for request in won],
        now=now,
    )
    lines = [(win.request, line) for win in wins for line in win.lines]
    _insert_lines.count(
        cursor,
        reservation_ids=[request.reservation_id for request, _ in lines],
        section_ids=[line.section_id for _, line in lines],
        category_ids=[line.category_id for _, line in lines],
        seat_ids=[line.seat_id for _, line in lines],
        quantities=[line.quantity for _, line in lines],
        prices=[line.price_minor for _, line in lines],
    )
    _insert_transitions.count(
        cursor,
        reservation_ids=ids,
        from_statuses=[""] * len(won),
        whos=[request.buyer for request in won],
        to_status="pending_payment",
        why="hold",
        now=now,
    )
    queue.set_busy_until(cursor, {win.request.entry_id: win.reserved_until for win in wins})
    _remember_answers.count(
        cursor,
        scopes=[request.scope for request in won],
        keys=[request.idempotency_key for request in won],
        fingerprints=[request.fingerprint for request in won],
        # JSON writes a line feed as two other characters, so an answer is always one line.
        lines="\n".join(win.answer for win in wins),
        now=now,
    )


def _end_replaced(cursor: sql.Cursor, wins: Sequence[Win]) -> None:
    """What is replaced has ended before anything is taken: its seats may be among those taken, and its entry has one
    live reservation at every moment. All its rows are locked already, so nothing here waits."""
    for win in wins:
        if win.replaced is not None:
            give_back(
                cursor,
                {win.replaced.id: win.replaced.status},
                Reservation.Status.CANCELED,
                who=win.request.buyer,
                why=f"replaced by {win.request.reservation_id}",
            )


def _take_all_seats(cursor: sql.Cursor, wins: Sequence[Win]) -> None:
    taken = [
        (line.seat_id, win.request.reservation_id) for win in wins for line in win.lines if line.seat_id is not None
    ]
    if not taken:
        return
    count = _take_seats.count(
        cursor, seat_ids=[seat for seat, _ in taken], reservation_ids=[owner for _, owner in taken]
    )
    if count != len(taken):
        raise LostRow(f"{count} of {len(taken)} seats taken")


def _take_all_places(cursor: sql.Cursor, wins: Sequence[Win]) -> None:
    """Added up before it goes to the database: of several changes to one row an UPDATE applies only one."""
    sums: dict[int, int] = {}
    for win in wins:
        for section_id, quantity in win.request.quantities.items():
            sums[section_id] = sums.get(section_id, 0) + quantity
    if not sums:
        return
    sections = sorted(sums)
    count = _take_general_admission.count(
        cursor, section_ids=sections, quantities=[sums[section] for section in sections]
    )
    if count != len(sections):
        raise LostRow(f"{count} of {len(sections)} general-admission rows taken from")
