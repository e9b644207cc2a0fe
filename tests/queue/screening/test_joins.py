"""Joins that need proof of work: by the API and the page, with and without scripts, once for each solution."""

import html
import json
import re
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from django.db import IntegrityError, connection
from django.test import Client

from apps.accounts.facade import AccessToken
from apps.accounts.models import User
from apps.events import facade as events
from apps.events.facade import EventView
from apps.events.models import OnSale
from apps.kernel import clock
from apps.kernel.fastpath import cache
from apps.kernel.proof_of_work.challenges import WorkRequired
from apps.queue import facade
from apps.queue.entries import join as queue_join
from apps.queue.entries import positions, vip_links
from apps.queue.identity.caller import visitor_id_of_secret
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.screening import score as signals
from apps.queue.screening import screen as screening
from apps.queue.screening.policy import Policy, policies
from apps.queue.screening.result import Screening
from tests.support.api_client import Api, assert_problem
from tests.support.factories import assert_audit_clean, make_access_code
from tests.support.queue.rooms import make_room
from tests.support.queue.work import solve
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db

QUEUE = "/events/concert/queue"
JOIN = "/events/concert/join"
ADDRESS = "203.0.113.9"
ON, PRESSURE = Policy("on"), Policy("pressure")


@pytest.fixture
def event(settings: Any) -> EventView:
    """An event with a room whose joins all need work, which is short."""
    settings.PROOF_OF_WORK_STEPS, settings.PROOF_OF_WORK_DELAY_SECONDS = 2, 0
    event = make_room(rate=1_000, active=500, general_admission=1_000)
    WaitingRoom.objects.update(screening="on")
    return event


def visitor(name: object) -> facade.Caller:
    return facade.Caller(visitor_id=f"visitor-{name}")


def challenge_of(response: Any) -> dict[str, Any]:
    return dict(assert_problem(response, 428, "work-required")["challenge"])


def test_a_join_without_work_gets_a_challenge_and_no_entry(api: Api, event: EventView) -> None:
    response = api.post(QUEUE, {"visitor_id": "a-browser-of-mine"})
    assert challenge_of(response)["parameters"]["algorithm"] == "PBKDF2/SHA-256"
    assert "visitor_id" in response.json(), "the client has no cookie, so it must send the id again"
    assert not QueueEntry.objects.exists()


def test_a_join_with_work_gets_its_entry(api: Api, event: EventView) -> None:
    body = {"visitor_id": "a-browser-of-mine"}
    body["proof"] = solve(challenge_of(api.post(QUEUE, body)))
    assert api.post(QUEUE, body).status_code == 201
    entry = QueueEntry.objects.get()
    assert len(bytes(entry.work or b"")) == 16
    assert entry.score <= signals.FAST_POINTS


def test_a_client_without_an_identity_gets_one_to_send_with_the_proof(api: Api, event: EventView) -> None:
    refused = api.post(QUEUE)
    body = {"visitor_id": refused.json()["visitor_id"], "proof": solve(challenge_of(refused))}
    assert api.post(QUEUE, body).status_code == 201
    assert QueueEntry.objects.get().visitor_id == visitor_id_of_secret(body["visitor_id"])


def test_a_retry_of_the_same_join_gets_its_first_answer(api: Api, event: EventView) -> None:
    body = {"visitor_id": "a-browser-of-mine"}
    body["proof"] = solve(challenge_of(api.post(QUEUE, body)))
    first, again = api.post(QUEUE, body), api.post(QUEUE, body)
    assert (first.status_code, again.status_code) == (201, 201)
    assert QueueEntry.objects.count() == 1


def test_a_proof_of_another_visitor_or_event_is_refused(api: Api, event: EventView) -> None:
    make_room("another")
    WaitingRoom.objects.update(screening="on")
    body = {"visitor_id": "a-browser-of-mine"}
    proof = solve(challenge_of(api.post(QUEUE, body)))
    challenge_of(api.post(QUEUE, {"visitor_id": "another-browser", "proof": proof}))
    challenge_of(api.post("/events/another/queue", {**body, "proof": proof}))
    assert not QueueEntry.objects.exists()


