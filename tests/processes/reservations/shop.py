"""A web process of its own, with its own group commit, in a race with others.

`python -m tests.processes.reservations.shop` runs it.

Reads what its buyers want as one line of JSON, says that it is ready, begins at the next line, and prints what each
was told.
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

    # Longer than the database takes to notice a deadlock: cut short, none would ever be seen.
    transaction.LOCK_WAIT_MS = service.LOCK_WAIT_MS = PATIENT_MS  # type: ignore[misc]
    wants = json.loads(sys.stdin.readline())
    event = events.get_event(wants[0]["event"])
    entries = [queue.entry_by_id(UUID(want["entry"])) for want in wants]

    def ask(number: int) -> Any:
        entry = entries[number]
        assert entry is not None
        for _ in range(ATTEMPTS_MAX):
            try:
                return json.loads(reservations.hold_one(event, entry, wants[number]["payload"], "one").body)
            except problems.Problem as problem:
                if problem.retry_after_seconds is None:
                    return {"type": problem.type, **problem.extra}
        raise AssertionError("told to come back for ever")

    print("ready", flush=True)
    sys.stdin.readline()
    shares = values(storm(THREADS, lambda first: [ask(number) for number in range(first, len(wants), THREADS)]))
    told = {first + THREADS * turn: one for first, share in enumerate(shares) for turn, one in enumerate(share)}
    print(json.dumps([told[number] for number in range(len(wants))]), flush=True)
    service.holds.close()


if __name__ == "__main__":
    main()
