"""A sale in which every join needs proof of work: people and bots that compute get in, bots that do not stay out."""

import asyncio

import pytest
from django.core.management import call_command

from apps.queue.models import QueueEntry, WaitingRoom
from tests.processes.simulator.test_simulated_sale import gatekeeper, messages_delivered
from tests.support.databases import database_url
from tests.support.queue.rooms import make_room
from tests.support.web_processes import web
from ticketing.simulator import bots, population
from ticketing.simulator.plan import Plan

PEOPLE, BOTS = 12, 9
pytestmark = pytest.mark.django_db(transaction=True)


def test_each_visitor_and_bot_with_an_entry_has_solved_a_challenge_of_its_own(
    live_site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bots, "NAIVE_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(bots, "NAIVE_TRIES_MAX", 20)
    event = make_room("flash-sale", rate=20, active=15, general_admission=200)
    WaitingRoom.objects.update(screening="on")
    site_port, url = int(live_site.rpartition(":")[2]), database_url()
    environment = {"DATABASE_URL": url, "DATABASE_DIRECT_URL": url, "PROOF_OF_WORK_STEPS": "20"}
    with web(site_port, **environment) as server, gatekeeper(), messages_delivered():
        plan = Plan(
            event=event.slug,
            base=f"http://127.0.0.1:{server.port}",
            visitors=PEOPLE,
            over_seconds=1,
            buyers=PEOPLE,
            twice=0.5,
            stay_seconds=0.4,
            seconds_max=60,
            connections=6,
            rate_max=20,
            addresses=4,
            bots=BOTS,
            bot_addresses=3,
        )
        result = asyncio.run(population.run(plan))
    people, programs = result.figures.counts, result.bot_figures.counts
    assert result.is_clean, result.figures.breaches
    assert people["bought"] == PEOPLE
    assert programs["gave up"] == BOTS // 3, "naive bots do no work"
    assert programs["bought"] == BOTS - BOTS // 3
    works = [bytes(work or b"") for work in QueueEntry.objects.values_list("work", flat=True)]
    assert all(works)
    assert len(set(works)) == len(works) == PEOPLE + BOTS - BOTS // 3
    call_command("audit")  # Exits where it finds a breach.
