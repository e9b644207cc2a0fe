"""The hold: a list of requests decided in arrival order in short transactions, all or nothing per request.

What one transaction cannot decide it hands back: `Contended` when only somebody's lock was in the way (a lock is not a
refusal: the rival may lose elsewhere and leave the seat free), `Short` when a reservation past its deadline may still
hold what is wanted (sweeping inside the batch would give one seat to two). Both are decided again, from the second
time on waiting in id order. Only sold or held is a final refusal.
"""

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from apps.reservations.ending import sweep
from apps.reservations.holds.deciding import LOCK_WAIT_MS, STATEMENT_MS, decide_once
from apps.reservations.holds.outcomes import Contended, Held, HoldOutcome, Refused, Short
from apps.reservations.holds.requests import HoldRequest
from ticketing.kernel import problems, sql, transactions
from ticketing.kernel.batching import Batcher, finds_itself

__all__ = ["Held", "HoldOutcome", "Refused", "hold", "holds"]

ROUNDS_MAX = 4
BATCH_MAX = 128

_create_caps = sql.load("apps.reservations", "create_caps")


def hold(requests: Sequence[HoldRequest], write: transactions.Write = transactions.write_here) -> list[HoldOutcome]:
    """Every request is decided: held and committed, or refused with its reason. One outcome per request, in order.

    `write` opens its transactions, this thread's own unless given; none may be under way. Raises only what is a fault
    of ours or the ledger's absence; then nothing of what is undecided was held.
    """
    outcomes: dict[int, HoldOutcome] = {}
    undecided = list(range(len(requests)))
    last: dict[int, Contended | Short] = {}
    hopeless: set[int] = set()
    _prepare_caps(requests, write)
    for round_number in range(ROUNDS_MAX):
        waiting = round_number > 0
        try:
            verdicts = decide_once([requests[i] for i in undecided], waiting=waiting, write=write)
        except transactions.FAILURES as error:
            if not transactions.is_passing(error):
                raise
            verdicts = [_still_contended(last.get(index)) for index in undecided]
        again: list[int] = []
        short = False
        for index, verdict in zip(undecided, verdicts, strict=True):
            if isinstance(verdict, (Held, Refused)):
                outcomes[index] = verdict
            else:
                again.append(index)
                last[index] = verdict
                short = short or isinstance(verdict, Short)
        if not again:
            break
        if short and round_number < ROUNDS_MAX - 1:
            hopeless = _sweep_for([requests[i] for i in again], waiting=waiting, write=write)
        undecided = again
    for index in range(len(requests)):
        if index not in outcomes:
            # What is held by something past its deadline is not gone, whoever ends it: no final answer.
            still_open = isinstance(last[index], Short) and requests[index].event.id not in hopeless
            outcomes[index] = Refused(problems.Busy() if still_open else last[index].problem)
    return [outcomes[index] for index in range(len(requests))]


def _hold_on(connection: Connection[Any], requests: Sequence[HoldRequest]) -> list[HoldOutcome]:
    return hold(requests, transactions.writes_on(connection))


holds: Batcher[HoldRequest, HoldOutcome] = Batcher(
    # What an earlier attempt committed it finds by its key, which it looks up before it decides.
    "holds",
    _hold_on,
    find_committed=finds_itself,
    batch_max=BATCH_MAX,
)
"""Group commit of holds: requests that arrive together are one list, decided by `hold` on a connection of its own."""


def _still_contended(last: Contended | Short | None) -> Contended:
    """What a request is told whose round ran into a time limit: what it met before if that was a lock too."""
    return last if isinstance(last, Contended) else Contended(problems.Busy())


def _sweep_for(requests: Sequence[HoldRequest], *, waiting: bool, write: transactions.Write) -> set[int]:
    """What is past its deadline in these requests' events is free again, if nobody else is deciding it. The events in
    which that is hopeless: all that has lapsed there cannot give back what it holds.

    The winners are committed and every lock of ours is gone: the sweep takes its own, in its own order. At first it
    passes over what another sweep or a payment has in hand. Still short after that, it waits for them: the seat that
    a sweep is about to free must not be refused.
    """
    event_ids = {request.event.id for request in requests}
    try:
        swept = sweep(
            event_ids=sorted(event_ids),
            by="hold",
            waiting=waiting,
            lock_ms=LOCK_WAIT_MS,
            write=write,
        )
    except transactions.FAILURES as error:
        # Somebody keeps what we waited for. The losers are decided as things stand; the winners keep their answers.
        if not transactions.is_passing(error):
            raise
        return set()
    return event_ids if waiting and swept.found and swept.stranded == swept.found else set()


def _prepare_caps(requests: Sequence[HoldRequest], write: transactions.Write) -> None:
    capped = [request for request in requests if request.event.policy.per_buyer_max is not None]
    if not capped:
        return
    with write(lock_ms=LOCK_WAIT_MS, statement_ms=STATEMENT_MS) as cursor:
        _create_caps.count(
            cursor,
            event_ids=[request.event.id for request in capped],
            buyers=[request.buyer for request in capped],
        )
