"""Rehearsal of a sell-out: a separate demo, 20,000 buyers for 5,000 seats and 10,000 tickets, and none left stranded.

    python -m benchmarks.rehearsals.sellout [--buyers 20000] [--over 2700] [--rate 12] [--active 400] [--keep]

Copies the checkout to a temporary folder, starts its demo, creates the event with `manage.py create_event`, and sends
simulated buyers with `manage.py simulate`: some hold and disappear, some send everything twice and try a second tab,
some replace their hold, some return. After the run and the expiry of the last hold, every seat must be sold or
available, no buyer above the cap, and `audit` and `reconcile` clean. Exit status 1 otherwise.

The simulator, the demo and its servers share this machine, and every call goes through the framework. So by default the
buyers arrive over three quarters of an hour, no faster than two slow cores can serve them.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree

import psycopg

from benchmarks.rehearsals.flash_sale import ended, manage, open_demo
from tests.processes.devserver.conftest import copy_checkout
from ticketing.demo_state import read_state
from ticketing.devserver.data_folder import prepare_folder

EVENT = "great-night"
SECTIONS, ROWS, SEATS_PER_ROW, FLOOR = 5, 25, 40, 10_000
CAP = 6
HOLD_MINUTES = 2
QUIET_SECONDS_MAX = 420
"""After the run: the longest time until a hold and a payment end, and the sweep."""
_STOCK = """
SELECT (SELECT sum(capacity) FROM events_section WHERE event_id = event.id),
       (SELECT count(*) FROM reservations_seatinventory WHERE event_id = event.id AND status = 2),
       (SELECT count(*) FROM reservations_seatinventory WHERE event_id = event.id AND status = 0),
       (SELECT coalesce(sum(line.quantity), 0)
        FROM reservations_reservationline AS line
        JOIN reservations_reservation AS owner ON owner.id = line.reservation_id
        WHERE owner.event_id = event.id AND line.live AND line.seat_id IS NULL AND owner.status = 'confirmed'),
       (SELECT sum(capacity - blocked - taken) FROM reservations_generaladmissioninventory WHERE event_id = event.id),
       (SELECT count(*) FROM reservations_reservation
        WHERE event_id = event.id AND status IN ('pending_payment', 'paying')),
       (SELECT count(*) FROM orders_order
        WHERE status IN ('placed', 'paying')
          AND reservation_id IN (SELECT id FROM reservations_reservation WHERE event_id = event.id))
FROM events_event AS event WHERE event.slug = %s
"""
_MOST_OF_ONE_BUYER = """
SELECT max(seats), max(live)
FROM (SELECT sum(seat_count) AS seats, count(*) FILTER (WHERE status IN ('pending_payment', 'paying')) AS live
      FROM reservations_reservation
      WHERE status IN ('pending_payment', 'paying', 'confirmed')
      GROUP BY event_id, buyer) AS of_one
"""
_ENDINGS = """
SELECT to_status, count(*) FROM reservations_reservationtransition GROUP BY to_status ORDER BY to_status
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buyers", type=int, default=20_000)
    parser.add_argument("--over", default="2700")
    parser.add_argument("--rate", type=int, default=12)
    parser.add_argument("--active", type=int, default=400)
    parser.add_argument("--at-most", default="4000")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="fairgate-sellout-"))
    folder.chmod(0o755)  # The servers may run as another account.
    copy_checkout(folder)
    try:
        with open_demo(folder):
            return sell_out(folder, options)
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            data = prepare_folder(folder).folder
            rmtree(folder)
            rmtree(data, ignore_errors=True)


def sell_out(folder: Path, options: argparse.Namespace) -> int:
    state = read_state(folder)
    assert state is not None
    create_event(folder, options.rate, options.active)
    simulator = manage(
        folder, "simulate", EVENT, "--visitors", str(options.buyers), "--buyers", str(options.buyers),
        "--over", options.over, "--at-most", options.at_most, "--stay", "3", "--leavers", "2%",
        "--walk-away", "10%", "--double", "15%", "--change", "10%", "--back", "50%",
        "--rate", str(options.rate), "--active", str(options.active),
    )  # fmt: skip
    with ended(simulator):
        found = {"simulate": simulator.wait()}
    with psycopg.connect(state["database_url"], autocommit=True) as ledger:
        found["stock"] = int(not everything_is_sold_or_free(ledger))
    for command in ("audit", "reconcile"):
        print(f"--- {command}", flush=True)
        found[command] = manage(folder, command).wait()
    print("--- " + ", ".join(f"{name} {'FAILED' if failed else 'ok'}" for name, failed in found.items()))
    return int(any(found.values()))


def create_event(folder: Path, rate: int, active: int) -> None:
    """Create an event with seats and a general admission floor, on sale now, with a waiting room."""
    plan = folder / "great-hall.csv"
    rows = ["section,row,seat,x,y,category,accessible"]
    for section in range(SECTIONS):
        for row in range(ROWS):
            rows += [
                f"Block {section + 1},{row + 1},{seat + 1},{section * 1000 + seat * 20},{row * 25},Seat,"
                f"{'yes' if row == ROWS - 1 and seat < 2 else 'no'}"
                for seat in range(SEATS_PER_ROW)
            ]
    plan.write_text("\n".join(rows))
    starts_at = datetime.now(UTC) + timedelta(days=30)
    subprocess.run(
        [
            sys.executable, "manage.py", "create_event", EVENT, "--name", "The Great Night",
            "--venue", "The Great Hall", "--timezone", "UTC",
            "--starts", starts_at.isoformat(timespec="seconds"), "--plan", str(plan),
            "--price", "Seat:6000", "--general-admission", f"Floor:{FLOOR}:4000", "--currency", "EUR",
            "--per-buyer", str(CAP), "--seats-per-reservation", str(CAP), "--hold-minutes", str(HOLD_MINUTES),
            "--waiting-room", f"rate={rate},active={active}",
        ],
        cwd=folder, check=True,
    )  # fmt: skip


def everything_is_sold_or_free(ledger: psycopg.Connection) -> bool:
    """Wait until nothing is held, print the stock, and return whether every ticket is sold or available."""
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    while True:
        ((total, seats_sold, seats_free, floor_sold, floor_free, live, orders),) = ledger.execute(
            _STOCK, [EVENT]
        ).fetchall()
        if (not live and not orders) or time.monotonic() > deadline:
            break
        time.sleep(1)
    ((most, at_once),) = ledger.execute(_MOST_OF_ONE_BUYER).fetchall()
    print(
        f"--- of {total:,}: sold {seats_sold:,} seats and {floor_sold:,} on the floor, available {seats_free:,} and "
        f"{floor_free:,}; {live} reservations and {orders} orders still open; at most {most} for one buyer "
        f"(cap {CAP}), {at_once} live at once"
    )
    endings = ledger.execute(_ENDINGS).fetchall()
    print("--- transitions: " + ", ".join(f"{status} {count:,}" for status, count in endings))
    return (
        not live
        and not orders
        and most <= CAP
        and seats_sold + seats_free == SECTIONS * ROWS * SEATS_PER_ROW
        and floor_sold + floor_free == FLOOR
    )


if __name__ == "__main__":
    sys.exit(main())
