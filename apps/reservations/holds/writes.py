"""Last stage of a hold transaction: write what the winners hold.

One aggregated change per row, each checked by its row count; headers, lines, transitions and answers come last.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from apps.kernel.db import arrays, sql, transactions
from apps.queue import facade as queue
from apps.reservations.holds.replacement import Replaced
from apps.reservations.holds.requests import HoldRequest
from apps.reservations.lifecycle.changes import Ended, Hold
from apps.reservations.lifecycle.gate_counts import READ_TRANSACTION_ID
from apps.reservations.lifecycle.release import end_reservations
from apps.reservations.models import Reservation

ANSWER_STATUS = 201

_PACKAGE = "apps.reservations"
# The updates fail unless they touch exactly the rows that were locked. An insert adds as many rows as it is given.
_take_seats = sql.load(_PACKAGE, "take_seats", prepared=True, exactly=True)
_take_general_admission = sql.load(_PACKAGE, "take_general_admission", prepared=True, exactly=True)
_insert_reservations = sql.load(_PACKAGE, "insert_reservations", prepared=True)
_insert_reservations_by_code = sql.load(_PACKAGE, "insert_reservations_by_code")
_insert_lines = sql.load(_PACKAGE, "insert_lines", prepared=True)
_insert_transitions = sql.load(_PACKAGE, "insert_transitions", prepared=True)
_remember_answers = sql.load(_PACKAGE, "remember_answers", prepared=True)


class Line(NamedTuple):
    section_id: int
    category_id: int
    seat_id: int | None
    """None: general admission."""
    quantity: int
    price_minor: int
    """The price of one seat or ticket, fixed by the hold."""


class Win(NamedTuple):
    request: HoldRequest
    account_id: int | None
    lines: tuple[Line, ...]
    total_minor: int
    reserved_until: datetime
    answer: str
    replaced: Replaced | None = None
    access_code_id: int | None = None
    """The code that admitted it, if its sections need one."""

    def hold(self, transaction_id: int | None) -> Hold:
        """Return the change to announce once this transaction is committed."""
        taken: dict[int, int] = {}
        for section_id, _, _, quantity, _ in self.lines:
            taken[section_id] = taken.get(section_id, 0) + quantity
        request = self.request
        entry_id, until = request.entry_id, self.reserved_until
        return Hold(request.event.id, request.reservation_id, entry_id, until, taken, transaction_id)

    def ending(self, transaction_id: int | None) -> Ended | None:
        """Return the end of the reservation that it replaced, to announce after the commit."""
        if self.replaced is None:
            return None
        returned = dict(self.replaced.quantities)
        for seat in self.replaced.seats.values():
            returned[seat.section_id] = returned.get(seat.section_id, 0) + 1
        return Ended(self.replaced.event_id, self.replaced.id, returned, transaction_id=transaction_id)


class RowCountMismatch(RuntimeError):
    """A write did not touch exactly the rows that were locked for it; the transaction is rolled back."""


def write_wins(cursor: sql.Cursor, wins: Sequence[Win], now: datetime) -> int | None:
    """Write what the winners hold and commit, in one round trip; return the transaction's id, None if there are none.
    Joins the transaction that has everything locked. Raises RowCountMismatch."""
    if not wins:
        return None
    wins = sorted(wins, key=lambda win: win.request.reservation_id.int)
    _end_replaced(cursor, wins)
    won = [win.request for win in wins]
    calls = [
        *_take_seats_calls(wins),
        *_take_general_admission_calls(wins),
        *_insert_reservations_calls(wins, now),
        _insert_lines_call(wins),
        _insert_transitions.call(
            reservation_ids=arrays.uuids([request.reservation_id for request in won]),
            from_statuses=arrays.texts([""] * len(won)),
            whos=arrays.texts([request.buyer for request in won]),
            to_status="pending_payment",
            why="hold",
            now=now,
        ),
        queue.set_busy_until_call(
            arrays.uuids([request.entry_id for request in won]),
            arrays.moments([win.reserved_until for win in wins]),
            len(wins),
        ),
        _remember_answers.call(
            scopes=arrays.texts([request.scope for request in won]),
            keys=arrays.texts([request.idempotency_key for request in won]),
            fingerprints=arrays.texts([request.fingerprint for request in won]),
            # JSON escapes line feeds, so an answer is always one line.
            lines="\n".join([win.answer for win in wins]),
            now=now,
        ),
        READ_TRANSACTION_ID,
    ]
    try:
        results = sql.execute_batch_and_commit(cursor, calls)
    except transactions.FAILURES as error:
        if not transactions.is_rowcount_mismatch(error):
            raise
        raise RowCountMismatch(str(error)) from error
    return int(results[-1].rows[0][0])


def _end_replaced(cursor: sql.Cursor, wins: Sequence[Win]) -> None:
    """End replaced reservations before anything is taken: the new hold may take their seats, and an entry never has two
    live reservations. All their rows are locked already, so nothing waits here."""
    for win in wins:
        if win.replaced is not None:
            end_reservations(
                cursor,
                {win.replaced.id: win.replaced.status},
                Reservation.Status.CANCELED,
                who=win.request.buyer,
                why=f"replaced by {win.request.reservation_id}",
            )


def _take_seats_calls(wins: Sequence[Win]) -> list[sql.Call]:
    taken = [(line[2], win.request.reservation_id) for win in wins for line in win.lines if line[2] is not None]
    seat_ids, owners = arrays.numbers([seat for seat, _ in taken]), arrays.uuids([owner for _, owner in taken])
    return [_take_seats.call(seat_ids=seat_ids, reservation_ids=owners, rows=len(taken))] if taken else []


def _take_general_admission_calls(wins: Sequence[Win]) -> list[sql.Call]:
    """Sum the changes of each row: of several changes to one row, an UPDATE applies only one."""
    sums: Counter[int] = Counter()
    for win in wins:
        sums.update(win.request.quantities)
    section_ids, quantities = arrays.numbers(sums), arrays.numbers(sums.values())
    call = _take_general_admission.call(section_ids=section_ids, quantities=quantities, rows=len(sums))
    return [call] if sums else []


def _insert_reservations_calls(wins: Sequence[Win], now: datetime) -> list[sql.Call]:
    """Reservations admitted by an access code have a statement of their own, so that others do not pay for it."""
    by_code = [win for win in wins if win.access_code_id is not None]
    others = [win for win in wins if win.access_code_id is None] if by_code else wins
    calls = [_insert_reservations.call(**_headers(others), now=now)] if others else []
    if by_code:
        codes = arrays.numbers([win.access_code_id for win in by_code])
        calls.append(_insert_reservations_by_code.call(**_headers(by_code), access_code_ids=codes, now=now))
    return calls


def _headers(wins: Sequence[Win]) -> dict[str, arrays.Array]:
    won = [win.request for win in wins]
    return {
        "ids": arrays.uuids([request.reservation_id for request in won]),
        "entry_ids": arrays.uuids([request.entry_id for request in won]),
        "buyers": arrays.texts([request.buyer for request in won]),
        "deadlines": arrays.moments([win.reserved_until for win in wins]),
        "event_ids": arrays.numbers([request.event.id for request in won]),
        "account_ids": arrays.numbers([win.account_id for win in wins]),
        "seat_counts": arrays.numbers([sum([line[3] for line in win.lines]) for win in wins]),
        "totals": arrays.numbers([win.total_minor for win in wins]),
        "currencies": arrays.texts([request.event.currency for request in won]),
    }


def _insert_lines_call(wins: Sequence[Win]) -> sql.Call:
    lines = [(win.request.reservation_id, *line) for win in wins for line in win.lines]
    owners, sections, categories, seats, quantities, prices = zip(*lines, strict=True)
    return _insert_lines.call(
        reservation_ids=arrays.uuids(owners),
        section_ids=arrays.numbers(sections),
        category_ids=arrays.numbers(categories),
        seat_ids=arrays.numbers(seats),
        quantities=arrays.numbers(quantities),
        prices=arrays.numbers(prices),
    )
