"""POST, GET and DELETE of the caller's queue entry, as in the contract."""

from datetime import timedelta

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.accounts.tokens.account_tokens import AccessToken
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.tokens import jwt
from apps.queue.identity.caller import VISITOR_COOKIE, issue_queue_token
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import admission as room_admission
from tests.support import factories
from tests.support.api_client import Api, assert_problem
from tests.support.queue.rooms import make_room

QUEUE = "/events/concert/queue"
PLACE_FIELDS = {
    "status",
    "position_in_queue",
    "estimated_wait_time",
    "estimated_wait_range",
    "next_poll",
    "admission_token",
    "expires_at",
}
WAITING_FIELDS = {"tickets_left", "message", "rate_per_second", "number"}


def test_joining_with_the_room_off_is_ready_at_once(api: Api, concert: events.EventView) -> None:
    response = api.post(QUEUE)
    place = response.json()
    assert response.status_code == 201
    assert response.headers["Cache-Control"] == "no-store"
    assert place.keys() == PLACE_FIELDS | {"queue_token"}
    assert place["status"] == "ready"
    assert place["position_in_queue"] == 0
    assert place["estimated_wait_time"] == 0
    assert place["estimated_wait_range"] == [0, 0]
    assert place["next_poll"] > 0
    assert place["expires_at"].endswith("Z")
    queue_token = jwt.verify(place["queue_token"], frozenset({"queue"}), "concert")
    admission = jwt.verify(place["admission_token"], frozenset({"admission"}), "concert")
    assert queue_token.subject == admission.subject == str(QueueEntry.objects.get().pk)


@pytest.mark.parametrize("kind", ["queue_token", "admission_token"])
def test_every_response_while_ready_contains_the_admission_token(
    api: Api, concert: events.EventView, kind: str
) -> None:
    token = api.join("concert")[kind]
    for _ in range(2):
        response = api.get(f"{QUEUE}/status", token=token)
        assert response.status_code == 200
        assert response.json().keys() == PLACE_FIELDS
        assert response.headers["Cache-Control"] == "no-store"


def test_a_join_without_an_identity_creates_a_new_visitor(api: Api, concert: events.EventView) -> None:
    api.post(QUEUE)
    api.post(QUEUE, {})
    api.post(QUEUE, {"visitor_id": None})
    assert list(QueueEntry.objects.values_list("number", flat=True)) == [1, 2, 3]


def test_joining_again_returns_the_same_entry(api: Api, concert: events.EventView) -> None:
    first = api.join("concert", visitor_id="a-browser-of-mine")
    api.join("concert", visitor_id="a-browser-of-mine")
    assert api.post(QUEUE, token=first["queue_token"]).status_code == 201
    assert api.post(QUEUE, {"visitor_id": "another-one"}, token=first["admission_token"]).status_code == 201
    assert QueueEntry.objects.count() == 1


def test_a_signed_in_user_needs_no_queue_token(api: Api, concert: events.EventView) -> None:
    user = User.objects.create_user("ann@example.org")
    access = str(AccessToken.for_user(user))
    joined = api.post(QUEUE, token=access)
    assert joined.status_code == 201
    assert "queue_token" not in joined.json()
    assert api.get(f"{QUEUE}/status", token=access).json()["status"] == "ready"
    api.post(QUEUE, {"visitor_id": "ignored-for-users"}, token=access)
    entry = QueueEntry.objects.get()
    assert (entry.account_id, entry.visitor_id) == (user.pk, "")


def test_a_session_is_an_identity_too(concert: events.EventView) -> None:
    user = User.objects.create_user("ann@example.org")
    client = Client(headers={"sec-fetch-site": "same-origin"})
    client.force_login(user)
    assert client.post(f"/api{QUEUE}", content_type="application/json").status_code == 201
    assert client.get(f"/api{QUEUE}/status").json()["status"] == "ready"
    assert QueueEntry.objects.get().account_id == user.pk


def test_the_browsers_cookie_is_an_identity_too(concert: events.EventView) -> None:
    client = Client(headers={"sec-fetch-site": "same-origin"})
    client.post("/events/concert/join", follow=True)
    assert VISITOR_COOKIE in client.cookies
    assert client.get(f"/api{QUEUE}/status").json()["status"] == "ready"
    assert client.post(f"/api{QUEUE}", {}, content_type="application/json").status_code == 201
    assert QueueEntry.objects.count() == 1


