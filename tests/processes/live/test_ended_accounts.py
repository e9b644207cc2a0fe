"""A stream that an account opened ends with the account's sessions and tokens, also without Redis."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import websockets.exceptions
import websockets.sync.client
from django.test import Client

from apps.accounts.models import AccountSession, User
from apps.accounts.tokens import versions
from apps.accounts.tokens.account_tokens import AccessToken
from apps.events import facade as events
from apps.queue.identity.caller import issue_admission_token
from tests.processes.live.clients import Events
from tests.processes.live.conftest import Relays, serving
from tests.support.factories import hold, join, make_event
from tests.support.orders.sale import place_order
from tests.support.own_redis import OwnRedis
from tests.support.web_processes import WAIT_SECONDS_MAX, Web

pytestmark = pytest.mark.django_db(transaction=True)


class Scene:
    """An account's reservation and order, and the account's credentials."""

    def __init__(self) -> None:
        self.event: events.EventView = make_event(f"event-{uuid.uuid4().hex[:12]}")
        self.user = User.objects.create_user(f"{uuid.uuid4().hex}@example.org", password="a password of good length")
        entry = join(self.event, account_id=self.user.pk)
        reservation = hold(self.event, entry, seats=["hall-A-1"])
        self.query = f"?section=hall&reservation={reservation.id}&order={place_order(reservation).pk}"
        browser = Client()
        browser.force_login(self.user)
        browser.get("/accounts/")  # The first page records the session.
        version = versions.AccountVersion(self.user.pk, self.user.token_version)
        admission = issue_admission_token(entry.id, self.event.slug, entry.number, version)
        self.credentials = {
            "access token": {"Authorization": f"Bearer {AccessToken.for_user(self.user)}"},
            "admission token": {"Authorization": f"Bearer {admission}"},
            "session": {"Cookie": f"sessionid={browser.cookies['sessionid'].value}"},
        }


def logged_out_everywhere(user: User) -> None:
    versions.raise_version(user)


def changed_password(user: User) -> None:
    user.set_password("another of good length")
    user.save()


def deactivated(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def device_logged_out(user: User) -> None:
    """End the session of the scene from another one, by the page of the account."""
    other = Client(headers={"sec-fetch-site": "same-origin"})
    other.force_login(user)
    ended = AccountSession.objects.get(account=user)
    assert other.post(f"/accounts/sessions/{ended.pk}/log-out").status_code == 302
    assert other.get("/accounts/").status_code == 200


@pytest.mark.parametrize("credential", ["access token", "admission token", "session"])
@pytest.mark.parametrize("end", [logged_out_everywhere, device_logged_out, changed_password, deactivated])
def test_the_streams_of_an_account_end(
    server: Web, relays: Relays, credential: str, end: Callable[[User], None]
) -> None:
    relays.start()
    scene = Scene()
    sent = scene.credentials[credential]
    with Events(server.port, scene.event.slug, scene.query, **sent) as stream:
        stream.until(lambda one: one.last("order"), "the order")
        end(scene.user)
        stream.until_ended()
    with Events(server.port, scene.event.slug, scene.query, **sent) as again:
        again.until_ended()
        assert again.last("order") is None


def test_the_socket_of_an_account_ends(server: Web, relays: Relays) -> None:
    relays.start()
    scene = Scene()
    address = f"ws://127.0.0.1:{server.port}/api/events/{scene.event.slug}/sections/updates{scene.query}"
    own = websockets.Origin(f"http://127.0.0.1:{server.port}")
    sent = scene.credentials["access token"]
    with websockets.sync.client.connect(address, origin=own, additional_headers=sent) as socket:
        until(socket, "order")
        logged_out_everywhere(scene.user)
        with pytest.raises(websockets.exceptions.ConnectionClosed):
            until(socket, "never")


def until(socket: Any, kind: str) -> None:
    while json.loads(socket.recv(WAIT_SECONDS_MAX))["event"] != kind:
        pass


def test_streams_of_guests_and_of_other_accounts_stay(server: Web, relays: Relays) -> None:
    relays.start()
    scene, other = Scene(), Scene()
    with (
        Events(server.port, scene.event.slug, scene.query, **scene.credentials["access token"]) as ending,
        Events(server.port, other.event.slug, other.query, **other.credentials["access token"]) as staying,
        Events(server.port, scene.event.slug) as anonymous,
    ):
        for stream in (ending, staying):
            stream.until(lambda one: one.last("order"), "the order")
        logged_out_everywhere(scene.user)
        ending.until_ended()
        hold(other.event, seats=["hall-A-2"])
        staying.until_counts({"hall": 48})
        anonymous.until_counts({"hall": 49})
        assert not staying.has_ended
        assert not anonymous.has_ended


@pytest.fixture
def alone(own_redis: OwnRedis, transactional_db: None) -> Iterator[Web]:
    """A worker with a Redis of its own."""
    with serving(REDIS_URL=own_redis.server.url) as served:
        yield served


def test_the_streams_of_an_account_end_while_redis_is_away(alone: Web, own_redis: OwnRedis) -> None:
    scene = Scene()
    with Events(alone.port, scene.event.slug, scene.query, **scene.credentials["access token"]) as stream:
        stream.until(lambda one: one.last("order"), "the order")
        own_redis.kill()
        logged_out_everywhere(scene.user)
        stream.until_ended()
