"""The context of every row (deployments, programs, rounds, slice length), and the requests that rows send."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.suite import flame_graph, restore, systems
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import raw_requests, wrk
from benchmarks.suite.load.wrk import Flow
from benchmarks.suite.programs import Programs
from benchmarks.suite.systems import BenchServers, Deployment

READERS = 64
BUYERS = 128
REFUSED_SHARE_MAX = 0.02
"""If more holds are refused although all could be granted, the slice did not measure what it should."""


_HELD = """
    SELECT id::text, entry_id::text FROM reservations_reservation
    WHERE status = 'pending_payment' AND expires_at < clock_timestamp() + interval '12 hours'"""


@dataclass
class Bench:
    servers: BenchServers
    deployment: Deployment
    """The deployment under test of rows 1 to 9."""
    others: dict[int, Deployment]
    """Deployments of all sizes, as multiples of the smallest; for row 10."""
    programs: Programs
    rounds: int
    seconds: int
    folder: Path
    orders: tuple[int, ...] = ()
    """The numbers of orders in the databases of row sale-growth."""
    shares: list[float] = field(default_factory=list)
    """The load generator's processor time in each slice, as a share of one processor."""

    def say(self, text: str) -> None:
        print(text, flush=True)

    def flow(self, port: int, requests: Sequence[bytes], **how: object) -> Flow:
        """Send the requests with wrk, record its processor time, and return the result."""
        found = wrk.send(self.programs.wrk, port, requests, **{"seconds": self.seconds, **how})  # type: ignore[arg-type]
        self.shares.append(found.generator_share)
        return found

    def reads(self, port: int, requests: Sequence[bytes], *, connections: int = READERS) -> float:
        """Return responses per second to these repeated requests. Raises SuiteFailed if some are refused."""
        found = self.flow(port, requests, connections=connections, again=True)
        if found.refused:
            raise SuiteFailed(f"{found.refused} of {found.responses} reads were refused")
        return found.good_rate

    def holds(self, deployment: Deployment, requests: Sequence[bytes], *, connections: int = BUYERS) -> float:
        """Return holds committed per second with this many concurrent buyers, and remove the holds afterwards. Raises
        SuiteFailed if the ledger has another number of holds than there were responses."""
        flow = self.flow(deployment.web_port, requests, connections=connections, statuses=True)
        committed = restore.remove_holds(deployment)
        self.settle()
        granted = flow.responses - flow.refused
        if granted < connections:
            raise SuiteFailed(f"only {granted} holds in the slice: too few for a rate")
        if flow.refused > flow.responses * REFUSED_SHARE_MAX:
            raise SuiteFailed(f"{flow.refused} of {flow.responses} holds were refused: {flow.statuses}")
        # Requests in progress at the end may be committed without a response, or not be in the ledger any more.
        if abs(committed - granted) > 2 * connections + granted // 50:
            raise SuiteFailed(f"{granted} holds got a 201, but the ledger has {committed}")
        return flow.good_rate

    def settle(self) -> None:
        """Wait for work that the last slice left behind."""
        time.sleep(0.2)

    # --- requests -------------------------------------------------------------------------------------------------

    def polls(self, deployment: Deployment) -> float:
        return self.reads(deployment.web_port, raw_requests.polls(deployment.tokens("line")))

    def sections(self, deployment: Deployment) -> float:
        return self.reads(deployment.web_port, [raw_requests.get("/api/events/arena/sections")])

    def general_admission(self, deployment: Deployment) -> float:
        tokens = deployment.tokens("arena")
        return self.holds(deployment, raw_requests.general_admission_holds("arena", deployment.facts["floor"], tokens))

    def seats(self, deployment: Deployment) -> float:
        tokens = deployment.tokens("arena")
        facts = deployment.facts
        return self.holds(
            deployment, raw_requests.seat_holds("arena", facts["section"], facts["section_seats"] - 2, tokens)
        )

    def checkouts(self, deployment: Deployment) -> float:
        """Return checkouts committed per second, of as many reservations as a slice of holds makes, and remove all of
        them afterwards. Raises SuiteFailed if the ledger has another number of orders than there were responses."""
        requests = self.checkouts_to_send(deployment)
        with self.only_placed(deployment):
            before = _charges(deployment)
            flow = self.flow(deployment.web_port, requests, connections=BUYERS, statuses=True)
            self.settle()
            placed = _charges(deployment) - before
        if set(flow.statuses) - {200, 202} or abs(placed - flow.responses) > 2 * BUYERS:
            raise SuiteFailed(f"the ledger has {placed} more charges; the statuses of checkouts were {flow.statuses}")
        return flow.good_rate

    @contextmanager
    def without_traces(self, deployment: Deployment) -> Iterator[None]:
        """Remove the holds at the end of the block."""
        yield
        restore.remove_holds(deployment)

    @contextmanager
    def only_placed(self, deployment: Deployment) -> Iterator[None]:
        """Let no process charge the orders that are placed in the block: without a worker, the gatekeeper delivers
        messages after three seconds. Remove the holds and the orders at the end."""
        with systems.paused(deployment, "gatekeeper"):
            yield
            restore.remove_holds(deployment)

    def checkouts_to_send(self, deployment: Deployment, *, seconds: int = 0) -> list[bytes]:
        """Hold two named seats each for so many seconds, or a slice, and return the requests for the checkouts of these
        reservations."""
        facts = deployment.facts
        tokens = deployment.tokens("arena")
        holding = raw_requests.seat_holds("arena", facts["section"], facts["section_seats"] - 2, tokens)
        self.flow(deployment.web_port, holding, connections=BUYERS, seconds=seconds or self.seconds)
        token_of = {raw_requests.entry_of(token): token for token in tokens}
        with deployment.ledger() as on:
            held = on.execute(_HELD).fetchall()
        return raw_requests.checkouts((reservation, token_of[entry]) for reservation, entry in held)

    def refusals(self, deployment: Deployment) -> float:
        """Return sold-out responses per second. Raises SuiteFailed if there are other responses."""
        requests = raw_requests.general_admission_holds("gone", "floor", deployment.tokens("gone"))
        found = self.flow(deployment.web_port, requests, connections=READERS, again=True, statuses=True)
        if set(found.statuses) != {409}:
            raise SuiteFailed(f"the statuses of sold-out responses were {found.statuses}")
        return found.responses / found.seconds

    def joins(self, deployment: Deployment) -> float:
        requests = raw_requests.joins(40_000 * max(1, self.seconds // 2))
        with deployment.ledger() as on:
            count = """SELECT count(*) FROM queue_queueentry
                       WHERE event_id = (SELECT id FROM events_event WHERE slug = 'line')"""
            ((before,),) = on.execute(count).fetchall()
            flow = self.flow(deployment.web_port, requests, connections=BUYERS)
            self.settle()
            ((after,),) = on.execute(count).fetchall()
        if flow.refused or abs(after - before - flow.responses) > 2 * BUYERS:
            raise SuiteFailed(
                f"{flow.responses} joins, {flow.refused} refused; the ledger has {after - before} more rows"
            )
        return flow.good_rate

    # --- profiles -------------------------------------------------------------------------------------------------

    @contextmanager
    def profiled(self, row: str, deployment: Deployment, process: str = "web") -> Iterator[None]:
        """Record a flame graph of this process during the block, in the output folder."""
        with flame_graph.recorded(
            self.programs.py_spy, deployment.processes[process].pid, self.folder / f"flame-{row}.svg"
        ):
            yield


def _charges(deployment: Deployment) -> int:
    with deployment.ledger() as on:
        ((count,),) = on.execute("SELECT count(*) FROM outbox_outboxmessage WHERE topic = 'orders.charge'").fetchall()
    return int(count)