def test_a_cookie_with_a_wrong_signature_is_no_identity(api: Api, concert: events.EventView) -> None:
    api.client.cookies[VISITOR_COOKIE] = "a-browser-of-mine:1a2b3c:forged"
    assert_problem(api.get(f"{QUEUE}/status"), 401, "token-missing")


def test_leaving_ends_the_entry_and_joining_again_creates_a_new_one(api: Api, concert: events.EventView) -> None:
    place = api.join("concert", visitor_id="a-browser-of-mine")
    left = api.delete(QUEUE, token=place["queue_token"])
    assert left.status_code == 200
    assert left.json()["status"] == "left"
    assert "admission_token" not in left.json()
    assert api.delete(QUEUE, token=place["queue_token"]).json()["status"] == "left"
    assert api.get(f"{QUEUE}/status", token=place["queue_token"]).json()["status"] == "left"
    assert api.join("concert", visitor_id="a-browser-of-mine")["status"] == "ready"
    assert list(QueueEntry.objects.order_by("number").values_list("status", flat=True)) == ["left", "ready"]


def test_an_expired_admission_reads_as_expired_and_can_be_renewed(api: Api, concert: events.EventView) -> None:
    token = api.join("concert")["queue_token"]
    QueueEntry.objects.update(admission_expires_at=clock.now() - timedelta(seconds=1))
    status = api.get(f"{QUEUE}/status", token=token).json()
    assert status["status"] == "expired"
    assert status["position_in_queue"] == 0
    assert not status.keys() & {"admission_token", "expires_at"}
    assert api.post(QUEUE, token=token).json()["status"] == "ready"
    assert QueueEntry.objects.count() == 2


@pytest.mark.parametrize("status", ["waiting", "away"])
def test_a_waiting_visitor_gets_the_number_ahead_and_cannot_hold(
    api: Api, concert: events.EventView, status: str
) -> None:
    place = api.join("concert")
    QueueEntry.objects.update(status=status, number=7)
    WaitingRoom.objects.update(head=4, next_number=8)
    answer = api.get(f"{QUEUE}/status", token=place["queue_token"]).json()
    assert (answer["status"], answer["position_in_queue"]) == ("waiting", 3)
    assert not answer.keys() & {"admission_token", "expires_at"}
    for token in (place["queue_token"], place["admission_token"]):
        refused = api.post("/events/concert/reservations", {"seats": ["hall-A-1"]}, token=token, key="k")
        assert_problem(refused, 429, "not-admitted")


def test_a_waiting_visitor_gets_a_queue_token_and_at_the_turn_the_admission_token(api: Api, db: None) -> None:
    make_room(active=1)
    first = api.join("concert")
    place = api.join("concert")
    assert (first["status"], place["status"], place["position_in_queue"]) == ("ready", "waiting", 1)
    assert place.keys() == PLACE_FIELDS - {"admission_token", "expires_at"} | WAITING_FIELDS | {"queue_token"}
    token = place["queue_token"]
    refused = api.post("/events/concert/reservations", {"seats": ["hall-A-1"]}, token=token, key="k")
    assert_problem(refused, 429, "not-admitted")
    assert int(refused.headers["Retry-After"]) > 0
    assert api.get(f"{QUEUE}/status", token=token).json()["status"] == "waiting"
    WaitingRoom.objects.update(state="paused")
    assert api.get(f"{QUEUE}/status", token=token).json()["status"] == "paused"
    WaitingRoom.objects.update(state="open")
    api.delete(QUEUE, token=first["queue_token"])
    assert room_admission.tick(WaitingRoom.objects.get().event_id, 1) == 1
    ready = api.get(f"{QUEUE}/status", token=token).json()
    assert ready.keys() == PLACE_FIELDS
    assert (ready["status"], ready["position_in_queue"]) == ("ready", 0)
    held = api.post("/events/concert/reservations", {"seats": ["hall-A-1"]}, token=ready["admission_token"], key="k")
    assert held.status_code == 201


def test_a_drained_room_refuses_joins_and_informs_waiting_visitors(api: Api, db: None) -> None:
    make_room(active=1)
    api.join("concert")
    token = api.join("concert")["queue_token"]
    WaitingRoom.objects.update(state="drained")
    assert_problem(api.post(QUEUE), 409, "room-drained")
    answer = api.get(f"{QUEUE}/status", token=token).json()
    assert (answer["status"], answer["position_in_queue"]) == ("drained", 1)


def test_a_closed_room_gives_its_opening_time(api: Api, db: None) -> None:
    make_room(opens_at=clock.now() + timedelta(hours=1))
    assert "opens_at" in assert_problem(api.post(QUEUE), 409, "not-on-sale")