@pytest.mark.parametrize("proof", [7, [], {}, False, "x" * 2_001])
def test_a_proof_that_is_no_short_text_is_invalid(api: Api, event: EventView, proof: object) -> None:
    assert_problem(api.post(QUEUE, {"proof": proof}), 422, "invalid")
    WaitingRoom.objects.update(screening="off")
    policies.clear()
    assert_problem(api.post(QUEUE, {"proof": proof}), 422, "invalid")


@pytest.mark.parametrize("proof", ["x", "eyJ9", "é", "e30="])
def test_a_proof_that_is_no_solution_gets_a_new_challenge(api: Api, event: EventView, proof: str) -> None:
    challenge_of(api.post(QUEUE, {"proof": proof}))


def test_a_visitor_in_line_returns_to_it_without_work(api: Api, event: EventView) -> None:
    body = {"visitor_id": "a-browser-of-mine"}
    body["proof"] = solve(challenge_of(api.post(QUEUE, body)))
    token = api.post(QUEUE, body).json()["queue_token"]
    assert api.post(QUEUE, token=token).status_code == 201
    assert QueueEntry.objects.count() == 1


def test_an_old_token_needs_work_for_a_new_entry_and_an_old_proof_is_used_up(api: Api, event: EventView) -> None:
    """Without the second check a visitor could leave and join again with one solution, for as long as it is valid."""
    body = {"visitor_id": "a-browser-of-mine"}
    body["proof"] = solve(challenge_of(api.post(QUEUE, body)))
    token = api.post(QUEUE, body).json()["queue_token"]
    assert api.delete(QUEUE, token=token).status_code == 200
    challenge_of(api.post(QUEUE, token=token))
    refused = assert_problem(api.post(QUEUE, body), 428, "work-required")
    assert "has been used" in refused["detail"]
    assert QueueEntry.objects.count() == 1
    body["proof"] = solve(refused["challenge"])
    assert api.post(QUEUE, body).status_code == 201


def test_an_account_needs_work_too(api: Api, event: EventView) -> None:
    user = User.objects.create_user("ann@example.org")
    access = str(AccessToken.for_user(user))
    refused = api.post(QUEUE, token=access)
    assert "visitor_id" not in refused.json()
    assert api.post(QUEUE, {"proof": solve(challenge_of(refused))}, token=access).status_code == 201
    entry = QueueEntry.objects.get()
    assert entry.account_id == user.pk
    assert "account younger than a day +1" in entry.reasons


def test_a_vip_link_needs_no_work(event: EventView) -> None:
    """Staff have approved its visitor."""
    link = vip_links.make_link(event.id, who="boss")
    token = vip_links.address_of(link, event.slug).rpartition("/")[2]
    assert vip_links.redeem_link(event, token, visitor("guest")).is_ready


def test_no_work_is_needed_while_screening_is_off(api: Api, event: EventView) -> None:
    WaitingRoom.objects.update(screening="off")
    assert api.post(QUEUE, {"visitor_id": "a-browser-of-mine"}).status_code == 201
    entry = QueueEntry.objects.get()
    assert (entry.work, entry.score, entry.reasons) == (None, 0, "")


def test_before_the_opening_there_is_no_challenge_to_solve_in_advance(
    api: Api, browser: Client, event: EventView
) -> None:
    OnSale.objects.update(opens_at=clock.now() + timedelta(hours=1))
    assert_problem(api.post(QUEUE, {"visitor_id": "a-browser-of-mine"}), 409, "not-on-sale")
    browser.post(JOIN)
    assert browser.get(JOIN, {"delay": ""}).url == "/events/concert/"


