"""Permissions of each transport: counts for all, seats for admitted visitors, reservations and orders for their
owner."""

import http.client
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import websockets.exceptions
import websockets.sync.client

from apps.events import facade as events
from apps.queue.identity.caller import issue_admission_token
from tests.processes.live.clients import Events
from tests.processes.live.conftest import Relays
from tests.support.factories import hold, join, make_event
from tests.support.orders.sale import place_order
from tests.support.web_processes import WAIT_SECONDS_MAX, Web

pytestmark = pytest.mark.django_db(transaction=True)

OK = 200
Transport = Callable[[Web, str, str, str], tuple[int, Any]]
"""Request a path with a token; return the status, and the problem type or the kinds of frames received up to the
wanted one."""


def path_of(slug: str, query: str) -> str:
    return f"/api/events/{slug}/sections/updates{query}"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def stream(server: Web, path: str, token: str, wanted: str) -> tuple[int, Any]:
    slug, _, query = path.removeprefix("/api/events/").partition("/sections/updates")
    refused = poll(server, path, token, wanted, accept="text/event-stream") if not wanted else None
    if refused is not None:
        return refused
    with Events(server.port, slug, query, **bearer(token)) as one:
        one.until(lambda one: one.last(wanted) is not None, wanted)
        return one.status, {each.kind for each in one.received}


def poll(server: Web, path: str, token: str, wanted: str, *, accept: str = "application/json") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_SECONDS_MAX)
    try:
        connection.request("GET", path, headers={"Accept": accept, **bearer(token)})
        response = connection.getresponse()
        document = json.loads(response.read())
        if response.status != OK:
            return response.status, document["type"]
        return response.status, {each["event"] for each in document["frames"]}
    finally:
        connection.close()


def socket(server: Web, path: str, token: str, wanted: str) -> tuple[int, Any]:
    address = f"ws://127.0.0.1:{server.port}{path}"
    own = websockets.Origin(f"http://127.0.0.1:{server.port}")
    try:
        with websockets.sync.client.connect(address, origin=own, additional_headers=bearer(token)) as opened:
            kinds: set[str] = set()
            while wanted not in kinds:
                kinds.add(json.loads(opened.recv(WAIT_SECONDS_MAX))["event"])
            return OK, kinds
    except websockets.exceptions.InvalidStatus as refused:
        return refused.response.status_code, json.loads(refused.response.body)["type"]


TRANSPORTS = [stream, poll, socket]


@dataclass
class Scene:
    """An event with a buyer role holds a seat and has an order for it, and with other visitors."""

    event: events.EventView
    tokens: dict[str, str]
    queries: dict[str, str]


@pytest.fixture
def scene(relays: Relays) -> Scene:
    relays.start()
    event, elsewhere = (make_event(f"event-{uuid.uuid4().hex[:12]}", venue=name) for name in ("here", "there"))
    owner, stranger, foreigner = join(event), join(event), join(elsewhere)
    reservation = hold(event, owner, seats=["hall-A-1"])
    order = place_order(reservation)
    return Scene(
        event,
        {
            "anonymous": "",
            "the owner": issue_admission_token(owner.id, event.slug, owner.number, None),
            "a stranger": issue_admission_token(stranger.id, event.slug, stranger.number, None),
            "one of another event": issue_admission_token(foreigner.id, elsewhere.slug, foreigner.number, None),
        },
        {
            "counts": "",
            "seats": "?section=hall",
            "no section": "?section=nowhere",
            "the reservation": f"?reservation={reservation.id}",
            "no reservation": f"?reservation={uuid.uuid4()}",
            "the order": f"?order={order.pk}",
            "no order": f"?order={uuid.uuid4()}",
            "all": f"?section=hall&reservation={reservation.id}&order={order.pk}",
        },
    )


PERMITTED = [
    *((role, "counts", "sections") for role in ("anonymous", "the owner", "a stranger")),
    ("the owner", "seats", "seats"),
    ("a stranger", "seats", "seats"),
    ("the owner", "the reservation", "reservation"),
    ("the owner", "the order", "order"),
    ("the owner", "all", "order"),
]
REFUSED = [
    ("anonymous", "seats", 401, "token-missing"),
    ("anonymous", "the reservation", 401, "token-missing"),
    ("anonymous", "the order", 401, "token-missing"),
    ("one of another event", "seats", 403, "token-wrong-event"),
    ("one of another event", "the reservation", 403, "token-wrong-event"),
    ("one of another event", "the order", 403, "token-wrong-event"),
    ("a stranger", "the reservation", 403, "not-owner"),
    ("a stranger", "the order", 403, "not-owner"),
    ("a stranger", "all", 403, "not-owner"),
    ("the owner", "no section", 404, "not-found"),
    ("the owner", "no reservation", 404, "not-found"),
    ("the owner", "no order", 404, "not-found"),
]
PUBLIC = {"sections", "queue", "state", "announcement"}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_each_transport_serves_permitted_callers_and_refuses_all_others(
    transport: Transport, server: Web, scene: Scene
) -> None:
    def ask(role: str, what: str, wanted: str) -> tuple[int, Any]:
        return transport(server, path_of(scene.event.slug, scene.queries[what]), scene.tokens[role], wanted)

    for role, what, wanted in PERMITTED:
        status, kinds = ask(role, what, wanted)
        assert status == OK, (role, what)
        assert wanted in kinds, (role, what)
        personal = {"counts": set(), "all": {"seats", "reservation", "order"}}.get(what, {wanted})
        assert kinds <= PUBLIC | personal, (role, what)
    for role, what, expected, kind in REFUSED:
        status, problem = ask(role, what, "")
        assert (status, problem) == (expected, kind), (role, what)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_waiting_visitor_receives_no_seats_over_any_transport(
    transport: Transport, server: Web, relays: Relays
) -> None:
    event = make_event(
        f"event-{uuid.uuid4().hex[:12]}", room=events.WaitingRoomSettings(rate_per_second=1, active_max=1)
    )
    tokens = []
    for _ in range(2):  # The first visitor takes the only slot.
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_SECONDS_MAX)
        connection.request("POST", f"/api/events/{event.slug}/queue")
        tokens.append(json.loads(connection.getresponse().read())["queue_token"])
        connection.close()
    status, problem = transport(server, path_of(event.slug, "?section=hall"), tokens[1], "")
    assert (status, problem) == (429, "not-admitted")
    status, kinds = transport(server, path_of(event.slug, ""), tokens[1], "sections")
    assert status == OK
    assert "seats" not in kinds
