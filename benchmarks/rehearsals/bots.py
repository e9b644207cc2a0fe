"""The share of tickets that bots take from people, with each defense.

    python -m benchmarks.rehearsals.bots [--people 5000] [--bots 1000] [--tickets 2000] [--over 60] [--cores 8]
                                        [--only NAME]

Runs `web`, `site`, a worker, the gatekeeper and the relay, and for each line of the table a new event with a waiting
room. All bots come at the opening, the people within `--over` seconds, each person with an address of its own. All of
them want tickets, bots as many as an order may have.

Proof of work is scaled: the challenges take a hundredth of the default derivations, and each counts as a hundred, at
0.3 ms in a browser and 0.1 ms in a program. People have one core each, bots share `--cores`. So bots are not slowed
down by the machine that runs the benchmark, and the site is not slowed down by bots that compute.
"""

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from benchmarks.support import live_event
from benchmarks.support.rooms import start_servers

SCALE = 100
STEPS = 2_000
STEP_SECONDS, BOT_STEP_SECONDS = 0.0003, 0.0001
RATE, ACTIVE = 50, 300
SECONDS_MAX = 900
CONNECTIONS = 200
SITE = [
    "/bin/sh", "-c",
    (f"exec {sys.executable} -m granian --interface wsgi --host 127.0.0.1 --port $SITE_PORT --workers 1 "
    "--blocking-threads 2 --no-ws --log-level error ticketing.wsgi:application"),
]  # fmt: skip
WORKER = [
    sys.executable, "-m", "celery", "--quiet", "-A", "ticketing", "worker", "--queues", "celery,scheduler",
    "--concurrency", "2", "--loglevel", "error", "--without-gossip", "--without-mingle",
]  # fmt: skip


class Defense(NamedTuple):
    name: str
    limits: bool
    """Rate limits by address and token, and four tickets for each buyer instead of ten."""
    means: tuple["Means", ...]
    screening: str = "off"
    review_score: int | None = None
    needs_account: bool = False
    """Whether only accounts with a confirmed address may join."""


class Means(NamedTuple):
    """What the bots share."""

    addresses: int
    accounts: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("naive", "patient") if self.addresses == 1 else ("distributed",)


