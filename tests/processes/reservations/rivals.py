"""A web process with its own group commit whose buyers request overlapping seats, round after round.

`python -m tests.processes.reservations.rivals` runs it.

It prints `ready`. For each line of JSON it reads (the event's slug; entry and seats of each buyer) it lets all buyers
ask at the same time, through the gate, and prints `done` once every one of them has its answer.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import django

THREADS = 16


def main() -> None:
    django.setup()
    from apps.events import facade as events
    from apps.kernel.http import problems
    from apps.queue import facade as queue
    from apps.reservations import facade as reservations
    from apps.reservations.holds.service import holds

    def ask(event: events.EventView, entry: queue.EntryView, seats: list[str]) -> None:
        try:
            reservations.hold_one(event, entry, {"seats": seats}, "one")
        except problems.Problem as problem:
            if problem.type not in ("seats-unavailable", "busy"):
                raise

    with ThreadPoolExecutor(THREADS) as threads:
        print("ready", flush=True)
        for line in sys.stdin:
            task = json.loads(line)
            event = events.get_event(task["event"])
            entries = [queue.entry_by_id(UUID(entry)) for entry, _ in task["buyers"]]
            wanted = [seats for _, seats in task["buyers"]]
            list(threads.map(lambda entry, seats, event=event: ask(event, entry, seats), entries, wanted))
            print("done", flush=True)
    holds.close()


if __name__ == "__main__":
    main()
