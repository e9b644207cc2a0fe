"""Rows orders, sale and sale-commits: orders confirmed end to end over HTTP (hold, checkout, charge, provider's
message, tickets, polls), compared with holds of two named seats, by rate and by processor time; and the transactions
that a sale takes.

`mailer` runs after each slice, not in it: mail catches up afterwards, and its processor time is apart. What the
processes use without any load is measured first and left out of both sides.
"""

import asyncio
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import psutil

from benchmarks.suite import restore, systems
from benchmarks.suite.bench import BUYERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import raw_requests
from benchmarks.suite.results import Fact, Findings, compare, in_turn
from benchmarks.suite.systems import Deployment
from benchmarks.support import purchases

EVENT = "sales"
SALES = 2 * BUYERS
"""In each slice."""
IDLE_SECONDS = 2.5
IDLE_WINDOWS = 9
"""What is used without load is the median of so many windows, each about as long as a slice: passes that run once a
minute, here and for other deployments on the same PostgreSQL, are in few windows, as they are in few slices."""
COMMITS_MAX = 8.0
"""Transactions of PostgreSQL for a sale, those that it shares with others counted in part."""
STATISTICS_SECONDS = 1.2
"""Sessions that are used report their transactions to PostgreSQL's statistics at most this late."""
IDLE_STATISTICS_SECONDS = 10.5
"""Sessions that are used no more report their last transactions at most this late. Those of the rows before, and of the
start of `worker`, would otherwise count as the idle use."""
IDLE_SHARE_MAX = 0.5
"""Processes that use less of one processor than this are not starting any more."""
START_SECONDS_MAX = 60.0
DRAIN_SECONDS_MAX = 300.0
PAID_BY = "sandbox_delayed"
"""The payment method whose success a message of the provider reports."""
_PENDING = """
SELECT count(*) FROM outbox_outboxmessage
WHERE done_at IS NULL AND dead_at IS NULL AND topic NOT IN ('orders.ask', 'orders.reconcile_payment')
"""
_TRANSACTIONS = """
SELECT xact_commit, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
FROM pg_stat_database
WHERE datname = current_database()
"""
"""Those that were committed, and those that wrote: only these have an id."""


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    with ExitStack() as until:
        deployment.processes["worker"] = until.enter_context(
            systems.started(bench.servers, "sales-worker", systems.command_of("worker"), deployment.environment)
        )
        found = _measure(bench)
        with bench.profiled("sale", deployment):
            Slices(bench).sell()
    del deployment.processes["worker"]
    _send_mails(bench)
    return found


def _measure(bench: Bench) -> Findings:
    slices = Slices(bench)
    rates = in_turn(bench.rounds, {"orders": slices.sell, "holds": slices.hold}, bench.say)
    title = "orders confirmed over HTTP, 128 buyers, two seats each, mail afterwards ÷ holds of two named seats"
    # The first of each is the warm-up.
    of_sales, of_holds = slices.of_sales[-bench.rounds :], slices.of_holds[-bench.rounds :]
    return Findings(
        [
            compare("orders", title, rates["orders"], rates["holds"], acceptable=0.06, goal=0.12),
            compare(
                "sale", "processor of a sale, mail apart ÷ of a hold of two named seats", of_sales, of_holds,
                acceptable=12, goal=6, better="lower", unit="ms",
            ),
            compare(
                "sale-commits", "transactions of a sale, polls and its part of batches included ÷ 8",
                slices.of_commits[-bench.rounds :], [COMMITS_MAX] * bench.rounds,
                acceptable=1, goal=1, better="lower", unit="",
            ),
        ],
        [
            Fact(
                "Row sale",
                f"{statistics.median(slices.of_writes[-bench.rounds :]):.2f} transactions of a sale write; it takes "
                f"{statistics.median(slices.of_site[-bench.rounds :]):.2f} ms of processor time of the site",
            )
        ],
    )  # fmt: skip


