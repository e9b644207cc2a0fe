"""`manage.py simulate`: simulated visitors that use only the public HTTP API; exit status 1 on forbidden behavior."""

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
from ticketing.simulator.bots import KINDS
from ticketing.simulator.plan import Plan, PlanRefused, check_base
from ticketing.simulator.population import Run, run
from ticketing.simulator.report import progress, report

INTERRUPTED = 130
QUIET_SECONDS = 5
"""Seconds between two progress lines if the output is not a terminal."""


class Command(BaseCommand):
    help = (
        "Sends simulated visitors to an event's waiting room, through its public HTTP API only. They join, poll as "
        "often as the responses allow, and once admitted browse and leave, or buy as guests with the sandbox card. At "
        "the end prints what they measured. Exits with 1 on forbidden behavior: a server error, a position that rose, "
        "a visitor overtaken, a second queue entry, a lost admission, an exceeded limit, two holds of one buyer, "
        "no response after all retries. Without --anywhere, only addresses of this machine are allowed. Listeners "
        "(--listeners) follow a live stream, reconnect when it ends, and must finally have the current state."
    )
    requires_system_checks: list[str] = []  # The command is only a client and needs no database.

    def add_arguments(self, parser: ArgumentParser) -> None:
        report_errors_in_one_line(parser)
        add = parser.add_argument
        add("event", metavar="EVENT", help="the event's id, as in solstice-fields")
        add("--visitors", required=True, metavar="N", help="number of visitors")
        add("--over", required=True, metavar="S", help="seconds over which they arrive, at random times")
        add("--buyers", default="0", metavar="N|SHARE", help="visitors who buy: 500, 30%% or 0.3; default: none")
        add("--listeners", default="0", metavar="N", help="additional clients that only follow availability")
        add("--listen-by", default="sse", metavar="DOOR", help="sse, websocket, or poll; default: sse")
        add("--leavers", default="5%", metavar="SHARE", help="visitors who leave the line early; default: 5%%")
        add("--twice", default="5%", metavar="SHARE", help="visitors who join from two tabs at once; default: 5%%")
        add("--walk-away", default="0", metavar="SHARE", help="buyers who hold and disappear; default: none")
        add("--double", default="0", metavar="SHARE", help="buyers who send every request twice; default: none")
        add("--change", default="0", metavar="SHARE", help="buyers who replace what they hold; default: none")
        add("--back", default="0", metavar="SHARE", help="visitors who return if they bought nothing; default: none")
        add("--stay", default="5", metavar="S", help="mean seconds an admitted visitor takes for each step; default: 5")
        add("--for", default="0", metavar="S", dest="least", help="least seconds that listeners stay")
        add("--at-most", default="900", metavar="S", help="seconds after which waiting visitors leave; default: 900")
        add("--url", metavar="BASE", help="as in http://127.0.0.1:8000; default: the running demo")
        add("--anywhere", action="store_true", help="allow addresses of other machines")
        add("--connections", default="64", metavar="N", help="concurrent connections; default: 64")
        add("--seed", metavar="N", help="repeat an earlier run's random choices: arrivals and actions")
        add("--addresses", default="0", metavar="N", help="loopback addresses of the visitors (Linux); default: one")
        add("--bots", default="0", metavar="N", help="programs beside the visitors; default: none")
        add("--bot-kinds", default=",".join(KINDS), metavar="LIST", help="default: naive,patient,distributed")
        add("--bot-addresses", default="1", metavar="M", help="addresses of the distributed bots; default: 1")
        add("--bot-cores", default="8", metavar="N", help="cores of all bots for proof of work; default: 8")
        add("--step-seconds", default="0.0003", metavar="S", help="a browser's time of one derivation; default: 0.0003")
        add("--bot-step-seconds", default="0.0001", metavar="S", help="a bot's; default: 0.0001")
        add("--rate", metavar="N", help="check that at most this many are admitted per second")
        add("--active", metavar="N", help="check that at most this many are admitted at the same time")

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
        printed_at, responses = time.monotonic(), 0

        def report_progress(run: Run) -> None:
            nonlocal printed_at, responses
            now = time.monotonic()
            if not is_terminal and now - printed_at < QUIET_SECONDS:
                return
            line = progress(run, responses, now - printed_at)
            self.stdout.write(f"\r\x1b[K{line}" if is_terminal else line, ending="" if is_terminal else "\n")
            self.stdout.flush()
            printed_at, responses = now, run.figures.responses

        return report_progress


def _run(plan: Plan, watch: Callable[[Run], None]) -> Run:
    """Run the plan; the first Ctrl-C ends it gracefully, the second immediately."""

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
        addresses=_whole(options["addresses"], "--addresses"),
        bots=_whole(options["bots"], "--bots"),
        bot_kinds=_kinds(options["bot_kinds"]),
        bot_addresses=_whole(options["bot_addresses"], "--bot-addresses"),
        bot_cores=_whole(options["bot_cores"], "--bot-cores"),
        step_seconds=_number(options["step_seconds"], "--step-seconds"),
        bot_step_seconds=_number(options["bot_step_seconds"], "--bot-step-seconds"),
    )


def _raise_file_limit(plan: Plan) -> None:
    """Raise the limit of open files to its maximum, because each stream is a file. Raises PlanRefused if it is too
    low."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        limit = most
    if limit != resource.RLIM_INFINITY and limit < plan.files:
        raise PlanRefused(
            f"{plan.listeners:,} listeners and {plan.connections:,} connections need {plan.files:,} open files, but "
            f"this account may open {limit:,} (ulimit -Hn): use fewer, raise the limit, or use --listen-by poll"
        )


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(kind.strip() for kind in text.split(","))
    if not set(kinds) <= set(KINDS):
        raise PlanRefused(f"--bot-kinds {text[:80]!r} is not a list of {', '.join(KINDS)}")
    return kinds


def _slug(text: str) -> str:
    if not (text.isascii() and text.replace("-", "").replace("_", "").isalnum()):
        raise PlanRefused(f"{text[:80]!r} is not an event's id")
    return text


def _whole(text: Any, option: str) -> int:
    digits = str(text).strip().replace("_", "").replace(",", "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        raise PlanRefused(f"{option} {str(text)[:40]!r} is not a whole number")
    return int(digits)


def _number(text: Any, option: str) -> float:
    digits = str(text).strip()
    if not digits.isascii() or not digits.replace(".", "", 1).isdigit() or len(digits) > 12:
        raise PlanRefused(f"{option} {digits[:40]!r} is not a number")
    return float(digits)


def _share(text: Any, option: str) -> float:
    """Parse 30% or 0.3."""
    digits = str(text).strip()
    share = _number(digits[:-1], option) / 100 if digits.endswith("%") else _number(digits, option)
    if share > 1:
        raise PlanRefused(f"{option} {digits[:40]!r} is not a share such as 30% or 0.3")
    return share


def _parse_count_or_share(total: int, text: Any, option: str) -> int:
    """Parse a count, or a share of the total."""
    digits = str(text).strip()
    if digits.endswith("%") or "." in digits:
        return round(total * _share(digits, option))
    count = _whole(digits, option)
    if count > total:
        raise PlanRefused(f"{option} {count:,} is more than the {total:,} visitors")
    return count
