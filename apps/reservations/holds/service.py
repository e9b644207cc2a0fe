"""The hold: a list of requests decided in arrival order in short transactions, all or nothing per request.

Requests that one transaction cannot decide get `Contended` if only a lock blocked them (a lock is not a refusal: the
rival may lose elsewhere and leave the seat free), or `Shortage` if a reservation past its deadline may still hold what
they want (sweeping inside the batch would give one seat to two buyers). Both are decided again; from the second round
on, transactions wait for locks, in id order. Only stock that is sold or held is a final refusal.

Seats are chosen for a limited time; after that, requests for best available are answered with a retry. Whatever makes
a choice slow, an event with such requests keeps no committer from the other events for longer.

A lock that is not released in time blocks only the requests that need it. The failed wait rolls back the transaction of
the whole batch, which is then decided again without waiting; only those requests remain undecided.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings

from apps.kernel.db import sql, transactions
from apps.kernel.group_commit.batcher import Batcher, decide_finds_committed
from apps.kernel.group_commit.process_turns import Turns
from apps.kernel.http import problems
from apps.reservations.holds.outcomes import Contended, Held, HoldOutcome, Refused, Shortage, Verdict
from apps.reservations.holds.requests import HoldRequest
from apps.reservations.holds.statements import LockWait
from apps.reservations.holds.transaction import LOCK_WAIT_MS, STATEMENT_MS, decide_once
from apps.reservations.lifecycle.release import SweepResult, sweep, sweep_these

__all__ = ["Held", "HoldOutcome", "Refused", "hold", "holds"]

ROUNDS_MAX = 4
FAILED_WAITS_MAX = 2
"""After this many failed waits for locks, undecided requests are answered with a retry, since other batches wait behind
this one."""
CHOICE_SECONDS_MAX = 1.5
"""How long one batch chooses seats, in all of its rounds. A usual batch does so for less than a tenth of it."""
BATCH_MAX = 128
COMMITTERS_MAX = 4
"""Concurrent batches of different events in one process, each with a connection: a stuck event occupies one."""
CAP_WAIT_MS = 20
SWEEP_WAIT_MS = 100
SWEEP_SECONDS_MAX = 0.5
"""Limit of one sweep. A lapsed reservation that is locked is isolated by halving the list until this time is up."""
HELD_ONCE = "reservation_line_seat_held_once"

logger = logging.getLogger(__name__)

_create_caps = sql.load("apps.reservations", "create_caps", prepared=True)


def hold(
    requests: Sequence[HoldRequest], write: transactions.TransactionOpener = transactions.write_on_django
) -> list[HoldOutcome]:
    """Decide every request: held and committed, or refused with its reason. Return one outcome per request, in order.

    `write` opens its transactions, by default on this thread's connection; none may be open. Raises only if the
    code is faulty or the database is unavailable; then no undecided request was held.
    """
    outcomes: dict[int, HoldOutcome] = {}
    for settled in _rounds(requests, write):
        outcomes |= settled
    return [outcomes[index] for index in range(len(requests))]


holds: Batcher[HoldRequest, HoldOutcome] = Batcher(
    # Idempotency keys are looked up before deciding, so a retry finds the holds that an earlier attempt committed.
    "holds",
    lambda connection, requests: _rounds(requests, transactions.writes_on(connection)),
    find_committed=decide_finds_committed,
    key=lambda request: request.event.id,
    committers_max=COMMITTERS_MAX,
    mixes=True,
    batch_max=BATCH_MAX,
    turns=Turns(Path(settings.METRICS_FOLDER) / "turns-of-holds"),
    meets_at=lambda request: request.event.id if request.quantities else None,
)
"""Group commit of holds: requests that arrive together are decided together, on a connection of their own. No event
waits for another event's load or locks."""


def _rounds(requests: Sequence[HoldRequest], write: transactions.TransactionOpener) -> Iterator[dict[int, HoldOutcome]]:
    """Yield the outcomes by index as each round settles them: winners do not wait for losers."""
    undecided = list(range(len(requests)))
    last: dict[int, Contended | Shortage] = {}
    hopeless: set[int] = set()
    failed_waits = 0
    _prepare_caps(requests, write)
    choose_until = time.monotonic() + CHOICE_SECONDS_MAX
    for round_number in range(ROUNDS_MAX):
        waiting = round_number > 0
        verdicts, came = _decide(undecided, requests, last, waiting=waiting, write=write, choose_until=choose_until)
        failed_waits += not came
        settled: dict[int, HoldOutcome] = {}
        for index, verdict in verdicts.items():
            if isinstance(verdict, (Held, Refused)):
                settled[index] = verdict
            else:
                last[index] = verdict
        undecided = [index for index in undecided if index not in settled]
        if settled:
            yield settled
        if not undecided or failed_waits >= FAILED_WAITS_MAX:
            break
        short = {index: verdict for index in undecided if isinstance(verdict := last[index], Shortage)}
        if short and round_number < ROUNDS_MAX - 1:
            hopeless = _sweep_for(short, requests, waiting=waiting, write=write)
    if undecided:
        # Stock of a lapsed reservation will be free again, whichever sweep releases it: the answer is not final.
        still_open = {index for index in undecided if isinstance(last[index], Shortage) and index not in hopeless}
        yield {index: Refused(problems.Busy() if index in still_open else last[index].problem) for index in undecided}


