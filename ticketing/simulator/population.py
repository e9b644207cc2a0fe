"""A whole run: who comes when, from the first join until everybody's story is over, and what came of it."""

import asyncio
import math
import random
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import aiohttp

from ticketing.simulator.api import Api, Busy, NoAnswer, open_session
from ticketing.simulator.buyers import Buyer, SaleTerms
from ticketing.simulator.plan import Plan, PlanRefused, check_base
from ticketing.simulator.poll_listeners import Listener, MinimumStay
from ticketing.simulator.queue_rules import ObservedQueue
from ticketing.simulator.schedule import Actor, Agenda
from ticketing.simulator.sockets import open_sockets
from ticketing.simulator.stats import Figures, passes_rate
from ticketing.simulator.stream_listeners import StreamListeners
from ticketing.simulator.streams import open_streams
from ticketing.simulator.visitors import Habits, Visitor, VisitorContext

LEAVE_SECONDS_MAX = 15
CHECK_SECONDS = 1.0
ARRIVAL_SECONDS_MAX = 5.0
"""Who listens is there within so long."""


@dataclass(slots=True)
class Run:
    """A run under way, and afterwards its result."""

    plan: Plan
    figures: Figures
    line: ObservedQueue
    began_at: float = 0.0
    seconds: float = 0.0
    late_seconds_max: float = 0.0
    listeners: StreamListeners | None = None
    """Those who listen over a stream."""
    ended: str = ""
    """Why it ended before everybody's story did; empty when it did not."""

    @property
    def is_clean(self) -> bool:
        """Nothing happened that must not happen."""
        return not self.figures.breaches.counts


Watch = Callable[[Run], None]


def create_actors(plan: Plan, door: VisitorContext, wares: SaleTerms) -> list[tuple[float, Actor]]:
    """Everybody, with the second in which each comes. The seed decides it all, but for the names: a second run of the
    same seed is other people."""
    rng = random.Random(plan.seed)  # noqa: S311 - nobody is to be surprised by it.
    run = secrets.token_hex(5)
    moments = sorted(rng.uniform(0, plan.over_seconds) for _ in range(plan.visitors))
    buyers = set(rng.sample(range(plan.visitors), plan.buyers))
    crowd: list[tuple[float, Actor]] = []
    for number, moment in enumerate(moments):
        is_impatient = rng.random() < plan.leavers
        habits = Habits(
            plan.stay_seconds,
            twice=rng.random() < plan.twice,
            patience_seconds=rng.uniform(0, max(plan.over_seconds, 1.0)) if is_impatient else math.inf,
        )
        own = random.Random(rng.random())  # noqa: S311
        name = f"sim-{run}-{number}"
        buys = number in buyers
        if buys:
            habits = replace(
                habits,
                walks_away=own.random() < plan.walk_away,
                double_clicks=own.random() < plan.double,
                changes_mind=own.random() < plan.change,
                comes_back=own.random() < plan.back,
            )
        crowd.append((moment, Buyer(name, door, own, habits, wares) if buys else Visitor(name, door, own, habits)))
    asking = plan.listeners - plan.streams
    listeners = [Listener(door, random.Random(rng.random())) for _ in range(asking)]  # noqa: S311
    return [*crowd, *((rng.uniform(0, min(1.0, plan.over_seconds)), listener) for listener in listeners)]


async def run(plan: Plan, watch: Watch | None = None, stopping: asyncio.Event | None = None) -> Run:
    """The crowd has come and gone; what it saw. `watch` is called every second meanwhile.

    Ends early when `stopping` is set or the plan's time is over: whoever has a place then leaves it, within
    LEAVE_SECONDS_MAX. Raises PlanRefused where there is no such event, or nobody, at the address.
    """
    base = check_base(plan.base, anywhere=plan.anywhere)
    stopping = stopping or asyncio.Event()
    figures = Figures()
    result = Run(plan, figures, ObservedQueue(figures.breaches, plan.rate_max, plan.active_max))
    async with open_session(plan.connections, anywhere=plan.anywhere) as session:
        door = VisitorContext(plan.event, Api(base, session, Figures()), figures, result.line)
        wares = await _read_event(plan, door)
        door.api.figures = figures
        agenda = Agenda(plan.connections)
        for moment, actor in create_actors(plan, door, wares):
            agenda.add(moment, actor)
        agenda.add(plan.least_seconds, MinimumStay())
        result.began_at = door.now()
        async with _listening(result, door):
            await _run(agenda, result, door, watch, stopping)
            if result.listeners is not None and not stopping.is_set():
                await result.listeners.settle(stopping)
    _check_rate(result)
    return result