class Slices:
    """Slices of sales and of holds on the bench's deployment, whose `worker` runs."""

    def __init__(self, bench: Bench, *, send_mails: bool = True) -> None:
        """`send_mails`: whether the mails of a slice are sent after it. Otherwise they stay in the outbox."""
        self._bench, self._deployment = bench, bench.deployment
        self._sends_mails = send_mails
        self.of_sales: list[float] = []
        """Milliseconds of processor time of a sale, by slice."""
        self.of_holds: list[float] = []
        self.of_commits: list[float] = []
        """Transactions of a sale, by slice."""
        self.of_writes: list[float] = []
        self.of_site: list[float] = []
        """Milliseconds of processor time of the site for a sale, by slice."""
        self._wait_until_started()
        time.sleep(IDLE_STATISTICS_SECONDS)
        windows = [self._use_idle() for _ in range(IDLE_WINDOWS)]
        self._idle, *self._idle_transactions = (statistics.median(one) for one in zip(*windows, strict=True))

    def _use_idle(self) -> list[float]:
        """Return what a second without load uses, measured now: processor seconds, transactions, and those that write
        something."""
        begun, before = time.monotonic(), [self._processor(), *self._transactions()]
        time.sleep(IDLE_SECONDS)
        seconds = time.monotonic() - begun
        return [
            (after - one) / seconds
            for one, after in zip(before, [self._processor(), *self._transactions()], strict=True)
        ]

    def _wait_until_started(self) -> None:
        """Wait until `worker` has started: what its start takes is no idle use. PostgreSQL does not count: in a whole
        run it also serves the deployments of other rows."""
        deadline = time.monotonic() + START_SECONDS_MAX
        share = 1.0
        while share > IDLE_SHARE_MAX:
            if time.monotonic() > deadline:
                raise SuiteFailed(f"the processes are not idle {START_SECONDS_MAX:.0f} s after the start of the worker")
            before = self._processor_of_processes()
            time.sleep(1.0)
            share = self._processor_of_processes() - before

    def _processor(self) -> float:
        """Return the processor seconds of our processes and of PostgreSQL so far."""
        return self._processor_of_processes() + _seconds_of(self._bench.servers.cluster.pid)

    def _processor_of_processes(self) -> float:
        return sum(_seconds_of(process.pid) for process in self._deployment.processes.values())

    def _transactions(self) -> Sequence[int]:
        """Return how many transactions PostgreSQL has committed in this database, and how many wrote something."""
        with self._deployment.ledger() as on:
            return on.execute(_TRANSACTIONS).fetchall()[0]

    def _spent(self, act: Callable[[], int]) -> tuple[float, int]:
        """Return the milliseconds of processor time for each of what `act` counts, and the count."""
        begun, before = time.monotonic(), self._processor()
        count = act()
        spent = self._processor() - before - self._idle * (time.monotonic() - begun)
        return 1_000 * spent / max(count, 1), count

    def sell(self) -> float:
        """Sell, and return the orders confirmed with tickets per second."""
        seats = _free_pairs(self._deployment, SALES)
        tokens = asyncio.run(_join(self._deployment.web_port))
        begun, ended = time.monotonic(), 0.0

        def act() -> int:
            nonlocal ended
            ended = asyncio.run(_buy(self._deployment.web_port, tokens, seats))
            return SALES

        transactions, at = self._transactions(), time.monotonic()
        site = _seconds_of(self._deployment.processes["site"].pid)
        spent, _ = self._spent(act)
        self.of_sales.append(spent)
        self.of_site.append(1_000 * (_seconds_of(self._deployment.processes["site"].pid) - site) / SALES)
        time.sleep(STATISTICS_SECONDS)
        seconds = time.monotonic() - at
        commits, writes = (
            (after - before - idle * seconds) / SALES
            for before, after, idle in zip(transactions, self._transactions(), self._idle_transactions, strict=True)
        )
        self.of_commits.append(commits)
        self.of_writes.append(writes)
        if self._sends_mails:
            _send_mails(self._bench)
        return SALES / (ended - begun)

    def hold(self) -> float:
        """Hold two named seats each, and return the holds per second."""
        facts, tokens = self._deployment.facts, self._deployment.tokens("arena")
        requests = raw_requests.seat_holds("arena", facts["section"], facts["section_seats"] - 2, tokens)
        rate = 0.0

        def act() -> int:
            nonlocal rate
            flow = self._bench.flow(self._deployment.web_port, requests, connections=BUYERS)
            rate = flow.good_rate
            return flow.responses - flow.refused

        spent, count = self._spent(act)
        committed = restore.remove_holds(self._deployment)
        self._bench.settle()
        if abs(committed - count) > 2 * BUYERS + count // 50:
            raise SuiteFailed(f"{count} holds got a 201, but the ledger has {committed}")
        self.of_holds.append(spent)
        return rate


