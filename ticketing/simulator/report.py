"""Output of a run: one line of progress, and the report at its end."""

from collections.abc import Iterator, Sequence

from ticketing.simulator.bots import describe
from ticketing.simulator.population import Run
from ticketing.simulator.stats import most_within, per_second, percentiles
from ticketing.simulator.stream_listeners import ListenerResults

CALLS = ("join", "poll", "leave", "sections", "seats", "hold", "checkout", "order", "listen")


def progress(run: Run, responses_before: int, seconds_since: float) -> str:
    """Return the current state of the run in one line."""
    counts, line = run.figures.counts, run.line
    rate = (run.figures.responses - responses_before) / max(seconds_since, 0.001)
    waiting = counts["joined"] - counts["admitted"] - _ended_in_line(run)
    listen = f", {run.listeners.open_count:,} listening" if run.listeners is not None else ""
    bought = f", {counts['bought']:,} bought" if run.plan.buyers else ""
    breaches = f", {sum(run.figures.breaches.counts.values())} BREACHES" if run.figures.breaches.counts else ""
    return (
        f"{run.seconds:4.0f} s  {counts['joined']:,} joined, {max(0, waiting):,} waiting, {line.active:,} inside, "
        f"{counts['admitted']:,} admitted{bought}{listen}; {rate:,.0f} responses/s{breaches}"
    )


def report(run: Run) -> Iterator[str]:
    """Yield the report, line by line."""
    plan, figures, line = run.plan, run.figures, run.line
    counts = figures.counts
    early = f"; ended early: {run.ended}" if run.ended else ""
    yield f"{plan.event} at {plan.base}: {plan.visitors:,} visitors over {plan.over_seconds:g} s, seed {plan.seed}"
    yield f"took        {run.seconds:,.1f} s, {figures.responses:,} responses{early}"
    yield f"joined      {counts['joined']:,}{_share(counts['from two tabs'], ' from two tabs at once')}"
    admissions = sorted(line.admissions)
    yield (
        f"admitted    {counts['admitted']:,}: {per_second(admissions):,.1f} per second on average, "
        f"at most {most_within(admissions, 1.0):,} observed within a second{_limit(plan.rate_max, '/s')}"
    )
    yield f"at once     at most {line.active_most:,} observed inside{_limit(plan.active_max)}"
    if figures.waited:
        half, most = percentiles(figures.waited)[::3]
        accurate = 100 * figures.accurate_estimates / len(figures.waited)
        yield f"waited      median {half:,.0f} s, longest {most:,.0f} s; {accurate:.0f} % within the first estimate"
    yield f"order       {_order(run)}"
    yield f"outcomes    {_list(_outcomes(run)) or 'none'}"
    if run.bot_workers is not None:
        bought, by_bots = counts["tickets"], run.bot_figures.counts["tickets"]
        yield f"bots        {plan.bots:,}: {describe(run.bot_figures.counts, run.bot_workers)}"
        if run.bot_figures.refusals:
            yield f"            refused {_list(run.bot_figures.refusals.most_common())}"
        share = 100 * by_bots / max(1, bought + by_bots)
        yield f"            {by_bots:,} of {bought + by_bots:,} tickets, {share:.1f} %"
    habits = [(habit, counts[habit]) for habit in HABITS if counts[habit]]
    if habits:
        yield f"habits      {_list(habits)}"
    if figures.refusals:
        yield f"refused     {_list(figures.refusals.most_common())}"
    if figures.retries:
        yield f"no response {_list(figures.retries.most_common())}; retried"
    if run.listeners is not None:
        yield from _listener_lines(run.listeners.results, figures.held_at)
    yield f"{'':<12}{'responses':>9}{'p50':>9}{'p95':>9}{'p99':>9}{'max':>9}  ms"
    for call in CALLS:
        if call in figures.took_ms:
            cells = "".join(f"{value:>9,.1f}" for value in percentiles(figures.took_ms[call]))
            yield f"{call:<12}{len(figures.took_ms[call]):>9,}{cells}"
    if run.late_seconds_max > LATE_SECONDS:
        yield (
            f"behind      at most {run.late_seconds_max:,.0f} s: all {plan.connections} connections were waiting for "
            f"responses, so actors ran late"
        )
    yield from _verdict(run)


def _listener_lines(results: ListenerResults, held_at: float) -> Iterator[str]:
    yield (
        f"listeners   {results.listeners:,} by {results.protocol}: {results.frames:,} updates received; streams opened "
        f"{results.opened:,}, broken {results.broke:,}, closed by the server {results.sent_away:,}, "
        f"reconnected {results.came_back:,}"
    )
    if results.away:
        half, most = percentiles(results.away)[::3]
        yield f"no stream   median {half:,.1f} s, longest {most:,.1f} s until reconnected"
    if results.wrong is None:
        yield "final state not checked: the run was interrupted"
        return
    right = results.listeners - results.wrong
    after = ""
    if right and held_at:
        first, last = results.first_right_at - held_at, results.last_right_at - held_at
        after = (
            f"; after the response to the last hold {first:+,.2f} s to the first of them, {last:+,.2f} s to the last"
        )
    yield f"final state {right:,} of {results.listeners:,} listeners have the site's counts{after}"


def _order(run: Run) -> str:
    counts, breaches = run.figures.counts, run.figures.breaches.counts
    kinds = ("positions that rose", "overtaken", "duplicate numbers", "numbers that changed", "two queue entries")
    broken = sum(breaches[kind] for kind in kinds)
    missed = f", {counts['missed admissions']:,} missed admissions" if counts["missed admissions"] else ""
    verdict = "kept" if not broken else f"BROKEN {broken:,} times"
    return f"{verdict}, in {run.line.responses:,} responses to waiting visitors{missed}"


def _verdict(run: Run) -> Iterator[str]:
    breaches = run.figures.breaches
    if run.is_clean:
        yield "no breaches"
        return
    for kind, count in breaches.counts.most_common():
        yield f"BREACH: {kind}, {count:,} times"
        for example in breaches.examples[kind]:
            yield f"       {example}"


LATE_SECONDS = 2.0
ENDS = (
    "bought",
    "walked away",
    "left the shop",
    "left the line",
    "found nothing",
    "sales were over",
    "not on sale",
    "ran out of time",
    "did not pay",
    "expired in line",
    "left in line",
    "completed in line",
    "left holding tickets",
    "failed",
    "did not start",
    "stopped in line",
)
HABITS = (
    "reservations", "double clicks", "second tabs refused", "changed their mind", "kept the reservation", "came back",
)  # fmt: skip
_IN_LINE = (
    "left the line",
    "stopped in line",
    "sales were over",
    "expired in line",
    "left in line",
    "completed in line",
)


def _outcomes(run: Run) -> list[tuple[str, int]]:
    counts = run.figures.counts
    unfinished = run.plan.visitors - sum(counts[end] for end in ENDS)
    pairs = [*((end, counts[end]) for end in ENDS), ("unfinished", unfinished), ("tickets", counts["tickets"])]
    return [(name, count) for name, count in pairs if count]


def _ended_in_line(run: Run) -> int:
    return sum(run.figures.counts[end] for end in _IN_LINE)


def _list(pairs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in pairs)


def _share(count: int, what: str) -> str:
    return f", {count:,}{what}" if count else ""


def _limit(limit: float | None, unit: str = "") -> str:
    return f" (limit {limit:g}{unit})" if limit is not None else ""
