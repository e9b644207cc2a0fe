"""Measures each step of a large lobby's draw, the exchange of lobby tokens, and the delay of other requests meanwhile.

    python -m benchmarks.scenarios.draw [--sizes 10000,100000,1000000] [--rounds 3] [--quiet 10] [--pace 5]
                              [--exchanges-per-second 100] [--burst 20000]

Starts a Valkey server and a PostgreSQL server whose commits would survive a power cut. Each round measures all sizes in
turn, each in a new lobby whose entrants are inserted with COPY. Closing, digest, reveal, draw and numbering use
Fairgate's own code, in a separate process with a running gatekeeper, as `manage.py gatekeeper` does it. Every draw is
checked against a second computation in this process.

Meanwhile visitors of the same room and of another one join and poll at a steady rate. The time of a call starts at the
moment at which it was due. Times are reported by phase: before and after the draw (*quiet*), each step of the draw, and
the exchange of lobby tokens by another process at a steady rate. Finally 32 callers exchange as many tokens as they
can.
"""

import argparse
import itertools
import multiprocessing
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any
from uuid import UUID

from benchmarks.support.paced_calls import Act, Measurements, percentiles_ms, run_at_rate
from benchmarks.support.rooms import make_full_room, start_servers, vacuum_tables

VISITORS = 5_000
"""Entrants who poll, join again or exchange a token."""
ELSEWHERE = 10_000
"""Entries of the other room."""
CALLERS = 32
STEPS = ("close", "digest", "reveal", "draw", "numbers")
BUSY = ("digest", "draw", "numbers", "exchange")
COPY_ENTRIES = (
    "COPY queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at) FROM STDIN"
)
Span = tuple[float, float]


@dataclass
class Drawn:
    """The measurements of one draw; times are in seconds."""

    steps: dict[str, float]
    slowest_chunk: float
    exchange: list[float] = field(default_factory=list)
    """The time of each exchange at the steady rate."""
    burst_per_second: float = 0.0
    lookups_per_statement: float = 0.0
    """During the burst, on average."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--quiet", type=float, default=10.0, help="seconds of each quiet phase, and of the exchanges at a steady rate"
    )
    parser.add_argument("--pace", type=float, default=5.0, help="calls a second of each kind")
    parser.add_argument("--exchanges-per-second", type=float, default=100.0)
    parser.add_argument("--burst", type=int, default=20_000, help="exchanges at full speed, without other calls")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    with start_servers(durable=True):
        measure(sizes, options)


def measure(sizes: list[int], options: argparse.Namespace) -> None:
    draws: dict[int, list[Drawn]] = {size: [] for size in sizes}
    others: dict[int, dict[str, dict[str, list[float]]]] = {size: {} for size in sizes}
    for number in range(options.rounds):
        for size in sizes:
            draws[size].append(one_draw(f"lobby-{size}-{number + 1}", size, options, others[size]))
    show_draws(draws)
    show_others(max(sizes), others[max(sizes)])


def one_draw(slug: str, size: int, options: argparse.Namespace, others: dict[str, dict[str, list[float]]]) -> Drawn:
    """Draw a lobby of this size and exchange its tokens; add other calls' times to `others`, by kind and phase."""
    from django.db import connection

    from tests.support.queue.lobbies import backdate_sale_start, make_lobby

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE queue_queueentry, queue_drawnplace CASCADE")
    elsewhere = make_full_room(f"beside-{slug}", ELSEWHERE)
    event, _ = make_lobby(slug, rows=0, general_admission=100_000, rate=50, active=50)
    begun = time.perf_counter()
    fill(event.id, size)
    vacuum_tables()
    print(f"{slug}: {size:,} entrants, written in {time.perf_counter() - begun:.1f} s", flush=True)
    event = backdate_sale_start(event)
    tokens = lobby_tokens(event)
    spans: dict[str, list[Span]] = {"quiet": []}

    def quiet() -> None:
        begin = time.monotonic()
        time.sleep(options.quiet)
        spans["quiet"].append((begin, time.monotonic()))

    with running_process(_draw, event.id) as drawer:
        closing = ask(drawer, "close")
        with run_at_rate(visitors(event, elsewhere, tokens), options.pace, threads_each=3) as watch:
            quiet()
            steps = ask(drawer, "draw")
            quiet()
            with running_process(_exchange, slug, tokens, options) as exchanger:
                begin = time.monotonic()
                exchanges = ask(exchanger, "pace")
                spans["exchange"] = [(begin, time.monotonic())]
        ask(drawer, "end")
    with running_process(_exchange, slug, tokens, options) as exchanger:
        burst_per_second, lookups_per_statement = ask(exchanger, "burst")
    check(event)
    for name, begin, end in steps:
        spans.setdefault(name, []).append((begin, end))
    add_times(others, watch, spans)
    seconds = {step: sum(end - begin for name, begin, end in (closing, *steps) if name == step) for step in STEPS}
    chunk = max(end - begin for name, begin, end in steps if name == "numbers")
    drawn = Drawn(seconds, chunk, exchanges, burst_per_second, lookups_per_statement)
    print(f"{slug}: " + ", ".join(f"{step} {took:.2f} s" for step, took in seconds.items()), flush=True)
    return drawn


