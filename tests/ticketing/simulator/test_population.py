"""Simulated visitors at a site that follows the rules, and at sites that break them: every breach must be reported."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from tests.ticketing.simulator.fake_site import Entry, FakeSite, challenge, in_minutes, open_site, problem, token
from ticketing.simulator import api, bots, visitors, work
from ticketing.simulator.plan import Plan, PlanRefused
from ticketing.simulator.population import Run, run
from ticketing.simulator.report import progress, report
from ticketing.simulator.work import Workers


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(visitors, "BUSY_TRIES_MAX", 5)


def plan(site: FakeSite, **overrides: Any) -> Plan:
    usual = {"event": "concert", "base": site.base, "visitors": 20, "over_seconds": 0.1, "stay_seconds": 0.01}
    return Plan(**{**usual, "leavers": 0.0, **overrides})


async def visited(site: FakeSite, **overrides: Any) -> Run:
    result = await run(plan(site, **overrides))
    assert "\n".join(report(result))
    assert progress(result, 0, 1.0)
    return result


async def breaches_of(**habits: Any) -> set[str]:
    async with open_site(**habits) as site:
        return set((await visited(site)).figures.breaches.counts)


async def test_visitors_poll_on_time_enter_and_leave() -> None:
    async with open_site() as site:
        result = await visited(site, twice=0.5, listeners=2, listen_by="poll")
    counts = result.figures.counts
    assert result.is_clean, result.figures.breaches
    assert counts["joined"] == counts["admitted"] == counts["left the shop"] == len(site.left) == 20
    assert counts["from two tabs"] > 0
    assert len(site.entries) == 20
    assert len(result.figures.took_ms["poll"]) == 40
    assert ("sections", "") in site.requests
    assert result.ended == ""


async def test_a_seed_repeats_all_choices_with_new_visitors() -> None:
    async with open_site() as site:
        first, second = [await visited(site, seed=7, leavers=0.5, twice=0.5, visitors=40) for _ in range(2)]
    assert first.figures.counts["from two tabs"] == second.figures.counts["from two tabs"]
    assert len(site.entries) == 80


async def test_impatient_visitors_leave_the_line() -> None:
    async with open_site(polls_to_wait=10_000) as site:
        result = await visited(site, leavers=1.0, over_seconds=0)
    assert result.is_clean
    assert result.figures.counts["left the line"] == 20


async def test_a_position_that_rises_is_noticed() -> None:
    def rise(call: str, entry: Entry, document: dict[str, Any]) -> None:
        if entry.polls == 1:
            document["position_in_queue"] = 7

    assert await breaches_of(breaks=rise) == {"positions that rose"}


async def test_a_number_given_twice_is_noticed() -> None:
    def same(call: str, entry: Entry, document: dict[str, Any]) -> None:
        entry.number = 1
        document["queue_token"] = entry.token

    assert "duplicate numbers" in await breaches_of(breaks=same)


async def test_two_tabs_with_different_entries_are_noticed() -> None:
    count = iter(range(1_000))

    def another(call: str, entry: Entry, document: dict[str, Any]) -> None:
        if call == "join":
            document["queue_token"] = token(entry.number, f"{entry.visitor}-{next(count)}")

    async with open_site(breaks=another) as site:
        result = await visited(site, twice=1.0)
    assert set(result.figures.breaches.counts) == {"two queue entries"}


async def test_a_server_error_is_noticed_even_if_a_retry_succeeds() -> None:
    def fail_once(call: str, entry: Entry, document: dict[str, Any]) -> web.Response | None:
        return problem(500, "fault") if entry.polls == 1 else None

    async with open_site(breaks=fail_once) as site:
        result = await visited(site)
    assert set(result.figures.breaches.counts) == {"server errors"}
    assert result.figures.counts["left the shop"] == 20


async def test_an_html_page_instead_of_json_is_a_server_error() -> None:
    def page(call: str, entry: Entry, document: dict[str, Any]) -> web.Response | None:
        return web.Response(text="<h1>One moment</h1>", content_type="text/html") if call == "poll" else None

    assert await breaches_of(breaks=page) == {"server errors", "no response"}


async def test_an_unexpected_refusal_is_noticed() -> None:
    def refuse(call: str, entry: Entry, document: dict[str, Any]) -> web.Response | None:
        return problem(401, "token-invalid") if call == "poll" else None

    assert await breaches_of(breaks=refuse) == {"unexpected responses"}


async def test_a_busy_site_is_retried_and_only_counted() -> None:
    seen: dict[str, int] = {}

    def busy(call: str, entry: Entry, document: dict[str, Any]) -> web.Response | None:
        seen[entry.visitor] = seen.get(entry.visitor, 0) + 1
        return problem(503, "busy") if seen[entry.visitor] in (1, 3) else None

    async with open_site(breaks=busy) as site:
        result = await visited(site, twice=0.0)
    assert result.is_clean, result.figures.breaches
    assert result.figures.refusals == {"join: busy": 20, "poll: busy": 20}


async def test_a_site_that_stays_busy_is_noticed() -> None:
    assert await breaches_of(breaks=lambda call, entry, document: problem(503, "busy")) == {"busy to the last"}


async def test_an_overtaken_visitor_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number 1 polls three more times after the first visitor behind it was admitted and left."""
    monkeypatch.setattr("ticketing.simulator.queue_rules.STALE_SECONDS_MAX", 0.0)
    held_back = 0

    def hold_back(call: str, entry: Entry, document: dict[str, Any]) -> None:
        nonlocal held_back
        if entry.number == 1 and held_back < 3:
            held_back += bool(site.left)
            document |= {"status": "waiting", "position_in_queue": 1}
            document.pop("admission_token", None)

    async with open_site(breaks=hold_back) as site:
        result = await visited(site)
    assert set(result.figures.breaches.counts) == {"overtaken"}


