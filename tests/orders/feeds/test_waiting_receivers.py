"""Receives that wait for a message: in the event loop, and only with a key that may receive."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.request import ClientDisconnected, ForwardToSite, Request
from apps.kernel.fastpath.server_extensions import CLIENT, Client
from apps.orders.feeds import async_views
from apps.orders.feeds.async_views import waits
from apps.orders.models import FeedKey
from tests.support import factories
from tests.support.api_client import Api
from tests.support.event_loops import run_loop_once
from tests.support.orders.webhook_endpoints import make_feed_key

pytestmark = pytest.mark.django_db(transaction=True)
MESSAGE = {"messages": [{"id": "a", "body": 1}]}


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """A key of an organizer with the feed `jobs`."""
    monkeypatch.setattr(async_views, "LOOK_SECONDS", 0.01)
    organizer = factories.make_organizer("alpha", "Alpha")
    key, _ = make_feed_key(organizer=organizer, scopes=[str(scope) for scope in FeedKey.Scope])
    assert Api().call("PUT", "/feeds/jobs", {}, token=key).status_code == 201
    return key


async def receive(key: str, query: str = "wait_seconds=20", feed: str = "jobs", client: Client | None = None) -> str:
    """Return what becomes of the request."""
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": f"/api/feeds/{feed}/messages", "query_string": query.encode(),
        "scheme": "http", "headers": [(b"authorization", f"Bearer {key}".encode())], CLIENT: client or Client(),
    }  # fmt: skip
    try:
        await async_views.receive_messages(Request(scope), feed)
    except ForwardToSite:
        return "forwarded"
    except ClientDisconnected:
        return "disconnected"
    raise AssertionError("the site answers")


def with_waiting(
    act: Callable[[list["asyncio.Task[str]"]], Awaitable[None]], *receivers: Callable[[], Awaitable[str]]
) -> None:
    """Call `act` with the tasks of these receivers once all of them wait."""

    async def run() -> None:
        tasks = [asyncio.ensure_future(one()) for one in receivers]
        while waits._by_organizer.total() < len(receivers):
            await run_loop_once()
        await act(tasks)  # type: ignore[arg-type]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (waits._receivers, waits._by_organizer.total()) == ({}, 0)

    asyncio.run(run())


def test_a_receiver_waits_for_a_message_which_the_site_then_returns(key: str) -> None:
    async def send_and_wait(tasks: list["asyncio.Task[str]"]) -> None:
        assert not tasks[0].done()
        sent = await thread_pool.run_in_thread(lambda: Api().call("PUT", "/feeds/jobs/messages", MESSAGE, token=key))
        assert sent.status_code == 200
        assert await tasks[0] == "forwarded"

    with_waiting(send_and_wait, lambda: receive(key))
    answer = Api(through_fast_path=True).get("/feeds/jobs/messages?wait_seconds=20", token=key)
    assert [one["id"] for one in answer.json()["messages"]] == ["a"]


def test_as_many_receivers_are_woken_as_the_messages_need_and_those_first_that_came_first(key: str) -> None:
    async def wake(tasks: list["asyncio.Task[str]"]) -> None:
        (feed,) = waits._receivers
        waits._wake(feed, 2)
        assert [one.woken.done() for one in waits._receivers[feed]] == [False]
        assert await asyncio.gather(*tasks[:2]) == ["forwarded"] * 2
        assert not tasks[2].done()

    with_waiting(wake, *[lambda: receive(key, "n=1&wait_seconds=20")] * 3)


def test_a_wait_ends_with_its_time_its_connection_and_the_process(key: str) -> None:
    gone, ending = Client(), Client()

    async def end(tasks: list["asyncio.Task[str]"]) -> None:
        gone.has_disconnected = ending.is_ending = True
        assert await asyncio.gather(*tasks[:2]) == ["disconnected", "forwarded"], "nothing is received for no one"
        assert not tasks[2].done()
        waits._end(float("inf"))
        assert await tasks[2] == "forwarded"

    with_waiting(
        end, lambda: receive(key, client=gone), lambda: receive(key, client=ending), lambda: receive(key)
    )  # fmt: skip


def test_further_receivers_of_an_organizer_are_answered_at_once(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_views, "ORGANIZER_WAITING_MAX", 1)

    async def receive_another(tasks: list["asyncio.Task[str]"]) -> None:
        assert await receive(key) == "forwarded"
        assert not tasks[0].done()

    with_waiting(receive_another, lambda: receive(key))


def test_no_other_request_waits(key: str) -> None:
    organizer = FeedKey.objects.get().organizer
    sender, _ = make_feed_key(organizer=organizer, scopes=["feeds:send"])
    limited, row = make_feed_key(organizer=organizer, scopes=["feeds:receive"])
    FeedKey.objects.filter(pk=row.pk).update(feed="other")

    async def all_at_once() -> list[str]:
        wrong = [receive(one) for one in ("", "invented", sender, limited)]
        queries = [receive(key, query) for query in ("", "wait_seconds=0", "wait_seconds=21", "wait_seconds=1&n=x")]
        return await asyncio.wait_for(asyncio.gather(*wrong, *queries, receive(key, feed="unknown")), 10)

    assert asyncio.run(all_at_once()) == ["forwarded"] * 9
    Api().call("PUT", "/feeds/jobs/messages", MESSAGE, token=key)
    assert asyncio.run(asyncio.wait_for(receive(key), 10)) == "forwarded", "there is a message"
    assert Api().get("/feeds/jobs/messages?wait_seconds=21", token=key).status_code == 422
