"""How many orders are confirmed in a second, end to end, and how long each step of a sale takes.

    python -m benchmarks.scenarios.sales [--sales 300] [--buyers 8] [--deliverers 8] [--rounds 5] [--smtp]
        [--no-durable]

In each round `--sales` buyers first hold two named seats each and do nothing more, and then as many others buy: hold,
checkout, the charge by the outbox, the sandbox's signed notification of the payment, the tickets, the invoice and the
email (which is rendered and discarded; with `--smtp`, sent to a server that accepts everything). The ratio is sales a
second ÷ holds a second, the median of the rounds. A sale is complete when all of this is done: the clock stops when the
outbox is empty. Buyers are threads of this process and deliverers are threads of another, as `web` and `worker` are
separate processes in production; the two Python processes share the cores with the server. A commit here wakes the
deliverers through a pipe, where production uses Celery. The server is durable (fsync on) unless `--no-durable` is set.
A step's share is its part of the seconds that the threads of both processes spent in all steps, including the claims
and completions of the outbox. The exit status is 1 unless every order is confirmed with its tickets, the outbox is
empty and the audit finds no breach.

The budget of a sale is the processor time of both processes and of PostgreSQL, as a multiple of that of a hold; without
the mails and PDFs, what their threads took in Python is left out. Each step's processor time, round trips to PostgreSQL
and statements are those of the threads that carry it out; other threads commit the batches of holds and checkouts.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from apps.kernel.db import roundtrip
from benchmarks.support.mail_sink import mail_sink
from benchmarks.support.rooms import start_servers

SEATS_PER_ROW = 100
DRAIN_SECONDS_MAX = 600.0
POLL_SECONDS = 0.05
"""The seconds between two checks whether the outbox is empty, which also wake the deliverers for messages now due."""
END_SECONDS_MAX = 60.0
WAKE, END = b"w", b"e"
MAIL = "orders.send_tickets"


class Cost(NamedTuple):
    """What threads spent on a step."""

    seconds: float = 0.0
    """Waits included."""
    processor: float = 0.0
    """Seconds of processor time in this process."""
    trips: int = 0
    """Round trips to PostgreSQL."""
    statements: int = 0

    def plus(self, other: "Cost") -> "Cost":
        return Cost(*(one + another for one, another in zip(self, other, strict=True)))

    def minus(self, other: "Cost") -> "Cost":
        return Cost(*(one - another for one, another in zip(self, other, strict=True)))


class Steps:
    """What threads spent, by step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.costs: defaultdict[str, Cost] = defaultdict(Cost)

    def timed(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            begun = present()
            try:
                return act(*args, **options)
            finally:
                self.add(name, present().minus(begun))

        return run

    def add(self, name: str, cost: Cost) -> None:
        with self._lock:
            self.costs[name] = self.costs[name].plus(cost)


class _Counts(threading.local):
    trips = 0
    statements = 0


_counts = _Counts()


def present() -> Cost:
    """Return what this thread has spent so far."""
    return Cost(time.perf_counter(), time.thread_time(), _counts.trips, _counts.statements)


def count_round_trips() -> None:
    """Count, from now on, each thread's round trips to PostgreSQL and the statements in them."""
    wait, send_batch = psycopg.Connection.wait, roundtrip.Cursor._send_batch

    def counted_wait(*args: Any, **options: Any) -> Any:
        _counts.trips += 1
        _counts.statements += 1
        return wait(*args, **options)

    def counted_batch(self: roundtrip.Cursor, texts: Sequence[str]) -> Sequence[Any]:
        _counts.statements += len(self._opening) + len(texts) - 1
        return send_batch(self, texts)

    psycopg.Connection.wait = counted_wait  # type: ignore[method-assign]
    roundtrip.Cursor._send_batch = counted_batch  # type: ignore[method-assign]


class Processor:
    """The processor time of this process, of the deliverers and of PostgreSQL."""

    def __init__(self, deliverers: int, postmaster: int) -> None:
        self._deliverers = deliverers
        self._postmaster = postmaster

    def seconds(self) -> tuple[float, float]:
        """Return the seconds so far in Python and in PostgreSQL."""
        return time.process_time() + _seconds_of(self._deliverers), self._postgres()

    def _postgres(self) -> float:
        children = Path(f"/proc/{self._postmaster}/task/{self._postmaster}/children").read_text().split()
        # Ended backends are in what the postmaster has waited for.
        return _seconds_of(self._postmaster, waited_for=True) + sum(_seconds_of(int(child)) for child in children)


def _seconds_of(process: int, *, waited_for: bool = False) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11 : 15 if waited_for else 13])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sales", type=int, default=300, help="in each round")
    parser.add_argument("--buyers", type=int, default=8, help="threads that hold and check out")
    parser.add_argument("--deliverers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--durable", action=argparse.BooleanOptionalAction, default=True, help="fsync on")
    parser.add_argument("--smtp", action="store_true", help="send the mails to a local server")
    parser.add_argument("--charges-alone", action="store_true", help="no lists of charges, for comparison")
    parser.add_argument("--deliver", action="store_true", help=argparse.SUPPRESS)  # For the deliverers' process.
    options = parser.parse_args()
    if options.deliver:
        return deliver(options.deliverers, charges_alone=options.charges_alone)
    os.environ["SANDBOX_PAUSE_SECONDS"] = "0"
    os.environ["EMAIL_URL"] = "dummymail://"
    with ExitStack() as stack:
        if options.smtp:
            os.environ["EMAIL_URL"] = f"smtp://127.0.0.1:{stack.enter_context(mail_sink())}"
        servers = stack.enter_context(start_servers(durable=options.durable))
        assert servers.postgres is not None
        return measure(options, servers.postgres.pid)


