"""What the winners of a hold write: one aggregated change per row, each checked by its count; headers, lines, ledger
and answers last."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from apps.kernel.db import arrays, sql, transactions
from apps.queue import facade as queue
from apps.reservations.holds.replacement import Replaced
from apps.reservations.holds.requests import HoldRequest
from apps.reservations.lifecycle.changes import Ended, Hold
from apps.reservations.lifecycle.release import end_reservations
from apps.reservations.models import Reservation

ANSWER_STATUS = 201

_PACKAGE = "apps.reservations"
# What was locked is touched, all of it and nothing else, or these fail. What adds rows adds as many as it is given.
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
    """Empty: general admission."""
    quantity: int
    price_minor: int
    """Of one, frozen here."""


class Win(NamedTuple):
    request: HoldRequest
    account_id: int | None
    lines: tuple[Line, ...]
    total_minor: int
    reserved_until: datetime
    answer: str
    replaced: Replaced | None = None
    access_code_id: int | None = None
    """What let it in, where something wanted an access code."""

    @property
    def hold(self) -> Hold:
        """The news of it, once it is committed."""
        taken: dict[int, int] = {}
        for section_id, _, _, quantity, _ in self.lines:
            taken[section_id] = taken.get(section_id, 0) + quantity
        request = self.request
        return Hold(request.event.id, request.reservation_id, request.entry_id, self.reserved_until, taken)

    @property
    def ending(self) -> Ended | None:
        """The news of what it replaced."""
        if self.replaced is None:
            return None
        returned = dict(self.replaced.places)
        for seat in self.replaced.seats.values():
            returned[seat.section_id] = returned.get(seat.section_id, 0) + 1
        return Ended(self.replaced.event_id, self.replaced.id, returned)


def _in_order(win: Win) -> int:
    return win.request.reservation_id.int


class RowCountMismatch(RuntimeError):
    """A write did not touch exactly the rows that were locked for it: the transaction is given up."""


def write_wins(cursor: sql.Cursor, wins: Sequence[Win], now: datetime) -> None:
    """Every winner holds what it won. Joins the transaction that holds the locks of all of it. Raises
    RowCountMismatch."""
    if not wins:
        return
    wins = sorted(wins, key=_in_order)
    _end_replaced(cursor, wins)
    won = [win.request for win in wins]
    ids = arrays.uuids([request.reservation_id for request in won])
    entry_ids = arrays.uuids([request.entry_id for request in won])
    buyers = arrays.texts([request.buyer for request in won])
    deadlines = arrays.moments([win.reserved_until for win in wins])
    calls = [
        *_take_seats_calls(wins),
        *_take_places_calls(wins),
        *_insert_reservations_calls(wins, ids, entry_ids, buyers, deadlines, now),
        _insert_lines_call(wins, ids),
        _insert_transitions.call(
            reservation_ids=ids,
            from_statuses=arrays.texts([""] * len(won)),
            whos=buyers,
            to_status="pending_payment",
            why="hold",
            now=now,
        ),
        queue.set_busy_until_call(entry_ids, deadlines, len(wins)),
        _remember_answers.call(
            scopes=arrays.texts([request.scope for request in won]),
            keys=arrays.texts([request.idempotency_key for request in won]),
            fingerprints=arrays.texts([request.fingerprint for request in won]),
            # JSON writes a line feed as two other characters, so an answer is always one line.
            lines="\n".join([win.answer for win in wins]),
            now=now,
        ),
    ]
    try:
        sql.execute_batch_and_commit(cursor, calls)
    except transactions.FAILURES as error:
        if not transactions.is_rowcount_mismatch(error):
            raise
        raise RowCountMismatch(str(error)) from error


def _end_replaced(cursor: sql.Cursor, wins: Sequence[Win]) -> None:
    """What is replaced has ended before anything is taken: its seats may be among those taken, and its entry has one
    live reservation at every moment. All its rows are locked already, so nothing here waits."""
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
    if not taken:
        return []
    return [
        _take_seats.call(
            seat_ids=arrays.numbers([seat for seat, _ in taken]),
            reservation_ids=arrays.uuids([owner for _, owner in taken]),
            rows=len(taken),
        )
    ]


def _take_places_calls(wins: Sequence[Win]) -> list[sql.Call]:
    """Added up before it goes to the database: of several changes to one row an UPDATE applies only one."""
    sums: dict[int, int] = {}
    for win in wins:
        for section_id, quantity in win.request.quantities.items():
            sums[section_id] = sums.get(section_id, 0) + quantity
    if not sums:
        return []
    sections = sorted(sums)
    return [
        _take_general_admission.call(
            section_ids=arrays.numbers(sections),
            quantities=arrays.numbers([sums[section] for section in sections]),
            rows=len(sections),
        )
    ]


def _insert_reservations_calls(
    wins: Sequence[Win],
    ids: arrays.Array,
    entry_ids: arrays.Array,
    buyers: arrays.Array,
    deadlines: arrays.Array,
    now: datetime,
) -> list[sql.Call]:
    """By one statement, and those whom an access code let in by another, which nobody else pays for."""
    by_code = [win for win in wins if win.access_code_id is not None]
    if by_code:
        without = [win for win in wins if win.access_code_id is None]
        codes = arrays.numbers([win.access_code_id for win in by_code])
        calls = [_insert_reservations_by_code.call(**_headers(by_code), access_code_ids=codes, now=now)]
        return [*calls, *([_insert_reservations.call(**_headers(without), now=now)] if without else [])]
    at_hand = {"ids": ids, "entry_ids": entry_ids, "buyers": buyers, "deadlines": deadlines}
    return [_insert_reservations.call(**_headers(wins, at_hand), now=now)]


def _headers(wins: Sequence[Win], at_hand: dict[str, arrays.Array] | None = None) -> dict[str, arrays.Array]:
    """The columns of these winners' headers; `at_hand` are those that other statements of all winners have too."""
    won = [win.request for win in wins]
    return (
        at_hand
        or {
            "ids": arrays.uuids([request.reservation_id for request in won]),
            "entry_ids": arrays.uuids([request.entry_id for request in won]),
            "buyers": arrays.texts([request.buyer for request in won]),
            "deadlines": arrays.moments([win.reserved_until for win in wins]),
        }
    ) | {
        "event_ids": arrays.numbers([request.event.id for request in won]),
        "account_ids": arrays.numbers([win.account_id for win in wins]),
        "seat_counts": arrays.numbers([sum([line[3] for line in win.lines]) for win in wins]),
        "totals": arrays.numbers([win.total_minor for win in wins]),
        "currencies": arrays.texts([request.event.currency for request in won]),
    }


def _insert_lines_call(wins: Sequence[Win], ids: arrays.Array) -> sql.Call:
    lines = [line for win in wins for line in win.lines]
    if len(lines) != len(wins):
        ids = arrays.uuids([win.request.reservation_id for win in wins for _ in win.lines])
    return _insert_lines.call(
        reservation_ids=ids,
        section_ids=arrays.numbers([line[0] for line in lines]),
        category_ids=arrays.numbers([line[1] for line in lines]),
        seat_ids=arrays.numbers([line[2] for line in lines]),
        quantities=arrays.numbers([line[3] for line in lines]),
        prices=arrays.numbers([line[4] for line in lines]),
    )
