"""The crowd at a house that keeps the contract, and at houses that break it: it must notice each breach."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from tests.ticketing.simulator.fake_site import House, Spot, in_minutes, open_house, problem, token
from ticketing.simulator import api, visitors
from ticketing.simulator.plan import Plan, PlanRefused
from ticketing.simulator.population import Run, run
from ticketing.simulator.report import progress, report


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(visitors, "BUSY_TRIES_MAX", 5)


def plan(house: House, **wishes: Any) -> Plan:
    usual = {"event": "concert", "base": house.base, "visitors": 20, "over_seconds": 0.1, "stay_seconds": 0.01}
    return Plan(**{**usual, "leavers": 0.0, **wishes})


async def visited(house: House, **wishes: Any) -> Run:
    result = await run(plan(house, **wishes))
    assert "\n".join(report(result))
    assert progress(result, 0, 1.0)
    return result


async def breaches_of(**habits: Any) -> set[str]:
    async with open_house(**habits) as house:
        return set((await visited(house)).figures.breaches.counts)


async def test_all_come_wait_as_long_as_told_look_round_and_leave() -> None:
    async with open_house() as house:
        result = await visited(house, twice=0.5, listeners=2, listen_by="poll")
    counts = result.figures.counts
    assert result.is_clean, result.figures.breaches
    assert counts["joined"] == counts["let in"] == counts["left the shop"] == len(house.left) == 20
    assert counts["from two tabs"] > 0
    assert len(house.spots) == 20
    assert len(result.figures.took_ms["poll"]) == 40
    assert ("sections", "") in house.asked
    assert result.ended == ""


async def test_the_same_seed_is_the_same_crowd_and_other_people() -> None:
    async with open_house() as house:
        first, second = [await visited(house, seed=7, leavers=0.5, twice=0.5, visitors=40) for _ in range(2)]
    assert first.figures.counts["from two tabs"] == second.figures.counts["from two tabs"]
    assert len(house.spots) == 80


async def test_the_impatient_leave_the_line() -> None:
    async with open_house(polls_to_wait=10_000) as house:
        result = await visited(house, leavers=1.0, over_seconds=0)
    assert result.is_clean
    assert result.figures.counts["left the line"] == 20


async def test_a_position_that_rises_is_noticed() -> None:
    def rise(call: str, spot: Spot, answer: dict[str, Any]) -> None:
        if spot.polls == 1:
            answer["position_in_queue"] = 7

    assert await breaches_of(breaks=rise) == {"positions that rose"}


async def test_a_number_given_twice_is_noticed() -> None:
    def same(call: str, spot: Spot, answer: dict[str, Any]) -> None:
        spot.number = 1
        answer["queue_token"] = spot.token

    assert "one number twice" in await breaches_of(breaks=same)


async def test_two_tabs_with_places_of_their_own_are_noticed() -> None:
    count = iter(range(1_000))

    def another(call: str, spot: Spot, answer: dict[str, Any]) -> None:
        if call == "join":
            answer["queue_token"] = token(spot.number, f"{spot.visitor}-{next(count)}")

    async with open_house(breaks=another) as house:
        result = await visited(house, twice=1.0)
    assert set(result.figures.breaches.counts) == {"two places"}


async def test_a_fault_is_noticed_even_if_asking_again_helps() -> None:
    def fail_once(call: str, spot: Spot, answer: dict[str, Any]) -> web.Response | None:
        return problem(500, "fault") if spot.polls == 1 else None

    async with open_house(breaks=fail_once) as house:
        result = await visited(house)
    assert set(result.figures.breaches.counts) == {"faults"}
    assert result.figures.counts["left the shop"] == 20


async def test_a_page_in_the_place_of_an_answer_is_a_fault() -> None:
    def page(call: str, spot: Spot, answer: dict[str, Any]) -> web.Response | None:
        return web.Response(text="<h1>One moment</h1>", content_type="text/html") if call == "poll" else None

    assert await breaches_of(breaks=page) == {"faults", "no answer"}


async def test_a_refusal_of_somebody_who_did_nothing_wrong_is_noticed() -> None:
    def refuse(call: str, spot: Spot, answer: dict[str, Any]) -> web.Response | None:
        return problem(401, "token-invalid") if call == "poll" else None

    assert await breaches_of(breaks=refuse) == {"unexpected answers"}


async def test_a_busy_house_is_asked_again_and_only_counted() -> None:
    seen: dict[str, int] = {}

    def busy(call: str, spot: Spot, answer: dict[str, Any]) -> web.Response | None:
        seen[spot.visitor] = seen.get(spot.visitor, 0) + 1
        return problem(503, "busy") if seen[spot.visitor] in (1, 3) else None

    async with open_house(breaks=busy) as house:
        result = await visited(house, twice=0.0)
    assert result.is_clean, result.figures.breaches
    assert result.figures.refusals == {"join: busy": 20, "poll: busy": 20}


async def test_a_house_that_turns_somebody_away_for_good_is_noticed() -> None:
    assert await breaches_of(breaks=lambda call, spot, answer: problem(503, "busy")) == {"turned away for good"}


async def test_being_passed_by_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number 1 asks three times more after the first of those behind it has come and gone."""
    monkeypatch.setattr("ticketing.simulator.queue_rules.STALE_SECONDS_MAX", 0.0)
    held_back = 0

    def hold_back(call: str, spot: Spot, answer: dict[str, Any]) -> None:
        nonlocal held_back
        if spot.number == 1 and held_back < 3:
            held_back += bool(house.left)
            answer |= {"status": "waiting", "position_in_queue": 1}
            answer.pop("admission_token", None)

    async with open_house(breaks=hold_back) as house:
        result = await visited(house)
    assert set(result.figures.breaches.counts) == {"overtaken"}