def test_a_join_of_a_presale_needs_the_code_and_work(api: Api, browser: Client, event: EventView) -> None:
    """Without the code there is no challenge, so programs without one compute nothing."""
    make_presale(event)
    assert_problem(api.post(QUEUE, {"visitor_id": "a-browser-of-mine"}), 403, "presale-only")
    assert_problem(
        api.post(QUEUE, {"visitor_id": "a-browser-of-mine", "access_code": "WRONG"}), 403, "access-code-wrong"
    )
    body = {"visitor_id": "a-browser-of-mine", "access_code": "FANCLUB"}
    proof = solve(challenge_of(api.post(QUEUE, body)))
    assert not QueueEntry.objects.exists()
    assert_problem(api.post(QUEUE, {"visitor_id": "a-browser-of-mine", "proof": proof}), 403, "presale-only")
    assert api.post(QUEUE, {**body, "proof": proof}).status_code == 201
    assert api.post(QUEUE, {**body, "proof": proof}).status_code == 201, "a retry gets its first answer"
    assert QueueEntry.objects.count() == 1


def test_the_page_keeps_the_code_of_a_presale_over_the_check(browser: Client, event: EventView) -> None:
    make_presale(event)
    browser.post(JOIN)
    checked = browser.post(JOIN, {"access_code": "FANCLUB"})
    assert 'name="access_code" value="FANCLUB"' in page(checked)
    proof = solve(challenge_on(checked.content.decode()))
    assert browser.post(JOIN, {"proof": proof, "access_code": "FANCLUB"}).status_code == 303
    assert QueueEntry.objects.get().work is not None


def make_presale(event: EventView) -> None:
    OnSale.objects.update(presale_condition="code", presale_until=clock.now() + timedelta(hours=1))
    make_access_code(event)
    cache.clear_all()


# --- races ------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_one_solution_in_a_hundred_joins_at_once_creates_one_entry(event: EventView) -> None:
    """A hundred visitors send one solution at the same moment, as if the binding to a visitor had been broken. One
    batch or another inserts it first; every later one reads it under the room's lock."""
    work = Screening(True, b"w" * 16)
    outcomes = storm(100, lambda number: positions.join(event, visitor(number), work))
    assert [outcome.error for outcome in outcomes if outcome.error is None] == [None]
    assert all(isinstance(outcome.error, WorkRequired) for outcome in outcomes if outcome.error is not None)
    assert QueueEntry.objects.count() == 1
    assert_audit_clean()


@pytest.mark.django_db(transaction=True)
def test_a_hundred_retries_at_once_get_one_entry(event: EventView) -> None:
    work = Screening(True, b"w" * 16)
    entries = values(storm(100, lambda _: positions.join(event, visitor("one"), work)))
    assert len({entry.id for entry in entries}) == 1
    assert QueueEntry.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_control_without_the_read_the_constraint_refuses_and_without_both_solutions_are_reused(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_join._JoinBatch, "_use_work", lambda *_: None)
    work = Screening(True, b"w" * 16)
    outcomes = storm(8, lambda number: positions.join(event, visitor(number), work))
    assert sum(outcome.error is None for outcome in outcomes) <= 1
    assert QueueEntry.objects.count() <= 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_indexdef('queue_entry_work_once'::regclass)")
        ((definition,),) = cursor.fetchall()
        cursor.execute("DROP INDEX queue_entry_work_once")
    try:
        values(storm(8, lambda number: positions.join(event, visitor(f"again-{number}"), work)))
        assert QueueEntry.objects.count() >= 8
    finally:
        QueueEntry.objects.all().delete()
        with connection.cursor() as cursor:
            cursor.execute(definition)


@pytest.mark.django_db
def test_the_constraint_has_a_name(event: EventView) -> None:
    def add(name: str) -> None:
        QueueEntry.objects.create(
            event_id=event.id, number=ord(name), visitor_id=f"visitor-{name}", status="left", joined_at=clock.now(),
            work=b"w" * 16,
        )  # fmt: skip

    add("a")
    with pytest.raises(IntegrityError, match="queue_entry_work_once"):
        add("b")


