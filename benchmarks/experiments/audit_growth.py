"""What the minute's audit costs with few and with very many reservations in the database.

    python -m benchmarks.experiments.audit_growth [--sizes 10000,1000000] [--rounds 7] [--changes 200]

One server that would survive a power cut, filled to each size in turn with reservations as the services leave them,
most of them sold, with orders, payments and tickets. Before each audit `--changes` tickets are held and as many orders
are written. The audit of changes must find no breach; the figures are medians of the processor time of this process and
of its PostgreSQL session. For comparison, the audit of everything runs once at each size.
"""

import argparse
import statistics
import sys
import time
import uuid
from typing import Any

from benchmarks.scenarios.audit import fill, vacuum_tables
from benchmarks.scenarios.hold_cost import backend_cpu_us
from benchmarks.support.rooms import start_servers

SECTIONS, ROWS, SEATS_IN_ROW = 20, 25, 50
EVENT_RESERVATIONS_MAX = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,1000000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--changes", type=int, default=200)
    options = parser.parse_args()
    with start_servers(durable=True):
        measure([int(size) for size in options.sizes.split(",")], options.rounds, options.changes)


def measure(sizes: list[int], rounds: int, changes: int) -> None:
    from tests.support.factories import make_event

    minute = make_event("minute", rows=0, general_admission=1_000_000)
    count, found = 0, dict[int, float]()
    for size in sizes:
        while count < size:
            share = min(EVENT_RESERVATIONS_MAX, size - count)
            # Two fifths of the reservations are for general admission, the others for one to two seats each.
            sections = max(1, SECTIONS * share * 5 // 100_000)
            fill(f"event-{count}", sections, ROWS, SEATS_IN_ROW, share * 2, share)
            count += share
            print(f"# {count:,} reservations", file=sys.stderr, flush=True)
        begun = time.monotonic()
        audit_changes()
        print(f"# audited in {time.monotonic() - begun:,.0f} s", file=sys.stderr, flush=True)
        vacuum_tables()
        costs = [cost_of_audit(minute, changes, number) for number in range(rounds + 1)][1:]
        found[size] = statistics.median(costs)
        base = found[sizes[0]]
        print(
            f"{size:>9,} reservations: {found[size] / 1e3:,.1f} ms of processor for {changes} changes, "
            f"{found[size] / base:.2f} of the first; whole audit {cost_of_whole_audit() / 1e6:,.1f} s",
            flush=True,
        )


def cost_of_audit(event: Any, changes: int, number: int) -> float:
    """Make the changes, and return the microseconds of processor that the audit of them takes."""
    from django.db import connection

    from apps.reservations import facade as reservations
    from tests.support.factories import join

    for _ in range(changes):
        wanted = {"ga_section": "floor", "ga_quantity": 1}
        reservations.hold([reservations.resolve(event, join(event), wanted, uuid.uuid4().hex)])
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orders_order SET name = %s WHERE id IN (SELECT id FROM orders_order LIMIT %s)",
            [f"Buyer {number}", changes],
        )
    time.sleep(0.5)  # Until the transactions of the holds have ended for every session.
    return cpu_us(audit_changes)


def cost_of_whole_audit() -> float:
    from apps.kernel.checks import auditor

    return cpu_us(auditor.run)


def audit_changes() -> None:
    """Audit the changes until all are checked."""
    from apps.kernel.checks import auditor

    while not (run := auditor.catch_up()).is_clean:
        found = [check for check in run.report if check["breach_count"] or check["unchecked"]]
        if run.breach_count or run.unchecked_count > 1 or found[0]["invariant"] != "all":
            raise SystemExit(str(found)[:2_000])


def cpu_us(act: Any) -> float:
    """Return the microseconds of processor that `act` costs this process and its PostgreSQL session."""
    from django.db import connection

    connection.ensure_connection()
    pid = connection.connection.info.backend_pid
    before, begun = backend_cpu_us(pid), time.process_time()
    act()
    return 1e6 * (time.process_time() - begun) + backend_cpu_us(pid) - before


if __name__ == "__main__":
    main()