def _seconds_of(root: int) -> float:
    """Return the processor seconds of this process and its descendants, also of those that have ended."""
    total = 0.0
    process = psutil.Process(root)
    for one in (process, *process.children(recursive=True)):
        try:
            total += sum(one.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue  # It has ended since, and its parent counts it.
    return total


def _free_pairs(deployment: Deployment, count: int) -> list[list[str]]:
    with deployment.ledger() as on:
        names = [
            name
            for (name,) in on.execute(
                """SELECT seat.guid FROM events_seat AS seat
                   JOIN reservations_seatinventory AS row ON row.seat_id = seat.id
                   JOIN events_event AS event ON event.id = seat.event_id
                   WHERE event.slug = %s AND row.status = 0 ORDER BY seat.id LIMIT %s""",
                [EVENT, 2 * count],
            )
        ]
    if len(names) < 2 * count:
        raise SuiteFailed(f"only {len(names)} seats are left to sell")
    return [names[number : number + 2] for number in range(0, 2 * count, 2)]


async def _join(port: int) -> list[tuple[str, str]]:
    """Return names and admission tokens of new buyers."""
    run = secrets.token_hex(6)
    names = [f"{run}-{number}" for number in range(SALES)]
    async with purchases.open_shop(port, BUYERS) as shop:
        tokens = await asyncio.gather(*(purchases.join(shop, EVENT, name) for name in names))
    return list(zip(names, tokens, strict=True))


async def _buy(port: int, buyers: Sequence[tuple[str, str]], seats: Sequence[list[str]]) -> float:
    """Let BUYERS buy at once, each two seats, until all have tickets; return the moment at which the last had them."""
    left = iter(zip(buyers, seats, strict=True))
    last = 0.0

    async def work(shop: purchases.Shop) -> None:
        nonlocal last
        for (name, token), pair in left:
            moment = await purchases.buy(shop, EVENT, name, token, [{"seats": pair}], payment_method=PAID_BY)
            if moment is None:
                raise SuiteFailed(f"free seats were refused: {pair}")
            last = max(last, moment)

    try:
        async with purchases.open_shop(port, BUYERS) as shop:
            await asyncio.gather(*(work(shop) for _ in range(BUYERS)))
    except purchases.PurchaseFailed as error:
        raise SuiteFailed(str(error)) from error
    return last


def _send_mails(bench: Bench) -> None:
    """Run `mailer` until no message is left."""
    deployment = bench.deployment
    environment = {**deployment.environment, "MAILER_NICENESS": "0"}  # Nothing else is measured meanwhile.
    with (
        systems.started(bench.servers, "sales-mailer", systems.command_of("mailer"), environment),
        deployment.ledger() as on,
    ):
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        while on.execute(_PENDING).fetchall() != [(0,)]:
            if time.monotonic() > deadline:
                raise SuiteFailed(f"mails are still left after {DRAIN_SECONDS_MAX:.0f} s")
            time.sleep(0.2)