# --- the decision -----------------------------------------------------------------------------------------------------


def screen(event: EventView, policy: Policy, name: object = "one", address: str = ADDRESS, **given: Any) -> Screening:
    return screening.screen(event, policy, visitor(name), address, **given)


def test_the_decision_and_the_challenge_need_no_database_and_no_redis(
    event: EventView, own_redis: Any, django_assert_num_queries: Any
) -> None:
    own_redis.kill()
    with django_assert_num_queries(0):
        challenge = screening.create_challenge(event, visitor("one"), ADDRESS)
        result = screen(event, ON, proof=solve(challenge))
        with pytest.raises(WorkRequired):
            screen(event, ON)
    assert result.work is not None


def test_under_pressure_joins_need_work_only_while_many_come(event: EventView, monkeypatch: Any) -> None:
    monkeypatch.setattr(screening, "_arrivals", _arrivals(monkeypatch, pressure=(0.001, 10)))
    for number in range(4):
        assert not screen(event, PRESSURE, number, address=f"198.51.{number}.1").needs_work
    screen(event, PRESSURE, 4, address="198.51.4.1")
    with pytest.raises(WorkRequired):
        screen(event, PRESSURE, 5, address="198.51.5.1")


def test_under_pressure_a_busy_address_needs_work_alone(event: EventView, monkeypatch: Any) -> None:
    monkeypatch.setattr(screening, "_arrivals", _arrivals(monkeypatch, address=(0.001, 10)))
    for number in range(5):
        screen(event, PRESSURE, number)
    with pytest.raises(WorkRequired):
        screen(event, PRESSURE, 5)
    assert not screen(event, PRESSURE, "elsewhere", address="198.51.100.1").needs_work


def test_the_work_grows_with_the_joins_of_an_address(event: EventView, settings: Any, monkeypatch: Any) -> None:
    steps: list[int] = []
    monkeypatch.setattr(screening.challenges, "create", lambda binding, count, points: steps.append(count) or {})
    monkeypatch.setattr(screening, "_arrivals", _arrivals(monkeypatch, address=(0.001, 10)))
    for number in range(10):
        screening.create_challenge(event, visitor(number), ADDRESS)
        with pytest.raises(WorkRequired):
            screen(event, ON, number)
    assert steps == sorted(steps)
    assert steps[-1] >= 8 * steps[0]


def test_a_solution_keeps_the_points_of_its_challenge(event: EventView, monkeypatch: Any) -> None:
    """Neither another address nor a pause between the challenge and the join makes them fewer."""
    policy = Policy(WaitingRoom.Screening.ON, 2)
    monkeypatch.setattr(signals, "FAST_SECONDS", 0.0)
    monkeypatch.setattr(screening, "_arrivals", _arrivals(monkeypatch, address=(0.001, 10)))
    early = solve(screening.create_challenge(event, visitor("early"), ADDRESS))
    for number in range(6):
        with pytest.raises(WorkRequired):
            screen(event, ON, number)
    late = solve(screening.create_challenge(event, visitor("late"), ADDRESS))
    elsewhere = screen(event, policy, "late", address="198.51.100.1", proof=late)
    assert (elsewhere.score, elsewhere.for_review) == (2, True)
    assert elsewhere.reasons.endswith("its challenge +2")
    assert screen(event, policy, "early", proof=early).for_review, "the address is busy by now"
    monkeypatch.setattr(screening, "_arrivals", _arrivals(monkeypatch, address=(0.001, 10)))
    assert screen(event, policy, "late", proof=late).score == 2
    assert screen(event, policy, "early", proof=early).score == 0


def _arrivals(monkeypatch: Any, **rates: Any) -> Any:
    from django.conf import settings

    for name, rate in rates.items():
        monkeypatch.setattr(settings, f"PROOF_OF_WORK_{name.upper()}", rate)
    return screening.Arrivals("test")


# --- signals ----------------------------------------------------------------------------------------------------------


