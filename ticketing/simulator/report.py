"""What a run says for people: a line while it goes on, the figures at its end."""

from collections.abc import Iterator, Sequence

from ticketing.simulator.population import Run
from ticketing.simulator.stats import most_within, per_second, percentiles
from ticketing.simulator.stream_listeners import ListenerResults

CALLS = ("join", "poll", "leave", "sections", "seats", "hold", "checkout", "order", "listen")


def progress(run: Run, answers_before: int, seconds_since: float) -> str:
    """The run now, in one line."""
    counts, line = run.figures.counts, run.line
    rate = (run.figures.answers - answers_before) / max(seconds_since, 0.001)
    waiting = counts["joined"] - counts["let in"] - _ended_in_line(run)
    listen = f", {run.listeners.open_count:,} listen" if run.listeners is not None else ""
    bought = f", {counts['bought']:,} bought" if run.plan.buyers else ""
    wrong = f", {sum(run.figures.breaches.counts.values())} WRONG" if run.figures.breaches.counts else ""
    return (
        f"{run.seconds:4.0f} s  {counts['joined']:,} joined, {max(0, waiting):,} waiting, {line.active:,} inside, "
        f"{counts['let in']:,} let in{bought}{listen}; {rate:,.0f} answers/s{wrong}"
    )


def report(run: Run) -> Iterator[str]:
    """The figures, line by line."""
    plan, figures, line = run.plan, run.figures, run.line
    counts = figures.counts
    early = f"; ended early: {run.ended}" if run.ended else ""
    yield f"{plan.event} at {plan.base}: {plan.visitors:,} visitors over {plan.over_seconds:g} s, seed {plan.seed}"
    yield f"took        {run.seconds:,.1f} s, {figures.answers:,} answers{early}"
    yield f"joined      {counts['joined']:,}{_share(counts['from two tabs'], ' from two tabs at once')}"
    admissions = sorted(line.admissions)
    yield (
        f"let in      {counts['let in']:,}: {per_second(admissions):,.1f} a second on average, "
        f"at most {most_within(admissions, 1.0):,} seen in any one second{_limit(plan.rate_max, '/s')}"
    )
    yield f"at once     {line.active_most:,} inside at most, as far as seen{_limit(plan.active_max)}"
    if figures.waited:
        half, most = percentiles(figures.waited)[::3]
        right = 100 * figures.accurate_estimates / len(figures.waited)
        yield f"waited      half of them {half:,.0f} s, the last {most:,.0f} s; {right:.0f} % as long as told at first"
    yield f"order       {_order(run)}"
    yield f"ends        {_list(_outcomes(run)) or 'none'}"
    habits = [(what, counts[what]) for what in HABITS if counts[what]]
    if habits:
        yield f"habits      {_list(habits)}"
    if figures.refusals:
        yield f"refused     {_list(figures.refusals.most_common())}"
    if figures.retries:
        yield f"no answer   {_list(figures.retries.most_common())}; asked again"
    if run.listeners is not None:
        yield from _listener_lines(run.listeners.results, figures.held_at)
    yield f"{'':<12}{'answers':>9}{'p50':>9}{'p95':>9}{'p99':>9}{'max':>9}  ms"
    for call in CALLS:
        if call in figures.took_ms:
            cells = "".join(f"{value:>9,.1f}" for value in percentiles(figures.took_ms[call]))
            yield f"{call:<12}{len(figures.took_ms[call]):>9,}{cells}"
    if run.late_seconds_max > LATE_SECONDS:
        yield (
            f"behind      {run.late_seconds_max:,.0f} s at most: with {plan.connections} connections all waiting for "
            f"answers, what was due had to wait"
        )
    yield from _verdict(run)


def _listener_lines(heard: ListenerResults, held_at: float) -> Iterator[str]:
    yield (
        f"listeners   {heard.listeners:,} by {heard.door}: counts heard {heard.frames:,} times; streams opened "
        f"{heard.opened:,}, broken {heard.broke:,}, sent away {heard.sent_away:,}, come back {heard.came_back:,}"
    )
    if heard.away:
        half, most = percentiles(heard.away)[::3]
        yield f"no stream   half of those times for {half:,.1f} s, the longest {most:,.1f} s"
    if heard.wrong is None:
        yield "heard last  not held against what the house says: it ended before"
        return
    right = heard.listeners - heard.wrong
    after = ""
    if right and held_at:
        first, last = heard.first_right_at - held_at, heard.last_right_at - held_at
        after = f"; from the answer to the last hold {first:+,.2f} s to the first of them, {last:+,.2f} s to the last"
    yield f"heard last  {right:,} of {heard.listeners:,} ended with what the house says{after}"


def _order(run: Run) -> str:
    counts, breaches = run.figures.counts, run.figures.breaches.counts
    kept = ("positions that rose", "overtaken", "one number twice", "numbers that changed", "two places")
    broken = sum(breaches[kind] for kind in kept)
    missed = f", {counts['missed a turn']:,} missed a turn" if counts["missed a turn"] else ""
    said = "kept" if not broken else f"BROKEN {broken:,} times"
    return f"{said}, in {run.line.answers:,} answers to people waiting{missed}"


def _verdict(run: Run) -> Iterator[str]:
    breaches = run.figures.breaches
    if run.is_clean:
        yield "nothing happened that must not happen"
        return
    for kind, count in breaches.counts.most_common():
        yield f"WRONG: {kind}, {count:,} times"
        for example in breaches.examples[kind]:
            yield f"       {example}"


LATE_SECONDS = 2.0
ENDS = (
    "bought",
    "walked away",
    "left the shop",
    "left the line",
    "found nothing",
    "told that it is over",
    "came when nothing is sold",
    "ran out of time",
    "did not pay",
    "expired in line",
    "left in line",
    "completed in line",
    "failed",
    "never came",
    "waited in vain",
)
HABITS = ("reservations", "double clicks", "second tabs refused", "changed their mind", "kept the old", "came back")
_IN_LINE = (
    "left the line",
    "waited in vain",
    "told that it is over",
    "expired in line",
    "left in line",
    "completed in line",
)


def _outcomes(run: Run) -> list[tuple[str, int]]:
    counts = run.figures.counts
    left = run.plan.visitors - sum(counts[end] for end in ENDS)
    pairs = [*((end, counts[end]) for end in ENDS), ("not at an end", left), ("tickets", counts["tickets"])]
    return [(what, count) for what, count in pairs if count]


def _ended_in_line(run: Run) -> int:
    return sum(run.figures.counts[end] for end in _IN_LINE)


def _list(pairs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in pairs)


def _share(count: int, what: str) -> str:
    return f", {count:,}{what}" if count else ""


def _limit(limit: float | None, unit: str = "") -> str:
    return f" (limit {limit:g}{unit})" if limit is not None else ""
