"""One hold transaction, stage by stage: lock, choose, decide, write.

Locks are taken in the order that the whole system uses: queue entries, reservations to be replaced, cap rows, access
codes, seats, then general-admission rows; within each kind by id. Each stage gets the immutable results of the earlier
stages. Nothing is written before every request is decided.
"""

import math
from collections.abc import Sequence

from apps.kernel.db import transactions
from apps.reservations.holds.buyer_locks import lock_buyers
from apps.reservations.holds.inventory_locks import lock_inventory
from apps.reservations.holds.outcomes import Verdict
from apps.reservations.holds.requests import HoldRequest
from apps.reservations.holds.statements import Batch, LockWait
from apps.reservations.holds.verdicts import decide
from apps.reservations.holds.writes import write_wins
from apps.reservations.lifecycle import after_commit

LOCK_WAIT_MS = 200
STATEMENT_MS = 3_000


def decide_once(
    requests: Sequence[HoldRequest],
    *,
    wait: LockWait,
    write: transactions.TransactionOpener,
    careful: bool = False,
    choose_until: float = math.inf,
) -> list[Verdict]:
    """Decide these requests in one transaction and commit the holds that succeed; return one verdict per request, in
    order. After the commit, update the copies in Redis. `careful`, `choose_until`: see `Batch`."""
    with write(lock_ms=LOCK_WAIT_MS, statement_ms=STATEMENT_MS) as cursor:
        batch = Batch(cursor, requests, wait, careful, choose_until)
        locks = lock_buyers(batch)
        choices = lock_inventory(batch, locks)
        verdicts = decide(batch, locks, choices)
        transaction_id = write_wins(cursor, verdicts.wins, locks.now)  # The last round trip of this call commits.
    endings = [win.ending(transaction_id) for win in verdicts.wins if win.replaced is not None]
    after_commit.notify_ended([ending for ending in endings if ending is not None])
    after_commit.notify_held([win.hold(transaction_id) for win in verdicts.wins])
    return [verdicts.by_request[index] for index in range(len(requests))]
