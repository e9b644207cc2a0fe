"""The cookie with a browser's position: trusted for that alone, and only while the same visitor uses the browser."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.events import facade as events
from apps.kernel.tokens import jwt
from apps.queue.identity.caller import PLACE_COOKIE, VISITOR_COOKIE, caller_from_place_cookie
from apps.queue.models import QueueEntry, WaitingRoom
from tests.support.api_client import assert_problem
from tests.support.factories import make_event
from tests.support.queue.rooms import join_waiting_entries, make_room, tick

JOIN, STATUS = "/events/concert/join", "/api/events/concert/queue/status"
OWN = {"sec-fetch-site": "same-origin"}


@pytest.fixture
def line(db: None) -> events.EventView:
    """A room with one entry ahead, which admits no visitor for now."""
    event = make_room()
    join_waiting_entries(event, 1)
    WaitingRoom.objects.update(state="paused")
    return event


@pytest.fixture
def waiting(line: events.EventView) -> Client:
    """A browser that waits in it as number 2."""
    browser = Client(headers=OWN)
    browser.post(JOIN, follow=True)
    assert PLACE_COOKIE in browser.cookies
    return browser


def read_cookie(browser: Client, slug: str = "concert", **headers: str) -> Any:
    """Return what a poll of this browser reads from its cookie."""
    request = RequestFactory(headers=OWN | headers).get(STATUS)
    request.COOKIES = {name: morsel.value for name, morsel in browser.cookies.items()}
    return caller_from_place_cookie(request, slug)


def test_a_browser_in_line_has_the_cookie(waiting: Client, django_assert_num_queries: Any) -> None:
    entry = QueueEntry.objects.get(number=2)
    cookie = waiting.cookies[PLACE_COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/api/events/concert/queue")
    assert cookie["max-age"] == 7 * 86_400
    with django_assert_num_queries(0):
        caller = read_cookie(waiting)
    assert (caller.entry_id, caller.number, caller.in_line) == (entry.pk, 2, True)
    assert (caller.account_id, caller.visitor_id) == (None, "")


def test_a_poll_with_the_cookie_reads_no_visitor(waiting: Client) -> None:
    """Not even a session is read: the position comes from the snapshot."""
    waiting.get(STATUS)  # The process has cached the event, the snapshot and the exceptional entries.
    with CaptureQueriesContext(connection) as queries:
        response = waiting.get(STATUS)
    assert (response.json()["status"], response.json()["position_in_queue"]) == ("paused", 2)
    touched = [query["sql"] for query in queries if "queue_queueentry" in query["sql"] or "session" in query["sql"]]
    assert [sql for sql in touched if "ended_at" not in sql and "marked" not in sql] == []


def test_a_signed_in_visitor_has_the_cookie_too(line: events.EventView) -> None:
    browser = Client(headers=OWN)
    browser.force_login(User.objects.create_user("ann@example.org"))
    browser.post(JOIN)
    assert read_cookie(browser).number == 2


def test_the_cookie_is_sent_once_and_again_when_the_entry_changes(waiting: Client) -> None:
    assert PLACE_COOKIE not in waiting.get(STATUS).cookies
    waiting.delete("/api/events/concert/queue")
    waiting.post(JOIN)
    assert read_cookie(waiting).number == 3


def test_the_cookie_is_deleted_when_the_wait_is_over(waiting: Client, line: events.EventView) -> None:
    WaitingRoom.objects.update(state="open")
    assert tick(line) == 2
    ready = waiting.get(STATUS)
    assert ready.json()["status"] == "ready"
    assert ready.cookies[PLACE_COOKIE].value == ""


def test_leaving_deletes_the_cookie(waiting: Client) -> None:
    assert waiting.delete("/api/events/concert/queue").cookies[PLACE_COOKIE].value == ""


def test_after_a_log_in_or_log_out_the_cookie_is_ignored(waiting: Client) -> None:
    ann = User.objects.create_user("ann@example.org")
    waiting.force_login(ann)
    assert read_cookie(waiting) is None
    assert waiting.get(STATUS).status_code == 200
    assert read_cookie(waiting).number == 2, "read from the database: it is the account's entry now"
    waiting.logout()
    assert read_cookie(waiting) is None
    assert waiting.get(STATUS).status_code in (401, 404)


def test_the_cookie_is_ignored_in_another_browser(waiting: Client) -> None:
    thief = Client(headers=OWN)
    thief.cookies[PLACE_COOKIE] = waiting.cookies[PLACE_COOKIE].value
    assert read_cookie(thief) is None
    assert_problem(thief.get(STATUS), 401, "token-missing")


def test_the_cookie_is_no_token_and_a_token_is_no_cookie(waiting: Client) -> None:
    cookie = waiting.cookies[PLACE_COOKIE].value
    assert_problem(Client().get(STATUS, headers={"authorization": f"Bearer {cookie}"}), 401, "token-invalid")
    entry = QueueEntry.objects.get(number=2)
    waiting.cookies[PLACE_COOKIE] = jwt.issue("queue", str(entry.pk), timedelta(hours=1), "concert", num=2)
    assert read_cookie(waiting) is None


def test_the_cookie_grants_nothing(waiting: Client, line: events.EventView) -> None:
    """Only the place cookie is left, with number 1: it allows no claim, no leave and no hold."""
    first = QueueEntry.objects.get(number=1)
    del waiting.cookies[VISITOR_COOKIE]
    request = RequestFactory().get(STATUS)
    from apps.queue.identity import caller as identity

    who = identity._browser_digest(request)
    waiting.cookies[PLACE_COOKIE] = jwt.issue("place", str(first.pk), timedelta(days=1), "concert", num=1, who=who)
    assert read_cookie(waiting).entry_id == first.pk
    WaitingRoom.objects.update(state="open")
    tick(line)
    assert_problem(waiting.get(STATUS), 401, "token-missing")
    assert_problem(waiting.delete("/api/events/concert/queue"), 401, "token-missing")
    held = waiting.post(
        "/api/events/concert/reservations",
        {"seats": ["hall-A-1"]},
        content_type="application/json",
        headers={"idempotency-key": "k"},
    )
    assert_problem(held, 401, "token-missing")
    first.refresh_from_db()
    assert first.admission_expires_at is None


def test_a_cookie_of_another_event_expired_forged_or_beside_a_token_is_ignored(waiting: Client) -> None:
    make_event("opera")
    assert read_cookie(waiting, "opera") is None
    assert read_cookie(waiting, authorization="Bearer x") is None
    good = waiting.cookies[PLACE_COOKIE].value
    for value in ("", "x", "a.b.c", good[:-1], good + "=", good.replace(".", ".."), "é" * 50, "\udcff", "x" * 5_000):
        waiting.cookies[PLACE_COOKIE] = "x"
        request = RequestFactory(headers=OWN).get(STATUS)
        request.COOKIES = {PLACE_COOKIE: value}
        assert caller_from_place_cookie(request, "concert") is None
    who = jwt.verify(good, frozenset({"place"})).values["who"]
    for subject, lifetime, more in (
        (str(uuid.uuid4()), timedelta(seconds=-1), {"who": who}),
        ("not-a-uuid", timedelta(hours=1), {"who": who}),
        (str(uuid.uuid4()), timedelta(hours=1), {"who": 7}),
        (str(uuid.uuid4()), timedelta(hours=1), {}),
    ):
        waiting.cookies[PLACE_COOKIE] = jwt.issue("place", subject, lifetime, "concert", num=2, **more)
        assert read_cookie(waiting) is None


@pytest.mark.parametrize("number", [None, 0, -1, True, "2", 2.5, [2]])
def test_an_invalid_number_is_ignored(waiting: Client, number: Any) -> None:
    entry = QueueEntry.objects.get(number=2)
    who = jwt.verify(waiting.cookies[PLACE_COOKIE].value, frozenset({"place"})).values["who"]
    waiting.cookies[PLACE_COOKIE] = jwt.issue(
        "place", str(entry.pk), timedelta(hours=1), "concert", num=number, who=who
    )
    assert read_cookie(waiting).number is None
