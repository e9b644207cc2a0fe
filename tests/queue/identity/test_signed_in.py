"""Signed-in users: authenticated by session or token on the site and on the fast path, there in batches."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.accounts.tokens.account_tokens import AccessToken
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import reads
from apps.queue.identity import async_caller
from apps.queue.identity.caller import VISITOR_COOKIE
from apps.queue.models import QueueEntry
from apps.reservations.models import Reservation
from tests.support import factories
from tests.support.api_client import Api, FastPathCall, assert_problem

QUEUE, HOLD = "/events/concert/queue", "/events/concert/reservations"
OURS = {"sec_fetch_site": "same-origin"}
SEAT = {"seats": ["hall-A-1"]}


@pytest.fixture
def ann(db: None) -> User:
    return User.objects.create_user("ann@example.org", password="of course")


def by_session(api: Api, user: User) -> dict[str, str]:
    api.client.force_login(user)
    return OURS


def by_token(api: Api, user: User) -> dict[str, str]:
    return {"token": str(AccessToken.for_user(user))}


Way = Callable[[Api, User], dict[str, str]]
by_session_or_token = pytest.mark.parametrize("sign_in", [by_session, by_token])


@by_session_or_token
def test_an_account_joins_polls_holds_and_reads(api: Api, concert: events.EventView, ann: User, sign_in: Way) -> None:
    credentials = sign_in(api, ann)
    assert api.post(QUEUE, **credentials).status_code == 201
    assert api.get(f"{QUEUE}/status", **credentials).json()["status"] == "ready"
    held = api.post(HOLD, SEAT, key="k-1", **credentials)
    assert held.status_code == 201
    shown = api.get(f"/reservations/{held.json()['reservation_id']}", **credentials).json()
    assert shown.pop("bill")["total_minor"] == held.json()["total_minor"]
    assert shown == held.json()
    assert (QueueEntry.objects.get().account_id, Reservation.objects.get().account_id) == (ann.pk, ann.pk)


@by_session_or_token
def test_the_fast_path_answers_an_account_without_the_site(concert: events.EventView, ann: User, sign_in: Way) -> None:
    api = Api()
    credentials = sign_in(api, ann)
    sent = {name.replace("_", "-"): value for name, value in credentials.items() if name != "token"}
    sent |= {"authorization": f"Bearer {credentials['token']}"} if "token" in credentials else {}
    join = FastPathCall(api.client, "POST", f"/api{QUEUE}", b"", sent)
    turn = FastPathCall(api.client, "GET", f"/api{QUEUE}/status", b"", sent)
    json = {"content-type": "application/json", "idempotency-key": "k-1"}
    hold = FastPathCall(api.client, "POST", f"/api{HOLD}", b'{"seats": ["hall-A-1"]}', sent | json)
    assert [call.answer().status_code for call in (join, turn, hold)] == [201, 200, 201]
    assert [call._forwarded for call in (join, turn, hold)] == [None] * 3


def deactivated(user: User) -> None:
    User.objects.update(is_active=False)


def with_a_new_password(user: User) -> None:
    user.set_password("another")
    user.save()


def session_expired(user: User) -> None:
    Session.objects.update(expire_date=clock.now() - timedelta(seconds=1))


def logged_out_elsewhere(user: User) -> None:
    Session.objects.all().delete()


def deleted(user: User) -> None:
    user.delete()


@pytest.mark.parametrize("becomes", [deactivated, with_a_new_password, session_expired, logged_out_elsewhere, deleted])
def test_a_session_that_is_no_longer_valid_identifies_no_account(
    api: Api, concert: events.EventView, ann: User, becomes: Callable[[User], None]
) -> None:
    by_session(api, ann)
    assert_problem(api.get(f"{QUEUE}/status", **OURS), 404, "not-found")
    becomes(ann)
    assert_problem(api.post(HOLD, SEAT, key="k-1", **OURS), 401, "token-missing")
    # The site deletes the cookie on either path if nothing is left of the session.
    was_taken_back = api.client.cookies[settings.SESSION_COOKIE_NAME].value == ""
    assert was_taken_back == (becomes not in (deactivated, deleted))
    assert api.post(QUEUE, **OURS).status_code == 201
    assert QueueEntry.objects.get().account_id is None


@pytest.mark.parametrize("key", ["", "short", "x" * 32, "nul%00" * 6, 'a"b\\' * 8, "é" * 20, "z" * 4_000])
def test_a_made_up_session_identifies_no_account(api: Api, concert: events.EventView, key: str) -> None:
    api.client.cookies[settings.SESSION_COOKIE_NAME] = key.replace("%00", "\\000")
    assert_problem(api.get(f"{QUEUE}/status", **OURS), 401, "token-missing")


@pytest.mark.parametrize("becomes", [deactivated, deleted])
def test_a_token_of_a_deleted_account_is_refused(
    api: Api, concert: events.EventView, ann: User, becomes: Callable[[User], None]
) -> None:
    credentials = by_token(api, ann)
    becomes(ann)
    for answer in (
        api.post(QUEUE, **credentials),
        api.get(f"{QUEUE}/status", **credentials),
        api.post(HOLD, SEAT, key="k", **credentials),
    ):
        assert_problem(answer, 401, "token-invalid")
    assert not QueueEntry.objects.exists()


def test_an_expired_token_is_refused_as_such(api: Api, concert: events.EventView, ann: User) -> None:
    token = AccessToken.for_user(ann)
    token.set_exp(lifetime=timedelta(seconds=-1))
    assert_problem(api.post(QUEUE, token=str(token)), 401, "token-expired")


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
        {"origin": "https://evil.example"},
        {},
    ],
)
def test_a_session_may_write_only_from_our_own_pages(
    api: Api, concert: events.EventView, ann: User, headers: dict[str, str]
) -> None:
    api.client.force_login(ann)
    assert_problem(api.post(QUEUE, **headers), 403, "cross-origin")
    factories.join(concert, account_id=ann.pk)
    assert_problem(api.post(HOLD, SEAT, key="k-1", **headers), 403, "cross-origin")
    assert not Reservation.objects.exists()


@pytest.mark.parametrize("call", ["join", "status"])
def test_a_guests_entry_is_merged(api: Api, concert: events.EventView, ann: User, call: str) -> None:
    guest = Client(headers={"sec-fetch-site": "same-origin"})
    guest.post("/events/concert/join", follow=True)
    api.client.force_login(ann)
    api.client.cookies[VISITOR_COOKIE] = guest.cookies[VISITOR_COOKIE].value
    answer = api.post(QUEUE, **OURS) if call == "join" else api.get(f"{QUEUE}/status", **OURS)
    assert answer.json()["status"] == "ready"
    assert QueueEntry.objects.get().account_id == ann.pk
    # After that there is nothing to merge.
    assert api.get(f"{QUEUE}/status", **OURS).json()["status"] == "ready"


@by_session_or_token
def test_an_ended_entry_is_reported_as_ended(api: Api, concert: events.EventView, ann: User, sign_in: Way) -> None:
    credentials = sign_in(api, ann)
    api.post(QUEUE, **credentials)
    QueueEntry.objects.update(status="left", ended_at=clock.now())
    assert api.get(f"{QUEUE}/status", **credentials).json()["status"] == "left"


def test_a_batch_of_known_sessions_takes_three_queries_and_an_invalid_identity_does_not_affect_the_others(
    concert: events.EventView, ann: User
) -> None:
    bob, browser = User.objects.create_user("bob@example.org"), Client()
    browser.force_login(bob)
    key = browser.cookies[settings.SESSION_COOKIE_NAME].value
    credentials = [
        async_caller.Credentials(session_key=key, event_id=concert.id, visitor_id='a "browser" of {mine}'),
        async_caller.Credentials(session_key="0" * 32),
        async_caller.Credentials(token="no token"),
        async_caller.Credentials(token=str(AccessToken.for_user(ann))),
        async_caller.Credentials(token=_token_for(10**30)),
        async_caller.Credentials(token=_token_for("x")),
        async_caller.Credentials(session_key=key),
    ]
    # The first time, the account of the new session is read by itself.
    for query_count in (4, 3):
        with CaptureQueriesContext(connection) as queries:
            found = reads.run(async_caller.authenticate_accounts(credentials))
        assert len(queries) == query_count
    assert [one and one.version.account_id for one in found] == [bob.pk, None, None, ann.pk, None, None, bob.pk]


def _token_for(account_id: Any) -> str:
    token = AccessToken()
    token["user_id"] = account_id
    return str(token)