def measure(options: argparse.Namespace, postmaster: int) -> int:
    from ticketing import outbox_handlers

    outbox_handlers.register()
    count_round_trips()
    steps, ratios, budgets = Steps(), [], []
    with deliverers(options, steps) as worker:
        processor = Processor(worker.pid, postmaster)
        for number in range(options.rounds):
            event = make_event(f"round-{number}", seats=4 * options.sales)
            seats = iter(pairs(4 * options.sales))
            requests = make_requests(event, seats, options.sales)
            buyers = make_requests(event, seats, options.sales)
            moments = [processor.seconds()]
            held = rate(options, [lambda request=request: hold(request) for request in requests])
            moments.append(processor.seconds())
            sold = sell(options, steps, worker, buyers)
            moments.append(processor.seconds())
            ratios.append(sold / held)
            budgets.append(Budget.of(moments, options.sales))
            print(
                f"{sold:,.1f} orders confirmed/s | {held:,.1f} holds/s | {sold / held:.2f} | {budgets[-1]}", flush=True
            )
    print(f"\nmedian: {statistics.median(ratios):.2f} of the hold rate; {min(ratios):.2f} to {max(ratios):.2f}")
    report(steps, budgets, options.sales * options.rounds)
    return verdict(options)


class Budget(NamedTuple):
    """Milliseconds of processor time."""

    hold_python: float
    hold_postgres: float
    sale_python: float
    sale_postgres: float

    @classmethod
    def of(cls, moments: Sequence[tuple[float, float]], count: int) -> "Budget":
        """Return the budget of `count` holds between the first two moments and as many sales after them."""
        spent = [end - begin for pair in pairwise(moments) for begin, end in zip(*pair, strict=True)]
        return cls(*(1_000 * seconds / count for seconds in spent))

    @property
    def hold(self) -> float:
        return self.hold_python + self.hold_postgres

    def sale(self, mail_ms: float = 0.0) -> float:
        return self.sale_python + self.sale_postgres - mail_ms

    def __str__(self) -> str:
        return (
            f"processor: a hold {self.hold:.1f} ms (PostgreSQL {self.hold_postgres:.1f}), "
            f"a sale {self.sale():.1f} ms (PostgreSQL {self.sale_postgres:.1f})"
        )


def report(steps: Steps, budgets: Sequence[Budget], sales: int) -> None:
    whole = Cost()
    for cost in steps.costs.values():
        whole = whole.plus(cost)
    print(f"\n{'of a sale':<32} {'time':>6} {'ms':>8} {'processor ms':>13} {'round trips':>12} {'statements':>11}")
    for name, cost in [*sorted(steps.costs.items(), key=lambda item: -item[1].seconds), ("all steps", whole)]:
        print(
            f"{name:<32} {cost.seconds / whole.seconds:6.1%} {1_000 * cost.seconds / sales:8.1f} "
            f"{1_000 * cost.processor / sales:13.2f} {cost.trips / sales:12.2f} {cost.statements / sales:11.2f}"
        )
    mail_ms = 1_000 * steps.costs[MAIL].processor / sales
    for title, without_ms in (("with mails and PDFs", 0.0), ("without them", mail_ms)):
        found = [budget.sale(without_ms) / budget.hold for budget in budgets]
        low, high = min(found), max(found)
        print(f"processor of a sale / of a hold, {title}: {statistics.median(found):.1f}, {low:.1f} to {high:.1f}")


class Worker:
    """The deliverers' process, as its parent controls it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wake(self) -> None:
        """Let the process deliver the messages that are due."""
        self._send(WAKE)

    def end(self) -> dict[str, Cost]:
        """End the process after its current deliveries; return what its threads spent, by step."""
        self._send(END)
        output, _ = self._process.communicate(timeout=END_SECONDS_MAX)
        assert self._process.returncode == 0, self._process.returncode
        return {name: Cost(*values) for name, values in json.loads(output).items()}

    def _send(self, command: bytes) -> None:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(command)


@contextmanager
def deliverers(options: argparse.Namespace, steps: Steps) -> Iterator[Worker]:
    """Run deliverers in another process while the block runs, and add what they spent to the steps."""
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
        for name, cost in worker.end().items():
            steps.add(name, cost)
    finally:
        process.kill()
        process.wait()


def deliver(count: int, *, charges_alone: bool) -> int:
    """Deliver in this process whenever the parent asks for it, until it asks to end; print what each step took."""
    import django

    django.setup()
    from apps.kernel.outbox import facade as outbox
    from apps.kernel.outbox.delivery import Delivery
    from ticketing import outbox_handlers

    outbox_handlers.register()
    count_round_trips()
    steps = Steps()
    time_the_handlers(steps, charges_alone=charges_alone)
    delivery = Delivery(count)
    outbox.register_wake(delivery.wake)
    # Commands that arrived together count as one. An empty read means that the parent has ended.
    while (commands := os.read(sys.stdin.fileno(), 4_096)) and END not in commands:
        delivery.wake()
    is_over = delivery.close(END_SECONDS_MAX)
    json.dump(steps.costs, sys.stdout)
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
