"""One transaction of a hold: what it decides, lock by lock.

The order inside, which is the order of the whole system: queue entries, reservations to be replaced, cap rows, access
codes, seats, then general-admission rows; within each kind by id (`statements` has them). Everything is decided in
memory, in arrival order; only then is anything written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import roundtrip, sql, transactions
from apps.kernel.http import idempotency, problems
from apps.queue import facade as queue
from apps.reservations.errors import NotEnoughLeft, PurchaseCapReached, ReservationExists, SoldOut
from apps.reservations.holds import access_codes, prior_answers, statements
from apps.reservations.holds.answers import answer_text, reservation_of_answer
from apps.reservations.holds.best_available import FreeSeat
from apps.reservations.holds.candidates import Proposer
from apps.reservations.holds.claims import Claims
from apps.reservations.holds.outcomes import Contended, Held, HoldOutcome, Refused, Shortage, Verdict
from apps.reservations.holds.replacement import Replaced, lock_replaced, not_found
from apps.reservations.holds.requests import HoldRequest
from apps.reservations.holds.statements import LockWait
from apps.reservations.holds.writes import ANSWER_STATUS, Line, Win, write_wins
from apps.reservations.lifecycle import after_commit

LOCK_WAIT_MS = 200
STATEMENT_MS = 3_000
CHOICES_MAX = 3
# Every choice that a rival's lock spoiled is followed by one from further down: out of 4, 16, 64 alternatives. All
# buyers read the same best seats; choosing the same second best again would only move the crowd.
ALTERNATIVES_FACTOR = 4
ALTERNATIVES_MAX = 64
_FREE = 0

_PACKAGE = "apps.reservations"
_any_lapsed = sql.load(_PACKAGE, "any_lapsed", prepared=True)
_live_lines_on_seats = sql.load(_PACKAGE, "live_lines_on_seats", prepared=True)


def decide_once(
    requests: Sequence[HoldRequest], *, patience: LockWait, write: transactions.TransactionOpener, careful: bool = False
) -> list[Verdict]:
    """One transaction, and after its commit whoever keeps copies is told. `careful`: a seat that says free under
    somebody's live line, which no service leaves behind, is not taken for free."""
    with write(lock_ms=LOCK_WAIT_MS, statement_ms=STATEMENT_MS) as cursor:
        batch = _Batch(cursor, requests, patience, careful, Claims(cursor))
        batch.admit()
        batch.apply_caps()
        batch.apply_access()
        batch.lock_seats()
        batch.lock_general_admission()
        batch.decide()
        write_wins(cursor, batch.wins, batch.now)
    after_commit.notify_ended([win.ending for win in batch.wins if win.ending is not None])
    after_commit.notify_held([win.hold for win in batch.wins])
    return [batch.verdicts[index] for index in range(len(requests))]