async def test_a_lost_admission_is_noticed() -> None:
    def lose(call: str, entry: Entry, document: dict[str, Any]) -> None:
        if entry.polls == 2:
            document |= {"status": "waiting", "position_in_queue": 0}
            document.pop("admission_token")

    async with open_site(breaks=lose) as site:
        result = await visited(site)
    assert set(result.figures.breaches.counts) == {"lost admissions"}
    assert result.figures.counts["missed admissions"] == result.figures.counts["admitted"] == 20


async def test_exceeded_limits_are_noticed() -> None:
    async with open_site() as site:
        result = await visited(site, visitors=60, over_seconds=0, rate_max=0.5, active_max=1, stay_seconds=1)
    assert {"rate exceeded", "cap exceeded"} <= set(result.figures.breaches.counts)


async def test_an_expired_admission_is_not_counted_as_inside() -> None:
    def briefly(call: str, entry: Entry, document: dict[str, Any]) -> None:
        if "expires_at" in document:
            document["expires_at"] = in_minutes(0.01)

    async with open_site(breaks=briefly) as site:
        result = await visited(site, active_max=1)
    assert result.is_clean, result.figures.breaches


async def test_a_visitor_who_arrives_early_returns_at_the_opening() -> None:
    def early(call: str, entry: Entry, document: dict[str, Any]) -> web.Response | None:
        entry.polls += 1
        return problem(409, "not-on-sale", opens_at=in_minutes(0.01)) if entry.polls == 1 else None

    async with open_site(breaks=early) as site:
        result = await visited(site, visitors=3)
    assert result.is_clean
    assert result.figures.counts["joined"] == 3


@pytest.mark.parametrize(("kind", "end"), [("room-drained", "sales were over"), ("not-on-sale", "not on sale")])
async def test_a_visitor_who_arrives_too_late_finishes(kind: str, end: str) -> None:
    async with open_site(breaks=lambda call, entry, document: problem(409, kind)) as site:
        result = await visited(site, twice=0.0)
    assert result.is_clean
    assert result.figures.counts[end] == 20


async def test_an_interrupted_run_leaves_the_queue() -> None:
    stopping = asyncio.Event()

    def watch(seen: Run) -> None:
        if seen.figures.counts["joined"] == 20:
            stopping.set()

    async with open_site(polls_to_wait=10_000) as site:
        result = await run(plan(site), watch, stopping)
    assert result.ended == "interrupted"
    assert result.is_clean
    assert sorted(site.left) == sorted(site.entries)
    assert result.figures.counts["stopped in line"] == 20


async def test_buyers_who_hold_tickets_when_a_run_ends_may_not_leave() -> None:
    """`still-holding` is documented: the run is clean."""
    async with open_site(sells=True) as site:
        result = await visited(site, seconds_max=1, visitors=2, buyers=2)
    assert result.ended == "time limit"
    assert result.is_clean, result.figures.breaches
    assert result.figures.counts["left holding tickets"] == len(site.holders) == 2


async def test_a_visitor_who_asked_for_no_tickets_must_be_able_to_leave() -> None:
    async with open_site() as site:
        site.lets_go = False
        result = await visited(site, visitors=2)
    assert set(result.figures.breaches.counts) == {"unexpected responses"}


