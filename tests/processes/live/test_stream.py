"""The three transports of live updates, on a server started as in the Procfile, with a relay."""

import http.client
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import websockets.exceptions
import websockets.sync.client

from apps.events import facade as events
from apps.queue.identity.caller import issue_admission_token
from apps.reservations import facade as reservations
from tests.processes.live.clients import Events, counts_in
from tests.processes.live.conftest import Relays
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def an_event(**spec: Any) -> events.EventView:
    """Create an event with a unique name: `web` caches events for seconds, and they are deleted with the test."""
    return make_event(f"event-{uuid.uuid4().hex[:12]}", **spec)


@pytest.fixture
def relay(relays: Relays) -> Callable[[], None]:
    return relays.start()


def ask(server: Web, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_SECONDS_MAX)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        body = response.read()
        return (
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            json.loads(body or b"null"),
        )
    finally:
        connection.close()


def test_all_listeners_receive_holds_and_releases(server: Web, relay: Any) -> None:
    event = an_event(general_admission=20)
    with Events(server.port, event.slug) as one, Events(server.port, event.slug) as other:
        one.until_counts({"hall": 50, "floor": 20})
        other.until_counts({"hall": 50, "floor": 20})
        view = hold(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3)
        one.until_counts({"hall": 48, "floor": 17})
        other.until_counts({"hall": 48, "floor": 17})
        reservations.release(view.id, who="test")
        one.until_counts({"hall": 50, "floor": 20})
        other.until_counts({"hall": 50, "floor": 20})
        assert one.head.lower().count(b"content-type: text/event-stream") == 1
        # On a busy machine the relay can be late; the stream then reports it, and polls counts until the relay is back.
        one.until(lambda each: each.last("state") == {"live": True}, "the stream is live")
        one.until(lambda each: "now_serving" in (each.last("queue") or {}), "the queue state is sent")
    assert_audit_clean()


def test_a_reconnecting_client_does_not_receive_again_what_it_has_read(server: Web, relay: Any) -> None:
    event = an_event()
    with Events(server.port, event.slug) as first:
        first.until_counts({"hall": 50})
        hold(event, seats=["hall-B-1"])
        first.until_counts({"hall": 49})
        read = next(each.id for each in reversed(first.received) if each.kind == "sections")
        assert read
    with Events(server.port, event.slug, Last_Event_ID=read) as again:
        again.until(lambda one: one.last("queue"), "a frame without an id")
        assert again.last("sections") is None
        hold(event, seats=["hall-A-1"])
        again.until_counts({"hall": 48})
    with Events(server.port, event.slug, Last_Event_ID="of-another-relay-7") as stranger:
        stranger.until_counts({"hall": 48})


def test_an_admitted_visitor_receives_all_seats_and_then_the_changes(server: Web, relay: Any) -> None:
    event = an_event()
    view = hold(event, seats=["hall-A-1"])
    entry = join(event)
    token = issue_admission_token(entry.id, event.slug, entry.number, None)
    with Events(server.port, event.slug, "?section=hall", Authorization=f"Bearer {token}") as one:
        first = one.until(lambda one: one.last("seats"), "the seats")
        assert first == {"section_id": "hall", "complete": True, "seats": {"hall-A-1": "held"}}
        hold(event, seats=["hall-B-1"])
        one.until(lambda one: one.last("seats") == {"section_id": "hall", "seats": {"hall-B-1": "held"}}, "B 1 held")
        reservations.release(view.id, who="test")
        freed = {"section_id": "hall", "seats": {"hall-A-1": "available"}}
        one.until(lambda one: one.last("seats") == freed, "A 1 free")


@pytest.mark.parametrize(
    ("query", "status", "type_"),
    [
        ("?section=hall", 401, "token-missing"),
        ("?reservation=00000000-0000-4000-8000-000000000001", 401, "token-missing"),
        ("?reservation=nonsense", 422, "invalid"),
        ("?reservation=%7B00000000-0000-4000-8000-000000000001%7D", 422, "invalid"),
        ("?order=00000000000040008000000000000001", 422, "invalid"),
        ("?order=", 422, "invalid"),
    ],
)
@pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
def test_restricted_updates_are_refused_by_each_transport(
    server: Web, relay: Any, query: str, status: int, type_: str, accept: str
) -> None:
    event = an_event()
    response = ask(server, f"/api/events/{event.slug}/sections/updates{query}", Accept=accept)
    assert (response[0], response[2]["type"]) == (status, type_)

    address = f"ws://127.0.0.1:{server.port}/api/events/{event.slug}/sections/updates{query}"
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        websockets.sync.client.connect(address)
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body)["type"] == type_


