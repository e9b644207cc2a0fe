"""How many orders are confirmed in a second, end to end, and how long each step of a sale takes.

    python -m benchmarks.scenarios.sales [--sales 300] [--buyers 8] [--deliverers 8] [--rounds 5] [--no-durable]

In each round `--sales` buyers first hold two named seats each and do nothing more, and then as many others buy: hold,
checkout, the charge by the outbox, the sandbox's signed notification of the payment, the tickets, the invoice and the
email (which is rendered and discarded). The ratio is sales a second ÷ holds a second, the median of the rounds. A sale
is complete when all of this is done: the clock stops when the outbox is empty. Buyers are threads of this process and
deliverers are threads of another, as `web` and `worker` are separate processes in production; the two Python processes
share the cores with the server. A commit here wakes the deliverers through a pipe, where production uses Celery. The
server is durable (fsync on) unless `--no-durable` is set. A step's share is its part of the seconds that the threads of
both processes spent in all steps, including the claims and completions of the outbox. The exit status is 1 unless every
order is confirmed with its tickets, the outbox is empty and the audit finds no breach.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.support.rooms import start_servers

SEATS_PER_ROW = 100
DRAIN_SECONDS_MAX = 600.0
POLL_SECONDS = 0.05
"""The seconds between two checks whether the outbox is empty, which also wake the deliverers for messages now due."""
END_SECONDS_MAX = 60.0
WAKE, END = b"w", b"e"


class Steps:
    """The seconds that threads spent, by step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def timed(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            try:
                return act(*args, **options)
            finally:
                with self._lock:
                    self.seconds[name] += time.perf_counter() - begun

        return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sales", type=int, default=300, help="in each round")
    parser.add_argument("--buyers", type=int, default=8, help="threads that hold and check out")
    parser.add_argument("--deliverers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--durable", action=argparse.BooleanOptionalAction, default=True, help="fsync on")
    parser.add_argument("--charges-alone", action="store_true", help="no lists of charges, for comparison")
    parser.add_argument("--deliver", action="store_true", help=argparse.SUPPRESS)  # For the deliverers' process.
    options = parser.parse_args()
    if options.deliver:
        return deliver(options.deliverers, charges_alone=options.charges_alone)
    os.environ["SANDBOX_PAUSE_SECONDS"] = "0"
    os.environ["EMAIL_URL"] = "dummymail://"
    with start_servers(durable=options.durable):
        return measure(options)


def measure(options: argparse.Namespace) -> int:
    from ticketing import outbox_handlers

    outbox_handlers.register()
    steps, ratios = Steps(), []
    with deliverers(options, steps) as worker:
        for number in range(options.rounds):
            event = make_event(f"round-{number}", seats=4 * options.sales)
            seats = iter(pairs(4 * options.sales))
            requests = make_requests(event, seats, options.sales)
            held = rate(options, [lambda request=request: hold(request) for request in requests])
            sold = sell(options, steps, worker, make_requests(event, seats, options.sales))
            ratios.append(sold / held)
            print(f"{sold:,.1f} orders confirmed/s | {held:,.1f} holds/s | {sold / held:.2f}", flush=True)
    whole = sum(steps.seconds.values())
    print(f"\nmedian: {statistics.median(ratios):.2f} of the hold rate; {min(ratios):.2f} to {max(ratios):.2f}")
    for name, seconds in sorted(steps.seconds.items(), key=lambda item: -item[1]):
        per_sale = 1_000 * seconds / (options.sales * options.rounds)
        print(f"  {name:<28} {seconds / whole:6.1%}  {per_sale:7.1f} ms a sale, waits included")
    return verdict(options)


class Worker:
    """The deliverers' process, as its parent controls it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Let the process deliver the messages that are due."""
        self._send(WAKE)

    def end(self) -> dict[str, float]:
        """End the process after its current deliveries; return the seconds that its threads spent, by step."""
        self._send(END)
        output, _ = self._process.communicate(timeout=END_SECONDS_MAX)
        assert self._process.returncode == 0, self._process.returncode
        seconds: dict[str, float] = json.loads(output)
        return seconds

    def _send(self, command: bytes) -> None:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(command)


@contextmanager
def deliverers(options: argparse.Namespace, steps: Steps) -> Iterator[Worker]:
    """Run deliverers in another process while the block runs, and add the seconds that they spent to the steps."""
    from apps.kernel.outbox import facade as outbox

    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scenarios.sales", "--deliver", "--deliverers", str(options.deliverers),
         *(["--charges-alone"] if options.charges_alone else [])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=Path(__file__).parent.parent.parent,
    )  # fmt: skip
    try:
        worker = Worker(process)
        outbox.register_wake(worker.wake)
        yield worker
        for name, seconds in worker.end().items():
            steps.seconds[name] += seconds
    finally:
        process.kill()
        process.wait()


def deliver(count: int, *, charges_alone: bool) -> int:
    """Deliver in this process whenever the parent asks for it, until it asks to end; print the seconds by step."""
    import django

    django.setup()
    from apps.kernel.outbox import facade as outbox
    from apps.kernel.outbox.delivery import Delivery
    from ticketing import outbox_handlers

    outbox_handlers.register()
    steps = Steps()
    time_the_handlers(steps, charges_alone=charges_alone)
    delivery = Delivery(count)
    outbox.register_wake(delivery.wake)
    # Commands that arrived together count as one. An empty read means that the parent has ended.
    while (commands := os.read(sys.stdin.fileno(), 4_096)) and END not in commands:
        delivery.wake()
    is_over = delivery.close(END_SECONDS_MAX)
    json.dump(steps.seconds, sys.stdout)
    return 0 if is_over else 1