async def test_a_lost_turn_is_noticed() -> None:
    def lose(call: str, spot: Spot, answer: dict[str, Any]) -> None:
        if spot.polls == 2:
            answer |= {"status": "waiting", "position_in_queue": 0}
            answer.pop("admission_token")

    async with open_house(breaks=lose) as house:
        result = await visited(house)
    assert set(result.figures.breaches.counts) == {"turns lost"}
    assert result.figures.counts["missed a turn"] == result.figures.counts["let in"] == 20


async def test_limits_that_are_passed_are_noticed() -> None:
    async with open_house() as house:
        result = await visited(house, visitors=60, over_seconds=0, rate_max=0.5, active_max=1, stay_seconds=1)
    assert {"faster than the rate", "too many inside"} <= set(result.figures.breaches.counts)


async def test_an_admission_that_lapsed_is_not_counted_as_inside() -> None:
    def briefly(call: str, spot: Spot, answer: dict[str, Any]) -> None:
        if "expires_at" in answer:
            answer["expires_at"] = in_minutes(0.01)

    async with open_house(breaks=briefly) as house:
        result = await visited(house, active_max=1)
    assert result.is_clean, result.figures.breaches


async def test_who_comes_too_early_comes_again_at_the_opening() -> None:
    def early(call: str, spot: Spot, answer: dict[str, Any]) -> web.Response | None:
        spot.polls += 1
        return problem(409, "not-on-sale", opens_at=in_minutes(0.01)) if spot.polls == 1 else None

    async with open_house(breaks=early) as house:
        result = await visited(house, visitors=3)
    assert result.is_clean
    assert result.figures.counts["joined"] == 3


@pytest.mark.parametrize(
    ("kind", "end"), [("room-drained", "told that it is over"), ("not-on-sale", "came when nothing is sold")]
)
async def test_who_comes_too_late_goes(kind: str, end: str) -> None:
    async with open_house(breaks=lambda call, spot, answer: problem(409, kind)) as house:
        result = await visited(house, twice=0.0)
    assert result.is_clean
    assert result.figures.counts[end] == 20


async def test_told_to_stop_everybody_who_has_a_place_leaves_it() -> None:
    stopping = asyncio.Event()

    def watch(seen: Run) -> None:
        if seen.figures.counts["joined"] == 20:
            stopping.set()

    async with open_house(polls_to_wait=10_000) as house:
        result = await run(plan(house), watch, stopping)
    assert result.ended == "interrupted"
    assert result.is_clean
    assert sorted(house.left) == sorted(house.spots)
    assert result.figures.counts["waited in vain"] == 20


async def test_when_the_time_is_over_the_run_is() -> None:
    async with open_house(polls_to_wait=10_000) as house:
        result = await visited(house, seconds_max=1, visitors=2)
    assert result.ended == "the time was over"
    assert len(house.left) == 2


@pytest.mark.slow
async def test_a_house_that_goes_away_is_noticed() -> None:
    async with open_house() as house:
        gone = plan(house, visitors=2)
        begun = asyncio.Event()
        task = asyncio.create_task(run(plan(house, visitors=2, over_seconds=5, seed=1), lambda seen: begun.set()))
        await asyncio.wait({task, asyncio.create_task(begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
    result = await task
    assert result.figures.breaches.counts["no answer"] >= 1
    with pytest.raises(PlanRefused, match="nobody answers"):
        await run(gone)


async def test_what_is_no_house_of_ours_is_refused() -> None:
    async with open_house() as house:
        with pytest.raises(PlanRefused, match="there is no event 'opera'"):
            await run(plan(house, event="opera"))


async def test_a_name_that_has_come_to_mean_another_machine_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def elsewhere(self: Any, host: str, port: int = 0, family: Any = 0) -> list[dict[str, Any]]:
        return [{"hostname": host, "host": "192.0.2.1", "port": port, "family": 2, "proto": 0, "flags": 0}]

    monkeypatch.setattr(api.ThreadedResolver, "resolve", elsewhere)
    async with open_house() as house:
        there = house.base.replace("127.0.0.1", "localhost")
        with pytest.raises(PlanRefused, match="nobody answers"):
            await run(plan(house, base=there))