def fill(event_id: int, count: int) -> None:
    """Insert this many entrants into the lobby, with the same columns as after a join."""
    from django.db import connection

    from apps.kernel import clock
    from apps.queue import facade
    from apps.queue.models import WaitingRoom

    now = clock.now()
    with connection.cursor() as cursor, cursor.copy(COPY_ENTRIES) as copy:
        for _ in range(count):
            copy.write_row(
                (UUID(bytes=os.urandom(16), version=4), event_id, None, True, os.urandom(16), "",
                 facade.new_visitor_secret(), "waiting", now)
            )  # fmt: skip
    WaitingRoom.objects.filter(event_id=event_id).update(lobby_count=count, next_number=count + 1)


def lobby_tokens(event: Any) -> list[str]:
    """Return the lobby tokens of some entrants."""
    from apps.queue.identity.caller import issue_queue_token
    from apps.queue.models import QueueEntry

    ids = QueueEntry.objects.filter(event_id=event.id, in_lobby=True).order_by("id").values_list("id", flat=True)
    chosen = list(ids[:VISITORS])  # The ids are random, so this is a random choice.
    random.Random(1).shuffle(chosen)  # noqa: S311
    return [issue_queue_token(entry_id, event.slug, None) for entry_id in chosen]


def visitors(event: Any, elsewhere: Any, tokens: list[str]) -> dict[str, Act]:
    """Return the calls that run in both rooms during the draw."""
    from apps.queue.identity.caller import issue_queue_token
    from apps.queue.models import QueueEntry

    last = QueueEntry.objects.filter(event_id=elsewhere.id, number__gt=ELSEWHERE - 1_000).values_list("id", "number")
    waiting = [issue_queue_token(entry_id, elsewhere.slug, number) for entry_id, number in last]
    return {
        "join, same room": joining(event),
        "join again from the lobby, same room": joining(event, tokens),
        "poll of a lobby token, same room": polling_of(event, tokens),
        "join, another room": joining(elsewhere),
        "poll, another room": polling_of(elsewhere, waiting),
    }


def joining(event: Any, tokens: Sequence[str] = ()) -> Act:
    from apps.queue import facade
    from apps.queue.identity.caller import authenticate

    again = itertools.cycle([authenticate(request_with(token), event.slug) for token in tokens]) if tokens else None
    return lambda: facade.join(event, next(again) if again else facade.Caller(visitor_id=facade.new_visitor_secret()))


def polling_of(event: Any, tokens: list[str]) -> Act:
    """Return a call that does all of a poll except HTTP: read the token, find the position, make the response."""
    from apps.events import facade as events
    from apps.queue.identity.caller import Caller, authenticate
    from apps.queue.serializers import status_answer
    from apps.queue.status import status

    requests = itertools.cycle([request_with(token) for token in tokens])

    def act() -> None:
        found = events.read_cached_event(event.slug)
        position = status.get_status(found, authenticate(next(requests), found.slug))
        assert position is not None
        status_answer(found, position, Caller())

    return act