async def test_a_run_ends_at_its_time_limit() -> None:
    async with open_site(polls_to_wait=10_000) as site:
        result = await visited(site, seconds_max=1, visitors=2)
    assert result.ended == "time limit"
    assert len(site.left) == 2


@pytest.mark.slow
async def test_a_site_that_stops_is_noticed() -> None:
    async with open_site() as site:
        unreachable = plan(site, visitors=2)
        begun = asyncio.Event()
        task = asyncio.create_task(run(plan(site, visitors=2, over_seconds=5, seed=1), lambda seen: begun.set()))
        await asyncio.wait({task, asyncio.create_task(begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
    result = await task
    assert result.figures.breaches.counts["no response"] >= 1
    with pytest.raises(PlanRefused, match="no response"):
        await run(unreachable)


async def test_an_unknown_event_is_refused() -> None:
    async with open_site() as site:
        with pytest.raises(PlanRefused, match="there is no event 'opera'"):
            await run(plan(site, event="opera"))


async def test_a_host_name_that_now_resolves_to_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def elsewhere(self: Any, host: str, port: int = 0, family: Any = 0) -> list[dict[str, Any]]:
        return [{"hostname": host, "host": "192.0.2.1", "port": port, "family": 2, "proto": 0, "flags": 0}]

    monkeypatch.setattr(api.ThreadedResolver, "resolve", elsewhere)
    async with open_site() as site:
        other_host = site.base.replace("127.0.0.1", "localhost")
        with pytest.raises(PlanRefused, match="no response"):
            await run(plan(site, base=other_host))


# --- proof of work and bots -------------------------------------------------------------------------------------------


async def test_visitors_solve_challenges() -> None:
    async with open_site(work_counter=3) as site:
        result = await visited(site, twice=0.5)
    assert result.is_clean, result.figures.breaches
    assert result.figures.counts["joined"] == len(site.entries) == 20


async def test_visitors_come_from_the_planned_addresses() -> None:
    async with open_site() as site:
        await visited(site, addresses=3, connections=4)
    assert site.addresses == {"127.1.0.1", "127.1.1.1", "127.1.2.1"}


async def test_bots_have_their_own_figures() -> None:
    async with open_site() as site:
        result = await visited(site, bots=9, bot_addresses=2)
    assert result.figures.counts["joined"] == 20
    assert result.bot_figures.counts["joined"] == 9
    assert site.addresses == {"127.0.0.1", "127.64.0.1", "127.128.0.1", "127.192.0.1", "127.192.1.1"}
    assert "bots        9: 9 joined" in "\n".join(report(result))


async def test_naive_bots_do_no_work_and_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bots, "NAIVE_PAUSE_SECONDS", 0.001)
    async with open_site(work_counter=2) as site:
        result = await visited(site, bots=4, bot_kinds=("naive",))
        assert len(site.entries) == 20
    assert result.bot_figures.counts["gave up"] == 4
    assert result.is_clean, "what bots do is no breach of the site"


async def test_bots_share_their_cores() -> None:
    """Ten challenges of 0.02 s each, on two cores: the last is ready after 0.1 s. People have a core each."""
    shared, own = Workers(0.01, cores=2), Workers(0.01)
    loop = asyncio.get_running_loop()
    began = loop.time()
    waits = [(await shared.solve(challenge(2)))[1] + loop.time() - began for _ in range(10)]
    assert max(waits) == pytest.approx(0.1, abs=0.05)
    assert shared.core_seconds == pytest.approx(0.2)
    assert (await own.solve(challenge(2)))[1] == pytest.approx(0.02)


async def test_a_challenge_that_takes_too_long_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "SOLVE_SECONDS_MAX", 0.001)
    async with open_site(work_counter=1_000_000) as site:
        result = await visited(site, visitors=1)
    assert set(result.figures.breaches.counts) == {"work too long"}


@pytest.mark.parametrize("wrong", [{"bots": 200_001}, {"addresses": 99_999}, {"bot_cores": 0}, {"bot_addresses": 0}])
def test_bots_are_limited(wrong: dict[str, int]) -> None:
    with pytest.raises(PlanRefused):
        Plan(event="concert", base="http://127.0.0.1:1", visitors=1, over_seconds=1, **wrong)


def test_bots_are_for_this_machine_only() -> None:
    with pytest.raises(PlanRefused):
        Plan(event="concert", base="https://example.org", visitors=1, over_seconds=1, bots=1, anywhere=True)
