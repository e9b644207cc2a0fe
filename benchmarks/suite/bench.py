"""What every row is given: the house, the programs, how often and how long; and how the house is asked."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.suite import flame_graph, restore
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import raw_requests, wrk
from benchmarks.suite.load.wrk import Flow
from benchmarks.suite.programs import Programs
from benchmarks.suite.systems import Ground, House

READERS = 64
BUYERS = 128
REFUSED_SHARE_MAX = 0.02
"""More refusals than this among holds that could all be granted, and the house was not doing what was measured."""


@dataclass
class Bench:
    ground: Ground
    house: House
    """The one that rows 1 to 9 ask."""
    others: dict[int, House]
    """Of other sizes, by how many times the smallest they are; for row 10."""
    programs: Programs
    rounds: int
    seconds: int
    folder: Path
    shares: list[float] = field(default_factory=list)
    """Of one processor, what the generator took in each slice."""

    def say(self, text: str) -> None:
        print(text, flush=True)

    def flow(self, port: int, requests: Sequence[bytes], **how: object) -> Flow:
        """What wrk found, sending these; noted is what it took itself."""
        found = wrk.send(self.programs.wrk, port, requests, **{"seconds": self.seconds, **how})  # type: ignore[arg-type]
        self.shares.append(found.generator_share)
        return found

    def reads(self, port: int, requests: Sequence[bytes], *, connections: int = READERS) -> float:
        """Answers a second to these, again and again. Raises SuiteFailed where some are refusals."""
        found = self.flow(port, requests, connections=connections, again=True)
        if found.refused:
            raise SuiteFailed(f"{found.refused} of {found.answers} reads were refused")
        return found.good_rate

    def holds(self, house: House, requests: Sequence[bytes], *, connections: int = BUYERS) -> float:
        """Holds committed a second, asked for by so many buyers at any time; they are given back afterwards. Raises
        SuiteFailed where the ledger has another number of them than was answered."""
        flow = self.flow(house.web_port, requests, connections=connections, statuses=True)
        made = restore.give_back(house)
        self.settle()
        granted = flow.answers - flow.refused
        if granted < connections:
            raise SuiteFailed(f"only {granted} holds within the slice: nothing can be said of a rate")
        if flow.refused > flow.answers * REFUSED_SHARE_MAX:
            raise SuiteFailed(f"{flow.refused} of {flow.answers} holds were refused: {flow.statuses}")
        # Those under way at the end may have been committed and not been answered, or not be in the ledger any more.
        if abs(made - granted) > 2 * connections + granted // 50:
            raise SuiteFailed(f"{granted} holds were answered with 201, and the ledger had {made}")
        return flow.good_rate

    def settle(self) -> None:
        """What the last slice left to be done behind it is done."""
        time.sleep(0.2)

    # --- how the house is asked -----------------------------------------------------------------------------------

    def polls(self, house: House) -> float:
        return self.reads(house.web_port, raw_requests.polls(house.tokens("line")))

    def sections(self, house: House) -> float:
        return self.reads(house.web_port, [raw_requests.get("/api/events/arena/sections")])

    def places(self, house: House) -> float:
        tokens = house.tokens("arena")
        return self.holds(house, raw_requests.holds_of_places("arena", house.facts["floor"], tokens))

    def seats(self, house: House) -> float:
        tokens = house.tokens("arena")
        facts = house.facts
        return self.holds(
            house, raw_requests.holds_of_seats("arena", facts["section"], facts["section_seats"] - 2, tokens)
        )

    def refusals(self, house: House) -> float:
        """Sold-out answers a second. Raises SuiteFailed where anything else was answered."""
        requests = raw_requests.holds_of_places("gone", "floor", house.tokens("gone"))
        found = self.flow(house.web_port, requests, connections=READERS, again=True, statuses=True)
        if set(found.statuses) != {409}:
            raise SuiteFailed(f"sold out was answered with {found.statuses}")
        return found.answers / found.seconds

    def joins(self, house: House) -> float:
        requests = raw_requests.joins(40_000 * max(1, self.seconds // 2))
        with house.ledger() as on:
            count = """SELECT count(*) FROM queue_queueentry
                       WHERE event_id = (SELECT id FROM events_event WHERE slug = 'line')"""
            ((before,),) = on.execute(count).fetchall()
            flow = self.flow(house.web_port, requests, connections=BUYERS)
            self.settle()
            ((after,),) = on.execute(count).fetchall()
        if flow.refused or abs(after - before - flow.answers) > 2 * BUYERS:
            raise SuiteFailed(f"{flow.answers} joins, {flow.refused} refused; the ledger has {after - before} more")
        return flow.good_rate

    # --- where the time goes --------------------------------------------------------------------------------------

    @contextmanager
    def profiled(self, row: str, house: House, process: str = "web") -> Iterator[None]:
        """While the block runs, where that process spends its time is drawn into the output folder."""
        with flame_graph.drawn(self.programs.py_spy, house.processes[process].pid, self.folder / f"flame-{row}.svg"):
            yield


Act = Callable[[], float]