def test_a_waiting_visitor_receives_counts_but_no_seats(server: Web, relay: Any) -> None:
    event = an_event(room=events.WaitingRoomSettings(rate_per_second=1, active_max=1))
    ask(server, f"/api/events/{event.slug}/queue", "POST")  # The first visitor takes the only slot.
    status, _, response = ask(server, f"/api/events/{event.slug}/queue", "POST")
    assert (status, response["status"]) == (201, "waiting")
    bearer = f"Bearer {response['queue_token']}"
    path = f"/api/events/{event.slug}/sections/updates"
    status, _, refused = ask(server, f"{path}?section=hall", Accept="text/event-stream", Authorization=bearer)
    assert (status, refused["type"]) == (429, "not-admitted")
    with Events(server.port, event.slug, Authorization=bearer) as one:
        one.until_counts({"hall": 50})


def test_only_the_owner_of_a_reservation_receives_its_state(server: Web, relay: Any) -> None:
    event = an_event()
    entry, stranger = join(event), join(event)
    view = hold(event, entry, seats=["hall-A-1"])
    query = f"?reservation={view.id}"
    token = issue_admission_token(entry.id, event.slug, entry.number, None)
    other = issue_admission_token(stranger.id, event.slug, stranger.number, None)
    path = f"/api/events/{event.slug}/sections/updates{query}"
    assert ask(server, path, Accept="text/event-stream", Authorization=f"Bearer {other}")[2]["type"] == "not-owner"
    with Events(server.port, event.slug, query, Authorization=f"Bearer {token}") as one:
        assert one.until(lambda one: one.last("reservation"), "its state")["status"] == "pending_payment"
        reservations.release(view.id, who="test")
        one.until(lambda one: one.last("reservation")["status"] == "canceled", "it is released")


def test_a_poll_returns_the_same_frames_and_none_twice(server: Web, relay: Any) -> None:
    event = an_event()
    path = f"/api/events/{event.slug}/sections/updates"
    with Events(server.port, event.slug) as one:
        one.until_counts({"hall": 50})
        # Other frames of a new event may follow its counts.
        wait_until(lambda: ask(server, path, If_None_Match=ask(server, path)[1]["etag"])[0] == 304, "no frame followed")
        status, headers, response = ask(server, path, Accept="application/json")
        assert status == 200
        assert 3_000 <= response["next_poll"] < 4_000
        frames = {each["event"]: each for each in response["frames"]}
        assert counts_in(frames["sections"]["data"]) == {"hall": 50}
        assert ask(server, path, If_None_Match=headers["etag"])[0] == 304
        since = ask(server, f"{path}?since={frames['sections']['id']}")[2]
        assert "sections" not in {each["event"] for each in since["frames"]}
        hold(event, seats=["hall-A-1"])
        one.until_counts({"hall": 49})
        status, _, later = ask(server, path, If_None_Match=headers["etag"])
        assert status == 200
        changed = {each["event"]: each for each in later["frames"]}
        assert counts_in(changed["sections"]["data"]) == {"hall": 49}


def test_a_socket_receives_the_same_frames(server: Web, relay: Any) -> None:
    event = an_event()

    address = f"ws://127.0.0.1:{server.port}/api/events/{event.slug}/sections/updates"
    with websockets.sync.client.connect(address) as socket:
        _until_counts(socket, {"hall": 50})
        hold(event, seats=["hall-A-1"])
        _until_counts(socket, {"hall": 49})


def _until_counts(socket: Any, wanted: dict[str, int]) -> None:
    found = None
    while found != wanted:
        message = json.loads(socket.recv(WAIT_SECONDS_MAX))
        found = counts_in(message["data"]) if message["event"] == "sections" else found


def test_an_unknown_event_is_not_found_and_other_methods_are_forwarded_to_the_site(server: Web, relay: Any) -> None:
    event = an_event()
    assert ask(server, "/api/events/nowhere/sections/updates", Accept="text/event-stream")[0] == 404
    path = f"/api/events/{event.slug}/sections/updates"
    assert ask(server, path, "HEAD", Accept="text/event-stream")[0] == 200
    assert ask(server, path, "POST")[0] == 503, "the site has to answer, and it is not running"


def test_a_client_that_sends_more_is_disconnected_and_does_not_affect_others(server: Web, relay: Any) -> None:
    event = an_event()
    with Events(server.port, event.slug) as speaker, Events(server.port, event.slug) as listener:
        speaker.until_counts({"hall": 50})
        listener.until_counts({"hall": 50})
        speaker.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        speaker.until_ended()
        hold(event, seats=["hall-A-1"])
        listener.until_counts({"hall": 49})


def test_counts_after_an_expiry_are_published_without_a_request(server: Web, relay: Any) -> None:
    event = an_event()
    view = hold(event, seats=["hall-A-1"])
    with Events(server.port, event.slug) as one:
        one.until_counts({"hall": 49})
        backdate_deadline(view.id)
        reservations.sweep_all(by="test")
        one.until_counts({"hall": 50})