@dataclass(slots=True)
class _Batch:
    """What one transaction knows. Its methods run once each, in the order of the locks they take."""

    cursor: sql.Cursor
    requests: Sequence[HoldRequest]
    patience: LockWait
    careful: bool
    claims: Claims
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    entries: dict[UUID, queue.EntryState] = field(default_factory=dict)
    replaced: dict[UUID, Replaced] = field(default_factory=dict)
    """Reservations that open requests may replace, by id, locked."""
    now: datetime = field(default=datetime.min)
    choices: dict[int, tuple[FreeSeat, ...]] = field(default_factory=dict)
    seat_category: dict[int, int] = field(default_factory=dict)
    seat_section: dict[int, int] = field(default_factory=dict)
    free: set[int] = field(default_factory=set)
    """Seats locked by us and free under the lock."""
    locked: set[int] = field(default_factory=set)
    passed_over: set[int] = field(default_factory=set)
    """Seats that a rival had locked when we wanted them."""
    owner: dict[int, UUID | None] = field(default_factory=dict)
    """Of seats locked by us that are not free, whose they are: free for who replaces that reservation."""
    given_up: set[int] = field(default_factory=set)
    """Those that were, by a winner of this batch: free with its commit."""
    left: dict[int, int] = field(default_factory=dict)
    lapsed_events: set[int] | None = None
    wins: list[Win] = field(default_factory=list)
    buyer_counts: dict[tuple[int, str], int] = field(default_factory=dict)
    prices: dict[int, int] = field(default_factory=dict)
    """Category id to price, read after the locks."""
    chosen_names: dict[int, str] = field(default_factory=dict)
    """Public ids of the seats chosen for best available."""
    deadlines: dict[int, tuple[datetime, str]] = field(default_factory=dict)
    """By event, until when a hold of this moment lasts, and how the public API writes it."""
    codes: access_codes.Codes = field(default_factory=access_codes.Codes)
    ahead: dict[str, roundtrip.StatementResult] = field(default_factory=dict)
    """What travelled with an earlier lock, by what it is for."""
    _open: list[tuple[int, HoldRequest]] = field(default_factory=list)
    _judged: int = 0

    def __post_init__(self) -> None:
        self._open = list(enumerate(self.requests))

    def open(self) -> list[tuple[int, HoldRequest]]:
        """The requests that can still win, in arrival order."""
        if self._judged != len(self.verdicts):
            self._open = [pair for pair in self._open if pair[0] not in self.verdicts]
            self._judged = len(self.verdicts)
        return self._open

    def admit(self) -> None:
        """Entries locked; known keys answered; who may not start a reservation is out."""
        entry_ids, waiting = statements.entries_of(self.requests), self.patience.is_waiting
        coming = statements.lock_admissions_call(entry_ids, self.patience)
        # Of busy ones too: nobody waits for these locks while he has one of those that we may yet wait for.
        lock = queue.lock_entries_call(entry_ids, waiting=waiting)
        reading = [clock.now_call(), *prior_answers.read_calls(self.requests)]
        if any(request.replaces is not None for request in self.requests):
            came, locked = sql.execute_batch(self.cursor, [coming, lock])
            self._pass_over_busy(came)
            replaced = [request.replaces for _, request in self.open() if request.replaces is not None]
            self.replaced = lock_replaced(self.cursor, replaced, waiting=waiting) if replaced else {}
            moment, recalled, found = sql.execute_batch(self.cursor, reading)
        else:
            came, locked, moment, recalled, found = self._send(
                statements.early_calls(self.requests, self.patience), coming, lock, *reading
            )
            self._pass_over_busy(came)
        self.entries = queue.entry_states_from_rows(locked.rows)
        ((self.now,),) = moment.rows
        asked = [request for _, request in self.open()]
        answers = prior_answers.answers_of(self.cursor, asked, recalled, found)
        standing = prior_answers.find_blocking_reservations(asked, found)
        for index, request in self.open():
            remembered = answers.get((request.scope, request.idempotency_key)) if answers else None
            if remembered is not None:
                self.verdicts[index] = _replay(request, *remembered)
                continue
            verdict = self._refuse_by_entry(request, standing.get(request.entry_id))
            if verdict is not None:
                self.verdicts[index] = verdict

    def _pass_over_busy(self, came: roundtrip.StatementResult) -> None:
        """Who asks for an entry that somebody else is deciding for has to come again. (Whoever waited has come.)"""
        busy = set() if self.patience.is_waiting else {row[0] for row in came.rows}
        for index, request in self.open() if busy else ():
            if request.entry_id in busy:
                self.verdicts[index] = Contended(problems.IdempotencyInProgress())

    def _refuse_by_entry(
        self, request: HoldRequest, standing: prior_answers.BlockingReservation | None
    ) -> Verdict | None:
        entry = self.entries.get(request.entry_id)
        if entry is None:
            return Refused(queue.NotAdmitted()) if self.patience.is_waiting else Contended(problems.Busy())
        if entry.event_id != request.event.id:
            return Refused(queue.NotAdmitted())  # A place in another event's line.
        if request.replaces is not None:
            verdict = self._refuse_replacing(request, request.replaces)
            if verdict is not None:
                return verdict
        if standing is not None and standing.reservation_id != request.replaces:
            if standing.is_paid:
                # The entry is completed by a transaction after the one that sold: in between it still reads ready.
                return Refused(queue.AdmissionExpired("This admission has been used; join again."))
            problem = ReservationExists(reservation=str(standing.reservation_id))
            return Shortage(problem, (standing.reservation_id,)) if standing.has_lapsed else Refused(problem)
        # The admission limits starting a reservation; who changes a live one has started.
        refusal = entry.refusal(self.now) if request.replaces is None else None
        if refusal is not None:
            return Refused(refusal)
        try:
            queue.require_on_sale(request.event, self.now)
        except queue.NotOnSale as problem:
            return Refused(problem)
        return None

    def _refuse_replacing(self, request: HoldRequest, replaces: UUID) -> Verdict | None:
        replaced = self.replaced.get(replaces)
        if replaced is None:
            problem = not_found(waiting=self.patience.is_waiting)
            return Refused(problem) if self.patience.is_waiting else Contended(problem)
        refusal = replaced.refusal(request.entry_id, request.event.id, self.now)
        return Refused(refusal) if refusal is not None else None

    def _replaced_by(self, request: HoldRequest) -> Replaced | None:
        return self.replaced[request.replaces] if request.replaces is not None else None

    def _added_seat_count(self, request: HoldRequest) -> int:
        """How many more the buyer has if the request wins. What was held before a log-in counted for the guest."""
        given_up = self._replaced_by(request)
        theirs = given_up is not None and given_up.buyer == request.buyer
        return request.seat_count - (given_up.seat_count if given_up is not None and theirs else 0)

    def apply_caps(self) -> None:
        """Cap rows locked; under them the buyers' seats are counted from the reservations themselves."""
        capped = [(i, request) for i, request in self.open() if request.event.policy.per_buyer_max is not None]
        if not capped:
            return
        if "caps" not in self.ahead:
            self._send(statements.lock_caps_calls([request for _, request in capped], self.patience))
        counted = self.ahead["counts"].rows
        ours = {(event_id, buyer) for _, event_id, buyer in self.ahead["caps"].rows}
        lapsed = {(row[0], row[1]): row[3] for row in counted}
        self.buyer_counts = dict.fromkeys([(request.event.id, request.buyer) for _, request in capped], 0)
        self.buyer_counts |= {(row[0], row[1]): int(row[2]) for row in counted}
        for index, request in capped:
            key = (request.event.id, request.buyer)
            most = request.event.policy.per_buyer_max
            assert most is not None
            if key not in ours:
                # Somebody decides what this buyer may have, or is just making the row.
                self.verdicts[index] = Contended(problems.Busy())
            elif self.buyer_counts[key] + self._added_seat_count(request) > most:
                self.verdicts[index] = Refused(_cap_problem(most))
            elif lapsed.get(key):
                # Past their deadline but unswept they still hold seats: ended first, so that the cap stays exact.
                self.verdicts[index] = Shortage(problems.Busy(), tuple(lapsed[key]))

    def apply_access(self) -> None:
        """Codes locked; who wants something that needs one has one that opens it, or is out."""
        guarded = [(index, request) for index, request in self.open() if request.guarded]
        if not guarded:
            return
        if "codes" not in self.ahead:
            asking = [request for _, request in guarded]
            self._send(statements.lock_codes_calls(asking, self.replaced, self.patience))
        self.codes.read(self.ahead)
        named = statements.seats_named([request for _, request in self.open()])
        if named and "seats" not in self.ahead:
            self._send({"seats": statements.read_seats_call(named, self.requests)})
        if named:
            self.seat_section |= {row[0]: row[3] for row in self.ahead["seats"].rows}
        perhaps = access_codes.count_released_uses([self._replaced_by(request) for _, request in self.open()])
        for index, request in guarded:
            verdict = self._refuse_by_access(request, perhaps)
            if verdict is not None:
                self.verdicts[index] = verdict

    def _refuse_by_access(
        self, request: HoldRequest, perhaps: Mapping[access_codes.CodeKey, int] | None = None
    ) -> Verdict | None:
        wanting = self._guarded_sections(request)
        return self.codes.judge(request, self._replaced_by(request), wanting, perhaps) if wanting else None

    def _guarded_sections(self, request: HoldRequest) -> set[int]:
        """The sections of the request that want an access code."""
        if not request.guarded:
            return set()
        wanted = set(request.quantities)
        wanted.update(self.seat_section[seat_id] for seat_id in request.seats if seat_id in self.seat_section)
        if request.best is not None:
            wanted.add(request.best.section_id)
        return wanted & request.guarded.keys()

    def lock_seats(self) -> None:
        """Seats of requests that can still win are locked, named and chosen ones together, in id order."""
        named = statements.seats_named([request for _, request in self.open()])
        if named:
            # Held by somebody in this very batch who may give them up, or oneself: decided under the locks.
            replaced = {seat_id for _, request in self.open() for seat_id in self._own_seats(request)}
            if "seats" not in self.ahead:
                self._send({"seats": statements.read_seats_call(named, self.requests)})
            seen = {row[0]: row for row in self.ahead["seats"].rows}
            taken = {
                seat_id: seen[seat_id][2] if seat_id in seen else None
                for seat_id in named
                if seat_id not in replaced and (seat_id not in seen or seen[seat_id][1] != _FREE)
            }
            self.claims.load(taken.values())
            for index, request in self.open():
                gone = {seat: taken[seat] for seat in request.seats if seat in taken}
                if gone:
                    self.verdicts[index] = self.claims.judge(request.seats, gone)
        for try_number in range(CHOICES_MAX):
            choosing = bool(self._best_available_requests())
            if choosing:
                self._choose(try_number)
            wanted = {seat_id for _, request in self.open() for seat_id in request.seats}
            wanted |= {seat.seat_id for index, _ in self.open() for seat in self.choices.get(index, ())}
            wanted |= {seat_id for _, request in self.open() for seat_id in self._own_seats(request)}
            wanted -= self.locked
            if wanted:
                # After the first statement only passing over: a second wait would be out of order.
                waiting = self.patience.is_waiting and try_number == 0
                lock = statements.lock_seats_call(sorted(wanted), waiting=waiting)
                # Who leaves the choice to us may come back for other seats: the locks that are last follow later.
                ahead = {} if choosing or not self.open() else self._lock_places_calls()
                (locked,) = self._send(ahead, lock)
                has_line = self._read_lines([row[0] for row in locked.rows])
                for seat_id, section_id, category_id, status, owner in locked.rows:
                    self.locked.add(seat_id)
                    self.seat_section[seat_id], self.seat_category[seat_id] = section_id, category_id
                    if status == _FREE and seat_id in has_line:
                        self.passed_over.add(seat_id)
                    elif status == _FREE:
                        self.free.add(seat_id)
                    else:
                        self.owner[seat_id] = owner
            if all(
                self._is_ours(request, self.choices.get(index, ()))
                for index, request in self._best_available_requests()
            ):
                break

    def _best_available_requests(self) -> list[tuple[int, HoldRequest]]:
        """Those of the open requests that leave the choice to us."""
        return [(index, request) for index, request in self.open() if request.best is not None]

    def _read_lines(self, seat_ids: Sequence[int]) -> set[int]:
        """Those of these locked seats that a live line holds, where it has to be known."""
        if not self.careful or not seat_ids:
            return set()
        return {row[0] for row in _live_lines_on_seats.rows(self.cursor, seat_ids=seat_ids)}

    def _own_seats(self, request: HoldRequest) -> Mapping[int, FreeSeat]:
        given_up = self._replaced_by(request)
        return given_up.seats if given_up is not None else {}

    def _is_free_for(self, request: HoldRequest, seat_id: int) -> bool:
        """Whether the seat is locked by us and the request may have it."""
        return seat_id in self.free or (request.replaces is not None and self.owner.get(seat_id) == request.replaces)

    def _read_lapsed(self) -> bool:
        """It is known which events have lapsed reservations; whether that was read only now.

        What was read as taken before, without a lock, must then be read again: a sweep that committed between the two
        statements is in neither, the seat still held in the first, nothing lapsed any more in the second.
        """
        if self.lapsed_events is not None:
            return False
        ids = sorted({request.event.id for request in self.requests})
        self.lapsed_events = {row[0] for row in _any_lapsed.rows(self.cursor, event_ids=ids)}
        return True

    def _is_ours(self, request: HoldRequest, choice: tuple[FreeSeat, ...]) -> bool:
        """Whether all of the choice is locked by us, free for the request, and still at the price it was chosen for."""
        if not choice:
            return True
        price = request.best.category_id if request.best is not None else None
        if price is not None and any(self.seat_category.get(seat.seat_id) != price for seat in choice):
            return False
        return all(self._is_free_for(request, seat.seat_id) for seat in choice)

    def _choose(self, try_number: int) -> None:
        """Every open request for best available has a choice of seats nobody else in the batch chose or named, unless
        nothing fits. A choice that is locked and free already stays."""
        undecided: list[tuple[int, HoldRequest]] = []
        spoken_for = {seat_id for _, request in self.open() for seat_id in request.seats}
        for index, request in self.open():
            current = self.choices.get(index, ())
            if current and self._is_ours(request, current):
                spoken_for |= {seat.seat_id for seat in current}
            elif request.best is not None:
                # A seat that a rival has locked was passed over: the whole batch chooses around it.
                self.passed_over |= {seat.seat_id for seat in current if seat.seat_id not in self.locked}
                undecided.append((index, request))
        if not undecided:
            return
        tries = try_number + (CHOICES_MAX if self.patience.is_waiting else 0)
        proposer = self._build_proposer(undecided, spoken_for, min(ALTERNATIVES_FACTOR**tries, ALTERNATIVES_MAX))
        for index, request in undecided:
            assert request.best is not None
            proposal = proposer.propose(request.best, self._own_seats(request), request.seats.keys())
            if proposal.seats is None and proposal.fitting_count < request.best.quantity and self._read_lapsed():
                proposer = self._build_proposer(undecided, proposer.taken, proposer.alternatives)
                proposal = proposer.propose(request.best, self._own_seats(request), request.seats.keys())
            if proposal.seats is not None:
                self.choices[index] = proposal.seats
                proposer.take(proposal.seats)
                continue
            self.choices.pop(index, None)
            if proposal.fitting_count >= request.best.quantity or self._may_give_up(request, request.best.section_id):
                # They are rivals' or our own batch's, and nobody has them for sure.
                self.verdicts[index] = Contended(problems.Busy())
            else:
                self.verdicts[index] = self._refused_or_shortage(request, _shortage_problem(proposal.fitting_count))

    def _may_give_up(self, to: HoldRequest, section_id: int) -> bool:
        """Whether somebody else of this batch may give up seats there."""
        return any(
            self.seat_section.get(seat) in (None, section_id)
            for _, request in self.open()
            if request is not to
            for seat in self._own_seats(request)
        )

    def _build_proposer(
        self, asking: Sequence[tuple[int, HoldRequest]], taken: set[int], alternatives: int
    ) -> Proposer:
        """What is free now, for these requests to choose from."""
        wishes = [request.best for _, request in asking if request.best is not None]
        return Proposer(self.cursor, wishes, taken | self.passed_over, alternatives)

    def lock_general_admission(self) -> None:
        """The rows that open requests take from, last of all locks; then the prices are known."""
        if not self.open():
            return
        if "prices" not in self.ahead:
            self._send(self._lock_places_calls())
        self.prices = dict(self.ahead["prices"].rows)
        if "places" not in self.ahead:
            return
        self.left = dict(self.ahead["places"].rows)
        if self.patience is not LockWait.NONE:
            return
        for index, request in self.open():
            given_up = self._replaced_by(request)
            needed = request.quantities.keys() | (given_up.places.keys() if given_up is not None else set())
            if not needed <= self.left.keys():
                self.verdicts[index] = Contended(problems.Busy())

    def _lock_places_calls(self) -> dict[str, sql.Call]:
        return statements.lock_places_calls([request for _, request in self.open()], self.replaced, self.patience)

    def _send(self, named: Mapping[str, sql.Call], *first: sql.Call) -> list[roundtrip.StatementResult]:
        """The first ones' answers; those of the named ones, which travel with them, are in `ahead`."""
        done = sql.execute_batch(self.cursor, [*first, *named.values()])
        self.ahead.update(zip(named, done[len(first) :], strict=True))
        return done[: len(first)]

    def decide(self) -> None:
        """Each open request wins or not, in arrival order, in memory."""
        taken: dict[object, HoldRequest] = {}
        """Who has won, by buyer and by entry: between a guest's click and the next one may lie a log-in."""
        answers: dict[tuple[str, str], Win] = {}
        chosen = [seat.seat_id for choice in self.choices.values() for seat in choice]
        self.chosen_names = events.seat_guids(self.cursor, chosen)
        self.claims.load(self.owner.get(seat) for _, request in self.open() for seat in request.seats)
        for index, request in self.open():
            once = (request.scope, request.idempotency_key)
            earlier = answers.get(once)
            if earlier is not None:
                self.verdicts[index] = _replay(request, earlier.request.fingerprint, ANSWER_STATUS, earlier.answer)
                continue
            key = (request.event.id, request.buyer)
            winner = taken.get(key) or taken.get(request.entry_id)
            if winner is not None:
                self.verdicts[index] = Refused(ReservationExists(reservation=str(winner.reservation_id)))
                continue
            verdict = self._refuse_by_stock(request, self.choices.get(index, ()))
            if verdict is not None:
                self.verdicts[index] = verdict
                continue
            most = request.event.policy.per_buyer_max
            if most is not None and self.buyer_counts[key] + self._added_seat_count(request) > most:
                self.verdicts[index] = Refused(_cap_problem(most))
                continue
            verdict = self._refuse_by_access(request)
            if verdict is not None:
                self.verdicts[index] = verdict
                continue
            if most is not None:
                self.buyer_counts[key] += self._added_seat_count(request)
            win = self._win(index, request)
            taken[key] = taken[request.entry_id] = request
            answers[once] = win

    def _refuse_by_stock(self, request: HoldRequest, choice: tuple[FreeSeat, ...]) -> Verdict | None:
        given_up = self._replaced_by(request)
        if given_up is not None and not given_up.seats.keys() <= self.locked:
            return Contended(problems.Busy())  # What it gives up it could only wait for, after all other locks.
        if not request.seats.keys() <= self.free:
            gone = [seat for seat in request.seats if seat in self.locked and not self._is_free_for(request, seat)]
            if gone:
                owners = {seat: self.owner.get(seat) for seat in gone}
                return self.claims.judge(request.seats, owners, self.given_up)
            if not request.seats.keys() <= self.locked:
                return Contended(problems.Busy())
        if not self._is_ours(request, choice):
            return Contended(problems.Busy())
        for section_id, quantity in request.quantities.items():
            left = self.left.get(section_id, 0) + (given_up.places.get(section_id, 0) if given_up is not None else 0)
            if left < quantity:
                return self._refused_or_shortage(request, _shortage_problem(left))
        return None

    def _win(self, index: int, request: HoldRequest) -> Win:
        chosen = tuple(seat.seat_id for seat in self.choices.get(index, ()))
        seats = (*request.seats, *chosen)
        self.free.difference_update(seats)
        for section_id, quantity in request.quantities.items():
            self.left[section_id] -= quantity
        given_up = self._replaced_by(request)
        if given_up is not None:
            # Its seats are free for others from the next batch on; its places, which are only counted, at once.
            for seat_id in given_up.seats:
                self.owner.pop(seat_id, None)
            self.given_up |= given_up.seats.keys() - set(seats)
            for section_id, quantity in given_up.places.items():
                self.left[section_id] += quantity
        lines = [
            Line(
                section := self.seat_section[seat], category := self.seat_category[seat], seat, 1, self.prices[category]
            )
            for seat in seats
        ]
        for section, quantity in request.quantities.items():
            category = request.categories[section]
            lines.append(Line(section, category, None, quantity, self.prices[category]))
        total = sum([line.quantity * line.price_minor for line in lines])
        until, until_text = self._deadline(request, given_up)
        slug, quantity = next(
            ((request.general_admission[section].slug, count) for section, count in request.quantities.items()),
            (None, 0),
        )
        body = answer_text(
            reservation_id=request.reservation_id,
            reserved_until=until_text,
            seats=[request.seats[seat] if seat in request.seats else self.chosen_names[seat] for seat in seats],
            ga_section=slug,
            ga_quantity=quantity,
            total_minor=total,
            currency=request.event.currency,
        )
        answer = idempotency.Answer(ANSWER_STATUS, body)
        account_id = self.entries[request.entry_id].account_id
        code_id = self._use_code(request, given_up) if request.guarded or given_up is not None else None
        win = Win(request, account_id, tuple(lines), total, until, body, given_up, code_id)
        self.wins.append(win)
        self.verdicts[index] = Held(request.reservation_id, answer)
        return win

    def _use_code(self, request: HoldRequest, given_up: Replaced | None) -> int | None:
        return self.codes.use(request, given_up, self._guarded_sections(request))

    def _deadline(self, request: HoldRequest, given_up: Replaced | None) -> tuple[datetime, str]:
        if given_up is not None:
            return given_up.expires_at, clock.iso(given_up.expires_at)
        found = self.deadlines.get(request.event.id)
        if found is None:
            until = self.now + timedelta(minutes=request.event.policy.hold_minutes)
            found = self.deadlines[request.event.id] = until, clock.iso(until)
        return found

    def _refused_or_shortage(self, request: HoldRequest, problem: problems.Problem) -> Verdict:
        """What was found missing under a lock, or read after what has lapsed: final, unless a sweep may bring it."""
        self._read_lapsed()
        assert self.lapsed_events is not None
        return Shortage(problem) if request.event.id in self.lapsed_events else Refused(problem)


def _replay(request: HoldRequest, fingerprint: str, status: int, answer: str) -> HoldOutcome:
    if fingerprint != request.fingerprint:
        return Refused(problems.IdempotencyMismatch())
    return Held(reservation_of_answer(answer), idempotency.Answer(status, answer))


def _shortage_problem(available: int) -> problems.Problem:
    return SoldOut() if available <= 0 else NotEnoughLeft(available=available)


def _cap_problem(most: int) -> PurchaseCapReached:
    return PurchaseCapReached(f"The limit for this event is {most} tickets per buyer.", cap=most)
