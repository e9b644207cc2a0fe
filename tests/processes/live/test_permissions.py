"""Who hears what, at each of the three doors: includes everyone, seats who may choose, what is owned its owner."""

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

HEARD = 200
SOCKET_REFUSED = 403
"""Whatever the reason: a browser is told of none."""
Door = Callable[[Web, str, str, str], tuple[int, Any]]
"""Asks for a path as the bearer of a token: the status, and the refusal's type or the kinds of frames that were heard
until the one came that is wanted."""


def path_of(slug: str, query: str) -> str:
    return f"/api/events/{slug}/sections/updates{query}"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def stream(house: Web, path: str, token: str, wanted: str) -> tuple[int, Any]:
    slug, _, query = path.removeprefix("/api/events/").partition("/sections/updates")
    refused = poll(house, path, token, wanted, accept="text/event-stream") if not wanted else None
    if refused is not None:
        return refused
    with Events(house.port, slug, query, **bearer(token)) as one:
        one.until(lambda one: one.last(wanted) is not None, wanted)
        return one.status, {each.kind for each in one.heard}


def poll(house: Web, path: str, token: str, wanted: str, *, accept: str = "application/json") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=WAIT_SECONDS_MAX)
    try:
        connection.request("GET", path, headers={"Accept": accept, **bearer(token)})
        answer = connection.getresponse()
        document = json.loads(answer.read())
        if answer.status != HEARD:
            return answer.status, document["type"]
        return answer.status, {each["event"] for each in document["frames"]}
    finally:
        connection.close()


def socket(house: Web, path: str, token: str, wanted: str) -> tuple[int, Any]:
    address = f"ws://127.0.0.1:{house.port}{path}"
    own = websockets.Origin(f"http://127.0.0.1:{house.port}")
    try:
        with websockets.sync.client.connect(address, origin=own, additional_headers=bearer(token)) as opened:
            heard: set[str] = set()
            while wanted not in heard:
                heard.add(json.loads(opened.recv(WAIT_SECONDS_MAX))["event"])
            return HEARD, heard
    except websockets.exceptions.InvalidStatus as refused:
        return refused.response.status_code, None


DOORS = [stream, poll, socket]


@dataclass
class Scene:
    """An event with somebody who holds a seat and has an order for it, and others."""

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
            "nobody": "",
            "the owner": issue_admission_token(owner.id, event.slug, owner.number),
            "a stranger": issue_admission_token(stranger.id, event.slug, stranger.number),
            "one of another event": issue_admission_token(foreigner.id, elsewhere.slug, foreigner.number),
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


HEARS = [
    *((who, "counts", "sections") for who in ("nobody", "the owner", "a stranger")),
    ("the owner", "seats", "seats"),
    ("a stranger", "seats", "seats"),
    ("the owner", "the reservation", "reservation"),
    ("the owner", "the order", "order"),
    ("the owner", "all", "order"),
]
REFUSED = [
    ("nobody", "seats", 401, "token-missing"),
    ("nobody", "the reservation", 401, "token-missing"),
    ("nobody", "the order", 401, "token-missing"),
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
OF_EVERYBODY = {"sections", "queue", "state", "announcement"}


@pytest.mark.parametrize("door", DOORS)
def test_each_door_tells_whom_it_may_and_refuses_all_others(door: Door, house: Web, scene: Scene) -> None:
    def ask(who: str, what: str, wanted: str) -> tuple[int, Any]:
        return door(house, path_of(scene.event.slug, scene.queries[what]), scene.tokens[who], wanted)

    for who, what, wanted in HEARS:
        status, kinds = ask(who, what, wanted)
        assert status == HEARD, (who, what)
        assert wanted in kinds, (who, what)
        personal = {"counts": set(), "all": {"seats", "reservation", "order"}}.get(what, {wanted})
        assert kinds <= OF_EVERYBODY | personal, (who, what)
    for who, what, expected, kind in REFUSED:
        status, said = ask(who, what, "")
        if door is socket:
            assert status == SOCKET_REFUSED, (who, what)
        else:
            assert (status, said) == (expected, kind), (who, what)


@pytest.mark.parametrize("door", DOORS)
def test_at_no_door_does_who_waits_see_seats(door: Door, house: Web, relays: Relays) -> None:
    event = make_event(
        f"event-{uuid.uuid4().hex[:12]}", room=events.WaitingRoomSettings(rate_per_second=1, active_max=1)
    )
    tokens = []
    for _ in range(2):  # Who comes first has the only slot.
        connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=WAIT_SECONDS_MAX)
        connection.request("POST", f"/api/events/{event.slug}/queue")
        tokens.append(json.loads(connection.getresponse().read())["queue_token"])
        connection.close()
    status, said = door(house, path_of(event.slug, "?section=hall"), tokens[1], "")
    assert (status, said) == ((SOCKET_REFUSED, None) if door is socket else (429, "not-admitted"))
    status, kinds = door(house, path_of(event.slug, ""), tokens[1], "sections")
    assert status == HEARD
    assert "seats" not in kinds
