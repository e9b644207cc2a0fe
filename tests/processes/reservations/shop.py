"""A web process with its own group commit, that competes with others.

`python -m tests.processes.reservations.shop` runs it.

It reads the demands of its buyers as one line of JSON, prints `ready`, begins at the next line, and prints what each
buyer received.
"""

import json
import sys
from typing import Any
from uuid import UUID

import django

THREADS = 8
PATIENT_MS = 20_000
ATTEMPTS_MAX = 60


def main() -> None:
    django.setup()
    from apps.events import facade as events
    from apps.kernel.http import problems
    from apps.queue import facade as queue
    from apps.reservations import facade as reservations
    from apps.reservations.holds import service, transaction
    from tests.support.races import storm, values

    # Longer than the deadlock timeout of the database: a shorter wait would hide every deadlock.
    transaction.LOCK_WAIT_MS = service.LOCK_WAIT_MS = PATIENT_MS  # type: ignore[misc]
    demands = json.loads(sys.stdin.readline())
    event = events.get_event(demands[0]["event"])
    entries = [queue.entry_by_id(UUID(demand["entry"])) for demand in demands]

    def ask(number: int) -> Any:
        entry = entries[number]
        assert entry is not None
        for _ in range(ATTEMPTS_MAX):
            try:
                return json.loads(reservations.hold_one(event, entry, demands[number]["payload"], "one").body)
            except problems.Problem as problem:
                if problem.retry_after_seconds is None:
                    return {"type": problem.type, **problem.extra}
        raise AssertionError("asked to retry forever")

    print("ready", flush=True)
    sys.stdin.readline()
    shares = values(storm(THREADS, lambda first: [ask(number) for number in range(first, len(demands), THREADS)]))
    results = {first + THREADS * turn: one for first, share in enumerate(shares) for turn, one in enumerate(share)}
    print(json.dumps([results[number] for number in range(len(demands))]), flush=True)
    service.holds.close()


if __name__ == "__main__":
    main()