DEFENSES = (
    Defense("none", limits=False, means=(Means(1),)),
    Defense("limits", limits=True, means=(Means(1), Means(100), Means(1_000))),
    Defense("limits and work", limits=True, screening="on", means=(Means(1), Means(100), Means(1_000))),
    Defense("limits, work and review", limits=True, screening="on", review_score=6, means=(Means(1), Means(100))),
    Defense(
        "limits, work and verified accounts", limits=True, screening="on", needs_account=True,
        means=(Means(1_000, accounts=10), Means(1_000, accounts=100), Means(1_000, accounts=1_000)),
    ),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=5_000)
    parser.add_argument("--bots", type=int, default=1_000)
    parser.add_argument("--tickets", type=int, default=2_000)
    parser.add_argument("--over", type=float, default=60)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--only", default="", help="a defense by its name")
    options = parser.parse_args()
    os.environ["PROOF_OF_WORK_STEPS"] = str(STEPS // SCALE)
    os.environ["PROOF_OF_WORK_STEPS_MAX"] = str(64_000 // SCALE)
    lines: list[str] = []
    with start_servers(durable=True), live_event.environment() as environment:
        for defense in DEFENSES:
            if options.only in ("", defense.name):
                lines += measure(options, defense, environment)
    print(f"\n{options.people:,} people, {options.bots:,} bots, {options.tickets:,} tickets; {os.cpu_count()} cores, "
          f"{platform.machine()}, {time.strftime('%Y-%m-%d')}")  # fmt: skip
    print("| defense | addresses | accounts | bots in line | share of bots | tickets sold | core-seconds | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(lines))
    return 0


def measure(options: argparse.Namespace, defense: Defense, environment: dict[str, str]) -> Iterator[str]:
    """Yield a line of the table for each means of the bots."""
    from ticketing.devserver.ports import free_port

    port, site_port = free_port(), free_port()
    environment = {**environment, "SITE_PORT": str(site_port), "SITE_URL": f"http://127.0.0.1:{port}"}
    if defense.limits:
        environment["RATE_LIMITS_EXEMPT"] = ""
    with (
        live_event.run_commands(environment, ["relay", "gatekeeper"]),
        live_event.running(WORKER, environment),
        live_event.run_server(SITE, site_port, environment),
        live_event.run_server(live_event.WEB, port, environment),
    ):
        for means in defense.means:
            yield play(options, defense, means, f"http://127.0.0.1:{port}")


def play(options: argparse.Namespace, defense: Defense, means: Means, base: str) -> str:
    from apps.queue.models import WaitingRoom
    from ticketing.simulator import population
    from ticketing.simulator.plan import Plan

    slug = f"{defense.name.replace(' ', '-').replace(',', '')}-{means.addresses}-{means.accounts}"
    event_id = make_event(slug, options.tickets, defense)
    WaitingRoom.objects.filter(event_id=event_id).update(screening=defense.screening, review_score=defense.review_score)
    plan = Plan(
        event=slug, base=base, visitors=options.people, over_seconds=options.over, buyers=options.people, twice=0.0,
        leavers=0.0, stay_seconds=3.0, seconds_max=SECONDS_MAX, connections=CONNECTIONS, addresses=options.people,
        bots=options.bots, bot_kinds=means.kinds, bot_addresses=means.addresses,
        bot_cores=options.cores, step_seconds=STEP_SECONDS * SCALE, bot_step_seconds=BOT_STEP_SECONDS * SCALE,
        account_tokens=make_accounts(slug, options.people) if defense.needs_account else (),
        bot_account_tokens=make_accounts(f"bot-{slug}", means.accounts),
    )  # fmt: skip
    done = asyncio.run(population.run(plan))
    people, bots = done.figures.counts["tickets"], done.bot_figures.counts["tickets"]
    print(f"{slug}: people {dict(done.figures.counts)}, bots {dict(done.bot_figures.counts)}", flush=True)
    print(f"  refused: people {dict(done.figures.refusals)}, bots {dict(done.bot_figures.refusals)}", flush=True)
    for kind, count in done.figures.breaches.counts.items():
        print(f"  BREACH: {kind}, {count}: {done.figures.breaches.examples[kind][0]}", flush=True)
    spent = done.bot_workers.core_seconds if done.bot_workers is not None else 0.0
    share = 100 * bots / max(1, people + bots)
    accounts = f"{means.accounts:,}" if means.accounts else ""
    return (
        f"| {defense.name} | {means.addresses:,} | {accounts} | {done.bot_figures.counts['joined']:,} | {share:.1f} % "
        f"| {people + bots:,} | {spent:,.0f} | {done.seconds:,.0f} |"
    )


def make_accounts(name: str, count: int) -> tuple[str, ...]:
    """Create accounts with a confirmed address, and return an access token of each."""
    from allauth.account.models import EmailAddress

    from apps.accounts.facade import AccessToken, User

    names = [f"{name}-{number}@example.org" for number in range(count)]
    users = User.objects.bulk_create([User(username=one, email=one, password="!") for one in names])  # noqa: S106
    EmailAddress.objects.bulk_create(
        [EmailAddress(user=user, email=user.email, verified=True, primary=True) for user in users]
    )
    return tuple(str(AccessToken.for_user(user)) for user in users)


def make_event(slug: str, tickets: int, defense: Defense) -> int:
    """Create an event that is on sale with a waiting room, and return its id."""
    from apps.events import facade as events
    from apps.events.creation import EventSpec, GeneralAdmission, create_event
    from apps.kernel import clock

    most, now = 4 if defense.limits else 10, clock.now()
    create_event(
        EventSpec(
            slug=slug, name=slug, venue="The Venue", starts_at=now + timedelta(days=30), currency="USD",
            general_admission=(GeneralAdmission("Floor", tickets, 1_000),), opens_at=now - timedelta(minutes=1),
            room=events.WaitingRoomSettings(rate_per_second=RATE, active_max=ACTIVE), seats_per_reservation_max=most,
            per_buyer_max=most if defense.limits else None,
            presale=events.Presale("account", now + timedelta(days=1)) if defense.needs_account else None,
        )
    )  # fmt: skip
    return events.get_event(slug).id


if __name__ == "__main__":
    sys.exit(main())