@pytest.mark.parametrize(("method", "path"), [("GET", f"{QUEUE}/status"), ("DELETE", QUEUE)])
def test_without_an_identity_the_status_is_refused(api: Api, concert: events.EventView, method: str, path: str) -> None:
    assert_problem(api.call(method, path), 401, "token-missing")


@pytest.mark.parametrize(("method", "path"), [("GET", f"{QUEUE}/status"), ("DELETE", QUEUE)])
def test_an_identity_without_an_entry_gets_not_found(
    api: Api, concert: events.EventView, method: str, path: str
) -> None:
    access = str(AccessToken.for_user(User.objects.create_user("ann@example.org")))
    assert_problem(api.call(method, path, token=access), 404, "not-found")


def test_a_token_of_another_event_is_refused(api: Api, concert: events.EventView) -> None:
    factories.make_event("opera")
    token = api.join("opera")["queue_token"]
    for response in (
        api.get(f"{QUEUE}/status", token=token),
        api.post(QUEUE, token=token),
        api.delete(QUEUE, token=token),
    ):
        assert_problem(response, 403, "token-wrong-event")


def test_an_expired_token_is_refused_as_such(api: Api, concert: events.EventView) -> None:
    entry = factories.join(concert)
    token = jwt.issue("queue", str(entry.id), timedelta(seconds=-1), "concert")
    assert_problem(api.get(f"{QUEUE}/status", token=token), 401, "token-expired")


def test_tokens_not_issued_by_this_site_are_refused(api: Api, concert: events.EventView) -> None:
    entry = factories.join(concert)
    good = issue_queue_token(entry.id, "concert", 1)
    head, body, signature = good.split(".")
    unsigned = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0"
    nested = "W" * 60_000
    for token in (
        "x",
        "a.b.c",
        f"{head}.{body}.",
        f"{unsigned}.{body}.",
        f"{head}.{body}.{signature[::-1]}",
        f"{nested}.{body}.{signature}",
        f"{head}.{nested}.{signature}",
        jwt.issue("order", str(entry.id), timedelta(hours=1), "concert"),
        jwt.issue("queue", "not-a-uuid", timedelta(hours=1), "concert"),
        jwt.issue("access", "1", timedelta(hours=1), "concert"),
        "ÿ.é.x",
    ):
        assert_problem(api.get(f"{QUEUE}/status", token=token), 401, "token-invalid")
    for header in ("Bearer", "Bearer ", good, f"Basic {good}", "Bearer a b"):
        assert_problem(api.get(f"{QUEUE}/status", authorization=header), 401, "token-invalid")


def test_the_token_of_a_deleted_entry_restores_nothing(api: Api, concert: events.EventView) -> None:
    token = api.join("concert")["queue_token"]
    QueueEntry.objects.all().delete()
    assert_problem(api.get(f"{QUEUE}/status", token=token), 404, "not-found")
    assert_problem(api.post(QUEUE, token=token), 401, "token-invalid")


@pytest.mark.parametrize(
    "body",
    [
        {"visitor_id": "short"},
        {"visitor_id": "x" * 65},
        {"visitor_id": "with a space"},
        {"visitor_id": "line-end-at-last\n"},
        {"visitor_id": 12345678},
        {"visitor_id": ["a-browser-of-mine"]},
        {"visitor_id": True},
        {"visitorid": "a-browser-of-mine"},
    ],
)
def test_an_invalid_join_names_its_field(api: Api, concert: events.EventView, body: dict[str, object]) -> None:
    document = assert_problem(api.post(QUEUE, body), 422, "invalid")
    assert document["errors"].keys() == body.keys()
    assert not QueueEntry.objects.exists()


def test_an_event_that_is_not_on_sale_cannot_be_joined(api: Api, db: None) -> None:
    opens_at = clock.now() + timedelta(hours=1)
    factories.make_event("later", opens_at=opens_at)
    document = assert_problem(api.post("/events/later/queue"), 409, "not-on-sale")
    assert "opens_at" in document
    factories.make_event("over")
    factories.close_sales("over")
    assert_problem(api.post("/events/over/queue"), 409, "not-on-sale")
    assert not QueueEntry.objects.exists()


def test_an_unknown_event_is_not_found(api: Api, db: None) -> None:
    assert_problem(api.post("/events/nowhere/queue"), 404, "not-found")
    assert_problem(api.get("/events/nowhere/queue/status"), 404, "not-found")