def sell(options: argparse.Namespace, steps: Steps, worker: Worker, requests: list[Any]) -> float:
    """Sell to all of these requests; return the orders a second from the first hold to the last email."""
    from apps.orders.checkout.checkout import check_out
    from apps.orders.payments.providers.sandbox.cards import DELAYED

    hold_one, pay = steps.timed("hold", hold), steps.timed("checkout", check_out)

    def buy(request: Any) -> None:
        reservation = hold_one(request)
        # Each order has an address of its own: mails to one address are capped.
        details = {"email": f"{uuid.uuid4().hex}@example.org", "name": "Ada Buyer", "payment_method": DELAYED}
        answer = pay(reservation, details, uuid.uuid4().hex)
        assert json.loads(answer.body)["status"] == "placed", answer.body

    begun = time.perf_counter()
    in_threads(options.buyers, [lambda request=request: buy(request) for request in requests])
    while has_pending_messages():
        worker.wake()
        assert time.perf_counter() - begun < DRAIN_SECONDS_MAX, "messages are still left"
        time.sleep(POLL_SECONDS)
    return len(requests) / (time.perf_counter() - begun)


def time_the_handlers(steps: Steps, *, charges_alone: bool) -> None:
    from apps.kernel.outbox import facade as outbox
    from apps.orders import facade as orders
    from apps.orders.provider_sync import charge_lists

    charge_lists._arrivals = charge_lists.Arrivals(
        steps.timed("orders.charge: answers settled", charge_lists.settle_arrived)
    )
    for each in orders.handlers():
        options = dict(each.options)
        if charges_alone and "list_starter" in options:
            options = {}
        for kind in ("list_handler", "list_starter"):
            if kind in options:
                options[kind] = steps.timed(each.topic, options[kind])
        outbox.register_handler(each.topic, steps.timed(each.topic, each.handle), each.visibility, **options)
    outbox.claim = steps.timed("the outbox claims", outbox.claim)
    outbox._end_claim = steps.timed("the outbox settles", outbox._end_claim)
    outbox._end_list = steps.timed("the outbox settles", outbox._end_list)


def has_pending_messages() -> bool:
    """Whether a message of these sales is still to be delivered; the topics that only check payments do not count."""
    from apps.kernel.outbox.models import OutboxMessage
    from apps.orders import topics

    left = OutboxMessage.objects.filter(done_at=None, dead_at=None)
    return left.exclude(topic__in=(topics.ASK, topics.RECONCILE_PAYMENT)).exists()


def hold(request: Any) -> Any:
    from apps.reservations import facade as reservations
    from apps.reservations.holds.service import Held, holds

    outcome = holds.submit_sync(request, 10_000)
    assert isinstance(outcome, Held), outcome
    return reservations.get_reservation(uuid.UUID(json.loads(outcome.answer.body)["reservation_id"]))


def rate(options: argparse.Namespace, acts: list[Callable[[], Any]]) -> float:
    begun = time.perf_counter()
    in_threads(options.buyers, acts)
    return len(acts) / (time.perf_counter() - begun)


def in_threads(count: int, acts: Iterable[Callable[[], Any]]) -> None:
    from django.db import connection

    remaining, lock, failures = iter(acts), threading.Lock(), []

    def work() -> None:
        try:
            while True:
                with lock:
                    act = next(remaining, None)
                if act is None:
                    return
                act()
        except Exception as error:  # noqa: BLE001 - Raised by the thread that waits for all of them.
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def make_event(slug: str, *, seats: int) -> Any:
    from apps.events import facade as events
    from apps.events.creation import EventSpec, create_event
    from apps.kernel import clock

    lines = ["section,row,seat,x,y,category,accessible"]
    for seat in range(seats):
        row, index = divmod(seat, SEATS_PER_ROW)
        lines.append(f"Hall,R{row},{index + 1},{index * 20},{row * 25},Standard,")
    create_event(
        EventSpec(
            slug=slug,
            name=slug.title(),
            venue="The Venue",
            starts_at=clock.now() + timedelta(days=30),
            currency="USD",
            plan="\n".join(lines).encode(),
            prices={"Standard": 5_000},
            opens_at=clock.now() - timedelta(minutes=1),
        )
    )
    return events.get_event(slug)


def pairs(seats: int) -> Iterable[list[str]]:
    """Yield pairs of adjacent seats by their names on the plan."""
    for seat in range(0, seats - 1, 2):
        row, index = divmod(seat, SEATS_PER_ROW)
        yield [f"hall-R{row}-{index + 1}", f"hall-R{row}-{index + 2}"]


def make_requests(event: Any, seats: Any, count: int) -> list[Any]:
    """Return hold requests of `count` admitted buyers, each for two seats."""
    from apps.queue import facade as queue
    from apps.reservations import facade as reservations

    joined = queue.join_many(
        [queue.JoinRequest(event, queue.Caller(visitor_id=queue.new_visitor_secret())) for _ in range(count)]
    )
    return [reservations.resolve(event, entry, {"seats": next(seats)}, uuid.uuid4().hex) for entry in joined]


def verdict(options: argparse.Namespace) -> int:
    from apps.kernel.checks import auditor
    from apps.orders.models import Order, Ticket

    orders = options.sales * options.rounds
    confirmed, tickets = Order.objects.filter(status="confirmed").count(), Ticket.objects.count()
    broken = [finding for finding in auditor.run() if finding.breaches or finding.unchecked]
    print(f"{confirmed:,} of {orders:,} orders confirmed with {tickets:,} tickets; breached invariants: {len(broken)}")
    for finding in broken:
        print(f"  {finding.invariant}: {finding.promise}: {finding.breaches[:3] or finding.unchecked}")
    return 0 if (confirmed, tickets, broken) == (orders, 2 * orders, []) else 1


if __name__ == "__main__":
    sys.exit(main())