def _decide(
    undecided: Sequence[int],
    requests: Sequence[HoldRequest],
    last: Mapping[int, Contended | Shortage],
    *,
    waiting: bool,
    write: transactions.TransactionOpener,
    choose_until: float,
) -> tuple[Mapping[int, Verdict], bool]:
    """Return one round's verdicts by index, and whether all waits for locks succeeded."""
    asked = [requests[index] for index in undecided]
    careful = False
    for wait in (LockWait.WAITING if waiting else LockWait.GENERAL_ADMISSION_ONLY, LockWait.NONE):
        try:
            verdicts = decide_once(asked, wait=wait, write=write, careful=careful, choose_until=choose_until)
        except transactions.FAILURES as error:
            if transactions.violated_constraint(error) == HELD_ONCE:
                # A seat has status free and a live line, so the constraint refused another line. It is not sold.
                logger.error("a seat with status free has a live line; run manage.py reconcile --repair: %s", error)
                careful = True
            elif not transactions.is_transient(error):
                raise
        else:
            return dict(zip(undecided, verdicts, strict=True)), wait != LockWait.NONE
    # A request that a lock also blocked in an earlier round keeps that verdict.
    met = {index: verdict for index in undecided if isinstance(verdict := last.get(index), Contended)}
    return {index: met.get(index, Contended(problems.Busy())) for index in undecided}, False


def _sweep_for(
    short: Mapping[int, Shortage],
    requests: Sequence[HoldRequest],
    *,
    waiting: bool,
    write: transactions.TransactionOpener,
) -> set[int]:
    """Sweep the lapsed reservations that block these requests: the holders of the wanted stock where they are known,
    else the longest overdue of the event. Return the requests for which sweeping is hopeless, because the stock of the
    lapsed reservations cannot be released.

    The winners are committed and this batch has no lock, so the sweep can lock in its own order. The first sweep skips
    what another sweep or a payment has locked. If that does not suffice, the next ones wait for those locks: a seat
    that a sweep is about to free must not be refused.
    """
    known = [index for index, verdict in short.items() if verdict.holders]
    unknown = [index for index in short if index not in known]
    hopeless: set[int] = set()
    if known:
        holders = sorted({holder for index in known for holder in short[index].holders})
        if _is_hopeless(partial(_sweep_holders, holders), waiting=waiting, write=write):
            hopeless.update(known)
    for event_id in sorted({requests[index].event.id for index in unknown}):
        if _is_hopeless(partial(sweep, event_id=event_id, by="hold"), waiting=waiting, write=write):
            hopeless.update(index for index in unknown if requests[index].event.id == event_id)
    return hopeless


def _sweep_holders(holders: Sequence[uuid.UUID], **options: Any) -> SweepResult:
    """Sweep all of these reservations, however many transactions their seats take."""
    swept = sweep_these(holders, "hold", splits=True, **options)
    while swept.left and swept.reservations:
        swept = sweep_these(holders, "hold", splits=True, **options)
    return swept


def _is_hopeless(sweeping: Callable[..., SweepResult], *, waiting: bool, write: transactions.TransactionOpener) -> bool:
    try:
        until = time.monotonic() + SWEEP_SECONDS_MAX
        swept = sweeping(waiting=waiting, until=until, lock_ms=SWEEP_WAIT_MS, write=write)
    except transactions.FAILURES as error:
        # The lock is still held. The losers are decided without the sweep; the winners keep their answers.
        if not transactions.is_transient(error):
            raise
        return False
    return waiting and swept.found > 0 and swept.stranded == swept.found


def _prepare_caps(requests: Sequence[HoldRequest], write: transactions.TransactionOpener) -> None:
    """Create the cap rows of these requests. A row that another transaction is just creating may be missing afterwards:
    only the requests that need it are then answered with a retry."""
    keys = sorted(
        {(request.event.id, request.buyer) for request in requests if request.event.policy.per_buyer_max is not None}
    )
    if keys and not _try_create_caps(keys, write, LOCK_WAIT_MS):
        for key in keys:
            _try_create_caps([key], write, CAP_WAIT_MS)


def _try_create_caps(keys: Sequence[tuple[int, str]], write: transactions.TransactionOpener, lock_ms: int) -> bool:
    """Create these cap rows; return False if a lock was not released in time."""
    event_ids, buyers = [event_id for event_id, _ in keys], [buyer for _, buyer in keys]
    try:
        with write(lock_ms=lock_ms, statement_ms=STATEMENT_MS) as cursor:
            sql.execute_batch_and_commit(cursor, [_create_caps.call(event_ids=event_ids, buyers=buyers)])
    except transactions.FAILURES as error:
        if not transactions.is_transient(error):
            raise
        return False
    return True