@asynccontextmanager
async def _listening(result: Run, door: VisitorContext) -> AsyncIterator[None]:
    """Whoever listens over a stream does so meanwhile. Raises PlanRefused."""
    plan, base = result.plan, door.api.base
    if not plan.streams:
        yield
        return
    async with open_session(0, anywhere=plan.anywhere) as session:
        opens = (
            open_streams(base, plan.event, anywhere=plan.anywhere)
            if plan.listen_by == "sse"
            else open_sockets(session, base, plan.event)
        )
        rng = random.Random(plan.seed)  # noqa: S311
        ears = result.listeners = StreamListeners(door, rng, plan.streams, plan.listen_by, opens)
        ears.begin(min(ARRIVAL_SECONDS_MAX, plan.over_seconds))
        try:
            yield
        finally:
            await ears.close()


async def _run(agenda: Agenda, result: Run, door: VisitorContext, watch: Watch | None, stopping: asyncio.Event) -> None:
    crowd = asyncio.create_task(agenda.run())
    try:
        await _monitor(crowd, result, door, agenda, watch, stopping)
    finally:
        result.seconds = door.now() - result.began_at
        result.late_seconds_max = agenda.late_seconds_max
        if not crowd.done():
            crowd.cancel()
            with suppress(asyncio.CancelledError):
                await crowd


async def _read_event(plan: Plan, door: VisitorContext) -> SaleTerms:
    """What anybody can read about the event. Raises PlanRefused."""
    path = f"/events/{plan.event}"
    try:
        answer = await door.api.call("event", "GET", path)
    except Busy as busy:
        raise PlanRefused(f"{plan.base} is not ready, and asks to come back in {busy.seconds:.0f} s") from busy
    except NoAnswer as error:
        if isinstance(error.__cause__, aiohttp.ClientError | OSError):
            raise PlanRefused(f"nobody answers at {plan.base}: is the demo running?") from error
        raise PlanRefused(f"{plan.base} does not answer as Fairgate does") from error
    if answer.status == 404:
        raise PlanRefused(f"there is no event {plan.event!r} at {plan.base}")
    if answer.status != 200 or not isinstance(answer.document.get("seats_per_reservation"), int):
        raise PlanRefused(f"{plan.base} does not answer as Fairgate does")
    cap = answer.document.get("per_buyer_cap")
    most = answer.document["seats_per_reservation"]
    return SaleTerms(quantity_max=max(1, min(most, cap) if isinstance(cap, int) else most))


async def _monitor(
    crowd: asyncio.Task[None],
    result: Run,
    door: VisitorContext,
    agenda: Agenda,
    watch: Watch | None,
    stopping: asyncio.Event,
) -> None:
    told = asyncio.create_task(stopping.wait())
    farewell_at: float | None = None
    try:
        while not crowd.done():
            waits = {crowd} if door.closing else {crowd, told}
            await asyncio.wait(waits, timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            now = door.now()
            result.seconds = now - result.began_at
            if watch is not None:
                watch(result)
            if not door.closing and (stopping.is_set() or result.seconds > result.plan.seconds_max):
                result.ended = "interrupted" if stopping.is_set() else "the time was over"
                door.closing = True
                agenda.hurry()
                farewell_at = now + LEAVE_SECONDS_MAX
            if farewell_at is not None and now > farewell_at:
                agenda.stop()
                break
        await crowd
    finally:
        told.cancel()


def _check_rate(result: Run) -> None:
    """What can only be told from the whole: the rate."""
    plan, line = result.plan, result.line
    if plan.rate_max is None or not line.joins:
        return
    passed = passes_rate(sorted(line.admissions), min(line.joins), plan.rate_max)
    if passed is not None:
        count, seconds = passed
        result.figures.breaches.note("faster than the rate", f"{count} let in within {seconds:.1f} s")