def assess(caller: facade.Caller, address: str = ADDRESS, seconds: float | None = None, **kwargs: Any) -> signals.Score:
    devices = kwargs.get("devices") or signals.DeviceNetworks()
    arrivals = kwargs.get("arrivals") or screening._arrivals
    return signals.assess(caller, "device", address, arrivals, devices, seconds)


def test_an_ordinary_visitor_has_no_points() -> None:
    assert assess(visitor("one"), seconds=1.5) == signals.Score(0, "")


def test_reasons_are_named_with_their_points(monkeypatch: Any) -> None:
    arrivals = _arrivals(monkeypatch, address=(0.001, 10), network=(0.001, 10))
    for _ in range(10):
        arrivals.count(ADDRESS, "concert")
    score = assess(visitor("one"), seconds=0.01, arrivals=arrivals)
    assert score.points == 4 + 2 + 1 or score.points == 3 + 2 + 1
    assert re.fullmatch(
        r"many joins from one address \+[34]; many joins from one network \+2; answered faster than a page can \+1",
        score.reasons,
    )
    assert ADDRESS not in score.reasons


@pytest.mark.parametrize(("days", "points"), [(0.5, 1), (5, 0), (31, -1)])
def test_the_age_of_an_account_counts(days: float, points: int) -> None:
    since = clock.process_now() - timedelta(days=days)
    assert assess(facade.Caller(account_id=1, account_since=since)).points == points


def test_one_device_in_many_networks_has_points_for_an_hour() -> None:
    now = 0.0
    devices = signals.DeviceNetworks(lambda: now)
    for number in range(signals.NETWORKS_MAX):
        assert assess(visitor("one"), f"198.51.{number}.1", devices=devices).points == 0
    assert assess(visitor("one"), "203.0.113.1", devices=devices).points == signals.MOVING_POINTS
    now = signals.NETWORKS_SECONDS + 1.0
    assert assess(visitor("one"), "203.0.113.1", devices=devices).points == 0


def test_the_memory_of_devices_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "DEVICES_MAX", 10)
    devices = signals.DeviceNetworks()
    for number in range(100):
        for network in range(20):
            devices.count(f"device-{number}", str(network))
    assert len(devices._recent) + len(devices._older) <= 20
    assert all(len(seen) <= signals.NETWORKS_MAX + 1 for seen in devices._recent.values())


# --- the page ---------------------------------------------------------------------------------------------------------


def page(response: Any) -> str:
    return html.unescape(response.content.decode())


@pytest.fixture
def browser_in(browser: Client, event: EventView) -> Client:
    """A browser that has its visitor cookie."""
    browser.post(JOIN)
    return browser


def challenge_on(text: str) -> dict[str, Any]:
    found = re.search(r'<script id="work-challenge" type="application/json">(.*?)</script>', text)
    assert found is not None, text
    return dict(json.loads(found[1]))


def test_the_page_has_a_challenge_whose_proof_joins(browser_in: Client) -> None:
    checked = browser_in.post(f"{JOIN}?again=1")
    assert checked.status_code == 200
    assert checked.headers["Cache-Control"] == "no-store"
    assert not QueueEntry.objects.exists()
    assert 'role="status" aria-live="polite"' in page(checked)
    joined = browser_in.post(JOIN, {"proof": solve(challenge_on(checked.content.decode()))})
    assert (joined.status_code, QueueEntry.objects.count()) == (303, 1)


def test_the_scripts_visitor_id_is_kept_over_the_check(browser: Client, event: EventView) -> None:
    checked = browser.post(JOIN, {"visitor_id": "from-local-storage"})
    assert 'name="visitor_id" value="from-local-storage"' in page(checked)
    proof = solve(challenge_on(checked.content.decode()))
    assert browser.post(JOIN, {"visitor_id": "from-local-storage", "proof": proof}).status_code == 303
    assert QueueEntry.objects.get().visitor_id == visitor_id_of_secret("from-local-storage")


