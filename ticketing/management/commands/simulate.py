"""manage.py simulate: a crowd that speaks only the public HTTP API; exit 1 if anything happened that must not."""

import asyncio
import contextlib
import random
import resource
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from uvloop import new_event_loop

from apps.kernel.cli import report_errors_in_one_line
from ticketing.simulator.plan import Plan, PlanRefused, check_base
from ticketing.simulator.population import Run, run
from ticketing.simulator.report import progress, report

INTERRUPTED = 130
QUIET_SECONDS = 5
"""Between two lines of progress where nobody watches a terminal."""


class Command(BaseCommand):
    help = (
        "Lets a crowd loose on an event's waiting room, over its public HTTP API alone: they join, ask again when told "
        "to, and once let in look round and leave, or buy as guests with the sandbox's card. Tells at the end what the "
        "crowd saw. Exit 1 if something happened that must not: a fault, a position that rose, somebody overtaken, a "
        "second place, a lost turn, a limit passed, two holds of one buyer, no answer however often asked. Without "
        "--anywhere it goes to this machine's own addresses only. Who listens (--listeners) has a stream that "
        "is opened again when it ends, and must in the end have heard what the house says."
    )
    requires_system_checks: list[str] = []  # It is a client: nothing of this house need be in order here.

    def add_arguments(self, parser: ArgumentParser) -> None:
        report_errors_in_one_line(parser)
        add = parser.add_argument
        add("event", metavar="EVENT", help="the event's slug, as in solstice-fields")
        add("--visitors", required=True, metavar="N", help="how many come")
        add("--over", required=True, metavar="S", help="within so many seconds, at random")
        add("--buyers", default="0", metavar="N|SHARE", help="who of them buys: 500, 30%% or 0.3; default: nobody")
        add("--listeners", default="0", metavar="N", help="who only follow what is free, beside the visitors")
        add(
            "--listen-by", default="sse", metavar="DOOR", help="sse, websocket, or poll: ask now and then; default: sse"
        )
        add("--leavers", default="5%", metavar="SHARE", help="who lose patience in line; default: 5%%")
        add("--twice", default="5%", metavar="SHARE", help="who join from two tabs at once; default: 5%%")
        add("--walk-away", default="0", metavar="SHARE", help="buyers who hold and go without a word; default: none")
        add("--double", default="0", metavar="SHARE", help="buyers who click everything twice; default: none")
        add("--change", default="0", metavar="SHARE", help="buyers who replace what they hold; default: none")
        add("--back", default="0", metavar="SHARE", help="who come back if they bought nothing; default: none")
        add("--stay", default="5", metavar="S", help="how long, on average, each takes for a thing inside; default: 5")
        add("--for", default="0", metavar="S", dest="least", help="listeners stay for so long at least")
        add("--at-most", default="900", metavar="S", help="then whoever still waits leaves; default: 900")
        add("--url", metavar="BASE", help="as in http://127.0.0.1:8000; default: the running demo")
        add("--anywhere", action="store_true", help="also at an address that is not this machine's own")
        add("--connections", default="64", metavar="N", help="open at the same time; default: 64")
        add("--seed", metavar="N", help="the same crowd again: who comes when and does what")
        add("--rate", metavar="N", help="hold what was seen against this many admissions a second")
        add("--active", metavar="N", help="hold it against this many inside at once")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            plan = _plan(options)
            _raise_file_limit(plan)
            result = _run(plan, self._progress())
        except PlanRefused as error:
            raise CommandError(str(error)) from error
        if self.stdout.isatty():
            self.stdout.write("")
        for line in report(result):
            self.stdout.write(line)
        if not result.is_clean:
            sys.exit(1)
        if result.ended == "interrupted":
            sys.exit(INTERRUPTED)

    def _progress(self) -> Callable[[Run], None]:
        is_terminal = self.stdout.isatty()
        told_at, answers = time.monotonic(), 0

        def report_progress(run: Run) -> None:
            nonlocal told_at, answers
            now = time.monotonic()
            if not is_terminal and now - told_at < QUIET_SECONDS:
                return
            line = progress(run, answers, now - told_at)
            self.stdout.write(f"\r\x1b[K{line}" if is_terminal else line, ending="" if is_terminal else "\n")
            self.stdout.flush()
            told_at, answers = now, run.figures.answers

        return report_progress


