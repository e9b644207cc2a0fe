"""A complete run: from the first arrival until every actor is done, with its result."""

import asyncio
import itertools
import math
import random
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import aiohttp

from ticketing.simulator.api import Api, Busy, NoResponse, open_session, own_address
from ticketing.simulator.bots import DISTRIBUTED, Bot, create_bots
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
from ticketing.simulator.work import Workers

LEAVE_SECONDS_MAX = 15
CHECK_SECONDS = 1.0
ARRIVAL_SECONDS_MAX = 5.0
"""Listeners connect within this time."""


@dataclass(slots=True)
class Run:
    """A run in progress, and afterwards its result."""

    plan: Plan
    figures: Figures
    line: ObservedQueue
    began_at: float = 0.0
    seconds: float = 0.0
    late_seconds_max: float = 0.0
    listeners: StreamListeners | None = None
    """The listeners with a stream."""
    bot_figures: Figures = field(default_factory=Figures)
    bot_workers: Workers | None = None
    ended: str = ""
    """Why the run ended early; empty if it did not."""

    @property
    def is_clean(self) -> bool:
        """Whether no breach was found."""
        return not self.figures.breaches.counts


Watch = Callable[[Run], None]


def create_actors(
    plan: Plan, context: VisitorContext, terms: SaleTerms, contexts: Sequence[VisitorContext] = ()
) -> list[tuple[float, Actor]]:
    """Return all actors with their arrival times in seconds. The seed determines everything except the names, so that a
    second run with the same seed has new visitors. `contexts`: of the addresses from which visitors come in turn."""
    rng = random.Random(plan.seed)  # noqa: S311 - reproducible on purpose
    run = secrets.token_hex(5)
    moments = sorted(rng.uniform(0, plan.over_seconds) for _ in range(plan.visitors))
    buyers = set(rng.sample(range(plan.visitors), plan.buyers))
    actors: list[tuple[float, Actor]] = []
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
        at = contexts[number % len(contexts)] if contexts else context
        visitor = Buyer(name, at, own, habits, terms) if buys else Visitor(name, at, own, habits)
        if plan.account_tokens:
            visitor.account_token = plan.account_tokens[number % len(plan.account_tokens)]
        actors.append((moment, visitor))
    polling = plan.listeners - plan.streams
    listeners = [Listener(context, random.Random(rng.random())) for _ in range(polling)]  # noqa: S311
    return [*actors, *((rng.uniform(0, min(1.0, plan.over_seconds)), listener) for listener in listeners)]


async def run(plan: Plan, watch: Watch | None = None, stopping: asyncio.Event | None = None) -> Run:
    """Run the plan and return the result. `watch` is called every second meanwhile.

    Ends early if `stopping` is set or the plan's time is over: visitors then leave the queue within LEAVE_SECONDS_MAX.
    Raises PlanRefused if there is no such event, or no Fairgate, at the address.
    """
    base = check_base(plan.base, anywhere=plan.anywhere)
    stopping = stopping or asyncio.Event()
    figures = Figures()
    result = Run(plan, figures, ObservedQueue(figures.breaches, plan.rate_max, plan.active_max))
    async with open_session(plan.connections, anywhere=plan.anywhere) as session:
        workers = Workers(plan.step_seconds)
        api = Api(base, session, Figures())
        context = VisitorContext(plan.event, api, figures, result.line, workers=workers)
        terms = await _read_event(plan, context)
        context.api.figures = figures
        agenda = Agenda(plan.connections)
        async with AsyncExitStack() as sessions:
            contexts = [
                await _at_address(context, own_address(1, number), sessions, plan) for number in range(plan.addresses)
            ]
            for moment, actor in create_actors(plan, context, terms, contexts):
                agenda.add(moment, actor)
            for bot in await _create_bots(plan, context, terms, result, sessions):
                agenda.add(0.0, bot)
            agenda.add(plan.least_seconds, MinimumStay())
            result.began_at = context.now()
            async with _listening(result, context):
                await _run(agenda, result, context, watch, stopping)
                if result.listeners is not None and not stopping.is_set():
                    await result.listeners.settle(stopping)
    _check_rate(result)
    return result


async def _at_address(context: VisitorContext, address: str, sessions: AsyncExitStack, plan: Plan) -> VisitorContext:
    """Return the same context for visitors from another address."""
    session = await sessions.enter_async_context(open_session(plan.connections, anywhere=False, address=address))
    return replace(context, api=Api(context.api.base, session, context.api.figures))