def test_pressing_the_button_again_returns_a_visitor_to_the_line_without_a_check(browser_in: Client) -> None:
    checked = browser_in.post(JOIN)
    browser_in.post(JOIN, {"proof": solve(challenge_on(checked.content.decode()))})
    assert browser_in.post(JOIN).status_code == 303
    assert QueueEntry.objects.count() == 1


def test_without_scripts_the_page_reloads_itself_until_a_button_joins(browser_in: Client, settings: Any) -> None:
    settings.PROOF_OF_WORK_DELAY_SECONDS = 20
    checked = page(browser_in.post(JOIN))
    (after, url) = re.search(r'<noscript><meta http-equiv="refresh" content="(\d+); url=(.*?)"', checked).groups()  # type: ignore[union-attr]
    assert after == "0"
    waiting = page(browser_in.get(url))
    (after, url) = re.search(r'<meta http-equiv="refresh" content="(\d+); url=(.*?)"', waiting).groups()  # type: ignore[union-attr]
    assert 18 <= int(after) <= 20
    assert "Join the line</button>" not in waiting
    again = page(browser_in.get(url))
    assert re.search(r'content="(\d+); url=(.*?)"', again)[2] == url, "the token, and so the end, stay the same"  # type: ignore[index]
    early = browser_in.post(JOIN, {"delay": url.partition("delay=")[2]})
    assert (early.status_code, QueueEntry.objects.count()) == (200, 0)


def test_after_the_delay_the_button_joins_once(browser_in: Client) -> None:
    over = page(browser_in.get(f"{JOIN}?delay="))
    (token,) = re.search(r'name="delay" value="(.*?)"', over).groups()  # type: ignore[union-attr]
    assert "http-equiv" not in over
    assert not QueueEntry.objects.exists(), "GET joins no visitor"
    assert browser_in.post(JOIN, {"delay": token}).status_code == 303
    browser_in.post("/events/concert/leave")
    assert browser_in.post(JOIN, {"delay": token}).status_code == 200, "the delay is used up"
    assert QueueEntry.objects.count() == 1


@pytest.mark.parametrize("phase", ["presale", "lobby"])
def test_neither_work_nor_a_delay_from_before_the_general_sale_is_valid_in_it(
    browser_in: Client, event: EventView, phase: str
) -> None:
    if phase == "presale":
        make_presale(event)
    else:
        OnSale.objects.update(opens_at=clock.now() + timedelta(hours=1))
    cache.clear_all()
    before = events.get_event(event.slug)
    token = screening.create_delay(before, visitor("one"), ADDRESS)
    assert screening.seconds_left(before, visitor("one"), token) == 0
    proof = solve(screening.create_challenge(before, visitor("one"), ADDRESS))
    OnSale.objects.update(opens_at=clock.now() - timedelta(seconds=1), presale_condition="", presale_until=None)
    cache.clear_all()
    now = events.get_event(event.slug)
    assert screening.seconds_left(now, visitor("one"), token) is None
    with pytest.raises(WorkRequired, match="not valid"):
        screen(now, ON, proof=proof)


@pytest.mark.parametrize("delay", ["x", "\x00", "a.b.c", "9" * 3_000])
def test_an_invalid_delay_starts_a_new_one(browser_in: Client, delay: str) -> None:
    assert browser_in.get(JOIN, {"delay": delay}).status_code == 200
    assert browser_in.post(JOIN, {"delay": delay}).status_code == 200
    assert not QueueEntry.objects.exists()


def test_a_browser_without_a_cookie_gets_no_delay(browser: Client, event: EventView) -> None:
    assert browser.get(JOIN, {"delay": ""}).url == "/events/concert/"


def test_the_address_of_the_client_is_not_stored(browser_in: Client) -> None:
    checked = browser_in.post(JOIN)
    browser_in.post(JOIN, {"proof": solve(challenge_on(checked.content.decode()))})
    assert "127.0.0.1" not in str(QueueEntry.objects.values().get())
    assert QueueEntry.objects.get().reasons == ANY