def _run(plan: Plan, watch: Callable[[Run], None]) -> Run:
    """Ends politely at the first Ctrl-C, at once at the second."""

    async def main() -> Run:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()

        def stop(number: signal.Signals) -> None:
            loop.remove_signal_handler(number)
            stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        return await run(plan, watch, stopping)

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _plan(options: dict[str, Any]) -> Plan:
    visitors = _whole(options["visitors"], "--visitors")
    anywhere = bool(options["anywhere"])
    rate, active, seed = options["rate"], options["active"], options["seed"]
    return Plan(
        event=_slug(options["event"]),
        base=check_base(options["url"] or settings.SITE_URL, anywhere=anywhere),
        visitors=visitors,
        over_seconds=_number(options["over"], "--over"),
        buyers=_parse_count_or_share(visitors, options["buyers"], "--buyers"),
        listeners=_whole(options["listeners"], "--listeners"),
        listen_by=options["listen_by"],
        least_seconds=_number(options["least"], "--for"),
        twice=_share(options["twice"], "--twice"),
        leavers=_share(options["leavers"], "--leavers"),
        walk_away=_share(options["walk_away"], "--walk-away"),
        double=_share(options["double"], "--double"),
        change=_share(options["change"], "--change"),
        back=_share(options["back"], "--back"),
        stay_seconds=_number(options["stay"], "--stay"),
        seconds_max=_number(options["at_most"], "--at-most"),
        connections=_whole(options["connections"], "--connections"),
        seed=random.randrange(1_000_000) if seed is None else _whole(seed, "--seed"),  # noqa: S311
        rate_max=None if rate is None else _number(rate, "--rate"),
        active_max=None if active is None else _whole(active, "--active"),
        anywhere=anywhere,
    )


def _raise_file_limit(plan: Plan) -> None:
    """Each stream is a file: as many as this account may open, not as many as it is given at first."""
    given, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        given = most
    if given != resource.RLIM_INFINITY and given < plan.files:
        raise PlanRefused(
            f"{plan.listeners:,} listeners and {plan.connections:,} connections need {plan.files:,} open files, and "
            f"this account may open {given:,} (ulimit -Hn): fewer of them, a higher limit, or --listen-by poll"
        )


def _slug(text: str) -> str:
    if not (text.isascii() and text.replace("-", "").replace("_", "").isalnum()):
        raise PlanRefused(f"{text[:80]!r} is no event's slug")
    return text


def _whole(text: Any, option: str) -> int:
    said = str(text).strip().replace("_", "").replace(",", "")
    if not (said.isascii() and said.isdigit()) or len(said) > 9:
        raise PlanRefused(f"{option} {str(text)[:40]!r} is not a whole number")
    return int(said)


def _number(text: Any, option: str) -> float:
    said = str(text).strip()
    if not said.isascii() or not said.replace(".", "", 1).isdigit() or len(said) > 12:
        raise PlanRefused(f"{option} {said[:40]!r} is not a number")
    return float(said)


def _share(text: Any, option: str) -> float:
    """30% or 0.3."""
    said = str(text).strip()
    share = _number(said[:-1], option) / 100 if said.endswith("%") else _number(said, option)
    if share > 1:
        raise PlanRefused(f"{option} {said[:40]!r} is not a share such as 30% or 0.3")
    return share


def _parse_count_or_share(all_of_them: int, text: Any, option: str) -> int:
    """A count, or a share of them."""
    said = str(text).strip()
    if said.endswith("%") or "." in said:
        return round(all_of_them * _share(said, option))
    count = _whole(said, option)
    if count > all_of_them:
        raise PlanRefused(f"{option} {count:,} of {all_of_them:,} visitors cannot be")
    return count