async def _create_bots(
    plan: Plan, context: VisitorContext, terms: SaleTerms, result: Run, sessions: AsyncExitStack
) -> list[Bot]:
    """Create the plan's bots. Their figures are their own: a bot breaks rules that visitors keep."""
    if not plan.bots:
        return []
    figures = result.bot_figures
    workers = result.bot_workers = Workers(plan.bot_step_seconds, plan.bot_cores)
    own = replace(
        context,
        api=replace(context.api, figures=figures),
        figures=figures,
        line=ObservedQueue(figures.breaches),
        workers=workers,
    )
    contexts = {}
    for block, kind in enumerate(plan.bot_kinds, start=64):
        count = plan.bot_addresses if kind == DISTRIBUTED else 1
        contexts[kind] = [
            await _at_address(own, own_address(64 * (block - 63), number), sessions, plan) for number in range(count)
        ]
    rng = random.Random(plan.seed + 1)  # noqa: S311
    bots = create_bots(plan.bots, contexts, terms, rng, secrets.token_hex(5))
    if plan.bot_account_tokens:
        for bot, token in zip(bots, itertools.cycle(plan.bot_account_tokens), strict=False):
            bot.account_token = token
    return bots


@asynccontextmanager
async def _listening(result: Run, context: VisitorContext) -> AsyncIterator[None]:
    """Run the plan's stream listeners inside this context. Raises PlanRefused."""
    plan, base = result.plan, context.api.base
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
        listeners = result.listeners = StreamListeners(context, rng, plan.streams, plan.listen_by, opens)
        listeners.begin(min(ARRIVAL_SECONDS_MAX, plan.over_seconds))
        try:
            yield
        finally:
            await listeners.close()


async def _run(
    agenda: Agenda, result: Run, context: VisitorContext, watch: Watch | None, stopping: asyncio.Event
) -> None:
    actors = asyncio.create_task(agenda.run())
    try:
        await _monitor(actors, result, context, agenda, watch, stopping)
    finally:
        result.seconds = context.now() - result.began_at
        result.late_seconds_max = agenda.late_seconds_max
        if not actors.done():
            actors.cancel()
            with suppress(asyncio.CancelledError):
                await actors


async def _read_event(plan: Plan, context: VisitorContext) -> SaleTerms:
    """Read the event's purchase limits. Raises PlanRefused."""
    path = f"/events/{plan.event}"
    try:
        response = await context.api.call("event", "GET", path)
    except Busy as busy:
        raise PlanRefused(f"{plan.base} is not ready; it asks to retry after {busy.seconds:.0f} s") from busy
    except NoResponse as error:
        if isinstance(error.__cause__, aiohttp.ClientError | OSError):
            raise PlanRefused(f"no response from {plan.base}: is the demo running?") from error
        raise PlanRefused(f"{plan.base} does not respond like Fairgate") from error
    if response.status == 404:
        raise PlanRefused(f"there is no event {plan.event!r} at {plan.base}")
    if response.status != 200 or not isinstance(response.document.get("seats_per_reservation"), int):
        raise PlanRefused(f"{plan.base} does not respond like Fairgate")
    cap = response.document.get("per_buyer_cap")
    most = response.document["seats_per_reservation"]
    return SaleTerms(quantity_max=max(1, min(most, cap) if isinstance(cap, int) else most))


async def _monitor(
    actors: asyncio.Task[None],
    result: Run,
    context: VisitorContext,
    agenda: Agenda,
    watch: Watch | None,
    stopping: asyncio.Event,
) -> None:
    stop = asyncio.create_task(stopping.wait())
    deadline: float | None = None
    try:
        while not actors.done():
            waits = {actors} if context.closing else {actors, stop}
            await asyncio.wait(waits, timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            now = context.now()
            result.seconds = now - result.began_at
            if watch is not None:
                watch(result)
            if not context.closing and (stopping.is_set() or result.seconds > result.plan.seconds_max):
                result.ended = "interrupted" if stopping.is_set() else "time limit"
                context.ending.is_on = True
                agenda.hurry()
                deadline = now + LEAVE_SECONDS_MAX
            if deadline is not None and now > deadline:
                agenda.stop()
                break
        await actors
    finally:
        stop.cancel()


def _check_rate(result: Run) -> None:
    """Check the admission rate, which needs the complete run."""
    plan, line = result.plan, result.line
    if plan.rate_max is None or not line.joins:
        return
    passed = passes_rate(sorted(line.admissions), min(line.joins), plan.rate_max)
    if passed is not None:
        count, seconds = passed
        result.figures.breaches.note("rate exceeded", f"{count} admitted within {seconds:.1f} s")