def request_with(token: str) -> Any:
    from django.http import HttpRequest

    request = HttpRequest()
    request.META["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    return request


def check(event: Any) -> None:
    """Assert that a second computation from the seed gives the same numbers, and that the entries have them."""
    from apps.queue import proofs
    from apps.queue.fairness import stored
    from apps.queue.models import Draw, DrawnPlace, QueueEntry

    draw = Draw.objects.get(event_id=event.id)
    seed = bytes(draw.seed or b"")
    entrants = QueueEntry.objects.filter(event_id=event.id, in_lobby=True).values_list("id", "nonce")
    leaves = [(proofs.leaf(entry_id, bytes(nonce)), entry_id) for entry_id, nonce in entrants.iterator()]
    assert proofs.digest_of(leaf for leaf, _ in leaves) == bytes(draw.digest or b"")
    leaves.sort(key=lambda one: (proofs.draw_key(seed, one[0]), one[0]))
    drawn = DrawnPlace.objects.filter(event_id=event.id).order_by("number").values_list("entry_id", flat=True)
    assert [entry_id for _, entry_id in leaves] == list(drawn.iterator())
    assert draw.numbered_at is not None
    assert stored.check(event.id) is None


# --- separate processes ----------------------------------------------------------------------------------------------


@contextmanager
def running_process(work: Callable[..., None], *given: Any) -> Iterator[Connection]:
    """Run `work` in another process while the block runs; the block sends it commands through the pipe."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *given))
    process.start()
    theirs.close()
    try:
        ours.recv()  # The process is ready.
        yield ours
    finally:
        ours.close()
        process.join(10)
        if process.is_alive():
            process.kill()


def ask(pipe: Connection, command: str) -> Any:
    pipe.send(command)
    return pipe.recv()


def _draw(pipe: Connection, event_id: int) -> None:
    """The gatekeeper's process: it closes the lobby, ticks, and draws on command."""
    import django

    django.setup()
    from apps.queue.lobby import draw as lobby_draw
    from apps.queue.models import Draw
    from apps.queue.room import admission, gatekeeper
    from tests.support.queue.rooms import EPOCH

    pipe.send(None)
    assert pipe.recv() == "close"
    begin = time.monotonic()
    admission.tick(event_id, EPOCH)
    closing = ("close", begin, time.monotonic())
    assert Draw.objects.get(event_id=event_id).frozen_at is not None
    stopping = threading.Event()
    ticker = threading.Thread(target=gatekeeper.loop, args=(stopping,))
    ticker.start()
    pipe.send(closing)
    assert pipe.recv() == "draw"
    drawer = lobby_draw.DrawWorker()
    steps = []
    while (step := _next_step(event_id)) is not None:
        begin = time.monotonic()
        assert drawer.run_once(), f"the step {step} did nothing"
        steps.append((step, begin, time.monotonic()))
    drawer.close()
    pipe.send(steps)
    assert pipe.recv() == "end"
    stopping.set()
    ticker.join()
    pipe.send(None)


def _next_step(event_id: int) -> str | None:
    from apps.queue.models import Draw

    draw = Draw.objects.get(event_id=event_id)
    if draw.digest is None:
        return "digest"
    if draw.revealed_at is None:
        return "reveal"
    if draw.drawn_at is None:
        return "draw"
    return "numbers" if draw.numbered_at is None else None


def _exchange(pipe: Connection, slug: str, tokens: list[str], options: argparse.Namespace) -> None:
    """A process that serves a lobby's polls after the draw."""
    import django

    django.setup()
    from apps.events import facade as events
    from apps.queue.status import drawn_numbers

    act = polling_of(events.get_event(slug), tokens)
    act()
    pipe.send(None)
    command = pipe.recv()
    if command == "pace":
        with run_at_rate({"exchange": act}, options.exchanges_per_second, threads_each=8) as watch:
            time.sleep(options.quiet)
        pipe.send([took for _, took in watch.taken["exchange"]])
    else:
        from benchmarks.experiments.joins import batches_of
        from benchmarks.experiments.queue_structures import per_second

        before = batches_of(drawn_numbers.lookups.name)
        rate = per_second(act, CALLERS, options.burst)
        after = batches_of(drawn_numbers.lookups.name)
        pipe.send((rate, (after.requests - before.requests) / max(1, after.count - before.count)))
    drawn_numbers.lookups.close()


# --- results ---------------------------------------------------------------------------------------------------------


def add_times(others: dict[str, dict[str, list[float]]], watch: Measurements, spans: dict[str, list[Span]]) -> None:
    for kind in watch.taken:
        for phase, when in spans.items():
            others.setdefault(kind, {}).setdefault(phase, []).extend(watch.between(kind, when))


def show_draws(draws: dict[int, list[Drawn]]) -> None:
    print("\n| entrants | " + " | ".join(STEPS) + " | digest to numbers | per entrant | slowest chunk |")
    print("| ---: |" + " ---: |" * (len(STEPS) + 3))
    for size, of in draws.items():
        middle = {step: statistics.median(one.steps[step] for one in of) for step in STEPS}
        whole = statistics.median(sum(took for step, took in one.steps.items() if step != "close") for one in of)
        cells = " | ".join(f"{took * 1_000:,.0f} ms" if took < 1 else f"{took:,.1f} s" for took in middle.values())
        chunk = statistics.median(one.slowest_chunk for one in of)
        print(f"| {size:,} | {cells} | {whole:,.1f} s | {whole / size * 1e6:,.0f} µs | {chunk * 1_000:,.0f} ms |")
    print(
        "\n| entrants | exchange at a steady rate: median | 99 % | worst | burst per second | lookups per statement |"
    )
    print("| ---: |" + " ---: |" * 5)
    for size, of in draws.items():
        paced = percentiles_ms([took for one in of for took in one.exchange])
        rate = statistics.median(one.burst_per_second for one in of)
        print(
            f"| {size:,} | {paced} | {rate:,.0f} | {statistics.median(one.lookups_per_statement for one in of):.1f} |"
        )


def show_others(size: int, others: dict[str, dict[str, list[float]]]) -> None:
    print(f"\nOther calls, with {size:,} entrants in the lobby, in ms:\n")
    print("| what | when | calls | median | 99 % | worst |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for kind, phases in others.items():
        for phase in ("quiet", *BUSY):
            taken = phases.get(phase, [])
            print(f"| {kind} | {phase} | {len(taken):,} | {percentiles_ms(taken)} |")


if __name__ == "__main__":
    main()
