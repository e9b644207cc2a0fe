"""The fast path answers statuses, counts and sold-out refusals synchronously and as the site does, and refuses no
winner."""

import asyncio
import json
from typing import Any

import pytest

from apps.kernel.fastpath import cache, redis_connection
from apps.kernel.http.compression import takes_gzip
from apps.queue.facade import EntryView
from apps.queue.identity.caller import issue_admission_token, issue_queue_token
from apps.reservations import facade
from tests.support.api_client import Api
from tests.support.connections import connection, request
from tests.support.factories import assert_audit_clean, join, make_event
from tests.support.queue.rooms import join_waiting_entries, make_room
from tests.support.queue.snapshots import keep_caches_fresh
from tests.support.reservations.gates import disable_expiry, open_gate
from ticketing.fastpath_routes import create_dispatcher

pytestmark = pytest.mark.django_db(transaction=True)
PLACE = {"ga_section": "floor", "ga_quantity": 1}


@pytest.fixture(autouse=True)
def _no_cache_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    disable_expiry(monkeypatch)
    keep_caches_fresh(monkeypatch)
    for each in cache.refreshing_caches():
        monkeypatch.setattr(each, "fresh_seconds", 3_600.0)


class Process:
    """A process's dispatcher, with its connection."""

    def __init__(self) -> None:
        self._dispatcher = create_dispatcher(self._forward)
        self.respond_sync = self._dispatcher.respond_sync

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._dispatcher(scope, receive, send)

    async def _forward(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(f"{scope['path']} belongs to the fast path")

    async def ask(self, *sent: str, body: Any = None, token: str = "", key: str = "") -> tuple[bool, int, Any]:
        """Return whether the request was answered without a task, the status and the document."""
        protocol, line = connection(self)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        content = b"" if body is None else json.dumps(body).encode()
        protocol.data_received(request(*sent, content, **headers, **({"Idempotency-Key": key} if key else {})))
        tasks_before = len(protocol.tasks)
        ((status, document),) = await line.answers(1)
        return not (tasks_before or protocol.tasks), status, document


def test_statuses_and_counts_are_answered_synchronously_as_on_the_site() -> None:
    event = make_room(active=1)
    waiting = join_waiting_entries(event, 3)[-1]
    token = issue_queue_token(waiting.id, event.slug, waiting.number)
    calls = [(f"/events/{event.slug}/queue/status", token), (f"/events/{event.slug}/sections", "")]
    site_documents = [Api().get(path, token=by).json() for path, by in calls]

    async def ask() -> None:
        process = Process()
        for (path, by), site_document in zip(calls, site_documents, strict=True):
            _, *first = await process.ask("GET", f"/api{path}", token=by)
            is_sync, *second = await process.ask("GET", f"/api{path}", token=by)
            assert is_sync, path
            for document in (first[1], second[1], site_document):
                document.pop("next_poll", None)  # It is random for each response.
            assert first == second == [200, site_document]

    asyncio.run(ask())


def test_sold_out_demand_is_refused_synchronously_and_never_to_a_buyer_who_holds() -> None:
    """The last ticket is held and the response lost: another buyer gets sold-out, the holder's retry the hold."""
    event = make_event(rows=0, general_admission=1)
    winner, late = join(event), join(event)
    held = facade.hold_one(event, winner, PLACE, "lost")
    open_gate(event)
    tokens = {entry.id: issue_admission_token(entry.id, event.slug, entry.number, None) for entry in (winner, late)}
    path = f"/events/{event.slug}/reservations"

    async def ask() -> None:
        process = Process()
        assert await redis_connection.shared.wait_until_connected()

        async def try_to_hold(
            entry: EntryView, key: str, body: Any = PLACE, spoiled: str = ""
        ) -> tuple[bool, int, Any]:
            return await process.ask("POST", f"/api{path}", body=body, token=tokens[entry.id] + spoiled, key=key)

        await try_to_hold(late, "before")  # From now on this process has cached the event.
        is_sync, status, refusal = await try_to_hold(late, "late")
        assert (is_sync, status, refusal["type"]) == (True, 409, "sold-out")
        is_sync, status, again = await try_to_hold(winner, "lost")
        assert (is_sync, status, again) == (True, held.status, json.loads(held.body))
        # Errors of the request itself come first, in the site's order.
        for call, wrong in (
            (try_to_hold(late, "", [], "x"), "token-invalid"),
            (try_to_hold(late, "", []), "idempotency-key-required"),
            (try_to_hold(late, "a-key", []), "invalid"),
        ):
            is_sync, _, refusal = await call
            assert (is_sync, refusal["type"]) == (True, wrong)

    asyncio.run(ask())
    by_site = Api().post(path, PLACE, token=tokens[late.id], key="late")
    assert (by_site.status_code, by_site.json()["type"]) == (409, "sold-out")
    assert_audit_clean()


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        (b"gzip, deflate, br", True),
        (b"br;q=1.0, GZIP;q=0.5, *;q=0.1", True),
        (b"gzip;q=0, identity", False),
        (b"gzip; q=0.000", False),
        (b"x-gzippo", False),
        (b"identity", False),
    ],
)
def test_counts_are_compressed_for_clients_that_accept_it(accepted: bytes, takes: bool) -> None:
    assert takes_gzip(accepted) is takes
