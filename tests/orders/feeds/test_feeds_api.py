"""Feeds over HTTP: an organizer's programs send, receive, delete and extend messages with keys that have scopes."""

import json
from typing import Any

import pytest
from django.test import Client

from apps.events.models import Role
from apps.kernel.feeds.models import Feed, Message
from apps.orders.models import FeedKey, FeedMessage
from tests.support import factories
from tests.support.api_client import assert_problem
from tests.support.kernel.feeds import time_out
from tests.support.orders.sale import SAME_ORIGIN, buy
from tests.support.orders.webhook_endpoints import make_feed_key

pytestmark = pytest.mark.django_db(transaction=True)
ALL = [str(scope) for scope in FeedKey.Scope]


class Program:
    """An organizer's program with a key."""

    def __init__(self, organizer: Any, *scopes: str) -> None:
        self.key, self.row = make_feed_key(organizer=organizer, scopes=list(scopes or ALL))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        return Client().generic(
            method,
            f"/api/feeds{path}",
            *([] if body is None else [_json(body), "application/json"]),
            headers={"Authorization": f"Bearer {self.key}"},
        )

    def send(self, *messages: dict[str, Any], feed: str = "jobs") -> Any:
        return self.call("PUT", f"/{feed}/messages", {"messages": list(messages)})

    def receive(self, query: str = "", feed: str = "jobs") -> list[dict[str, Any]]:
        return list(self.call("GET", f"/{feed}/messages{query}").json()["messages"])


def _json(body: Any) -> Any:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@pytest.fixture
def program() -> Program:
    one = Program(factories.make_organizer("alpha", "Alpha"))
    assert one.call("PUT", "/jobs", {"receives_max": 2}).status_code == 201
    return one


def test_a_message_goes_through_a_feed(program: Program) -> None:
    assert program.call("PUT", "/jobs", {"receives_max": 2}).status_code == 200
    body = {"text": "Grüße, 你好", "list": [1, 2.5, None], "big": 10**30}
    sent = program.send({"id": "a", "key": "k", "body": body}, {"id": "b", "key": "k", "body": None})
    assert sent.json()["messages"][0] == {"id": "a", "sequence": 1, "is_new": True}
    assert program.send({"id": "a", "key": "k", "body": body}).json()["messages"][0]["is_new"] is False
    (first,) = program.receive("?n=5&visibility_seconds=60")
    assert (first["id"], first["key"], first["body"], first["receives"]) == ("a", "k", body, 1)
    handle = f"/jobs/messages/{first['receipt_handle']}"
    extended = program.call("PATCH", handle, {"visibility_seconds": 3_600})
    assert extended.json()["visible_at"] > first["visible_at"]
    assert program.call("GET", "/jobs").json()["messages"] == 2
    time_out()
    assert program.receive()[0]["receives"] == 2
    assert_problem(program.call("DELETE", handle), 409, "receipt-outdated")
    time_out()
    assert [one["id"] for one in program.receive()] == ["b"]
    (dead,) = program.call("GET", "/jobs/dead-letters").json()["messages"]
    assert (dead["id"], dead["body"], dead["receives"]) == ("a", body, 2)
    assert program.call("GET", f"/jobs/dead-letters?after={dead['sequence']}").json() == {"messages": []}
    assert program.call("POST", "/jobs/dead-letters/redrive").json() == {"redriven": 1}
    assert [one["dead_letters"] for one in program.call("GET", "").json()["feeds"]] == [0]
    assert program.call("DELETE", "/jobs").status_code == 204
    assert_problem(program.call("GET", "/jobs"), 404, "not-found")


def test_a_list_is_deleted_in_one_call_which_names_what_was_not(program: Program) -> None:
    program.call("PUT", "/jobs", {})
    program.send(*({"id": name, "key": key, "body": 1} for name, key in (("a", "k"), ("b", "k"), ("c", None))))
    first, third = (one["receipt_handle"] for one in program.receive("?visibility_seconds=0"))
    (newest,) = (one["receipt_handle"] for one in program.receive() if one["id"] == "c")
    handles = [first, third, newest, first, "x", f"9{first[1:]}"]
    for _ in range(2):  # A repetition changes nothing.
        deleted = program.call("POST", "/jobs/deletions", {"receipt_handles": handles}).json()["messages"]
        assert [one["receipt_handle"] for one in deleted] == handles
        outcomes = ["receipt-outdated", "receipt-outdated", "deleted", "receipt-outdated", "not-found", "not-found"]
        assert [one["outcome"] for one in deleted] == outcomes
    time_out()
    (again,) = program.receive()
    handles = [again["receipt_handle"]] * 2
    program.call("POST", "/jobs/deletions", {"receipt_handles": handles})
    assert [one["id"] for one in program.receive()] == ["b"], "its key goes on"
    assert program.call("GET", "/jobs").json()["messages"] == 1
    for wrong in (
        {},
        {"receipt_handles": []},
        {"receipt_handles": [1]},
        {"receipt_handles": [""]},
        {"receipt_handles": ["x"] * 101},
    ):
        assert_problem(program.call("POST", "/jobs/deletions", wrong), 422, "invalid")


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("feeds:send", {"send", "state"}),
        ("feeds:receive", {"receive", "state", "delete", "deletions", "extend"}),
        ("feeds:manage", {"state", "list", "put", "dead", "redrive", "drop"}),
        ("orders:receive", {"orders"}),
    ],
)
def test_a_key_does_what_its_scopes_say(program: Program, scope: str, allowed: set[str]) -> None:
    program.send({"id": "a", "body": 1})
    (received,) = program.receive()
    other = Program(program.row.organizer, scope)
    handle = f"/jobs/messages/{received['receipt_handle']}"
    calls = {
        "send": lambda: other.send({"id": "b", "body": 1}),
        "receive": lambda: other.call("GET", "/jobs/messages"),
        "extend": lambda: other.call("PATCH", handle, {"visibility_seconds": 1}),
        "delete": lambda: other.call("DELETE", handle),
        "deletions": lambda: other.call("POST", "/jobs/deletions", {"receipt_handles": ["x"]}),
        "state": lambda: other.call("GET", "/jobs"),
        "list": lambda: other.call("GET", ""),
        "put": lambda: other.call("PUT", "/more", {}),
        "dead": lambda: other.call("GET", "/jobs/dead-letters"),
        "redrive": lambda: other.call("POST", "/jobs/dead-letters/redrive"),
        "drop": lambda: other.call("DELETE", "/jobs"),
        "orders": lambda: Client().get("/api/organizer/messages", headers={"Authorization": f"Bearer {other.key}"}),
    }
    answers = {name: call() for name, call in calls.items()}
    assert {name for name, answer in answers.items() if answer.status_code < 300} == allowed
    for name in answers.keys() - allowed:
        assert_problem(answers[name], 403, "scope-missing")
    other.row.revoked_at = other.row.created_at
    other.row.save()
    assert_problem(other.call("GET", "/jobs"), 401, "token-invalid")


def test_a_key_for_one_feed_is_refused_by_the_others(program: Program) -> None:
    program.call("PUT", "/other", {})
    limited = Program(program.row.organizer)
    limited.row.scopes, limited.row.feed = ALL[1:], "other"
    limited.row.save()
    assert limited.send({"id": "a", "body": 1}, feed="other").status_code == 200
    assert len(limited.receive(feed="other")) == 1
    assert [one["name"] for one in limited.call("GET", "").json()["feeds"]] == ["other"]
    for method, path, body in (
        ("PUT", "/jobs/messages", {"messages": [{"id": "a", "body": 1}]}),
        ("GET", "/jobs/messages", None),
        ("POST", "/jobs/deletions", {"receipt_handles": ["x"]}),
        ("DELETE", "/jobs/messages/x", None),
        ("GET", "/jobs", None),
        ("PUT", "/new", {}),
        ("DELETE", "/jobs", None),
        ("POST", "/jobs/dead-letters/redrive", None),
    ):
        assert_problem(limited.call(method, path, body), 403, "scope-missing")


def test_a_key_without_the_scope_of_orders_gets_no_messages_about_orders(program: Program) -> None:
    event = factories.make_event(organizer="alpha")
    program.row.scopes = ["feeds:send"]
    program.row.save()
    with_orders = Program(program.row.organizer, "orders:receive")
    buy(factories.hold(event, seats=["hall-A-1"]))
    assert set(_queued()) == {with_orders.row.pk}


def _queued() -> Any:
    return FeedMessage.objects.values_list("feed_key", flat=True)


def test_feeds_of_another_organizer_are_unknown(program: Program) -> None:
    program.send({"id": "a", "body": 1})
    (received,) = program.receive("?visibility_seconds=0")
    stranger = Program(factories.make_organizer("beta", "Beta"))
    handle = received["receipt_handle"]
    for method, path, body in (
        ("GET", "/jobs", None),
        ("DELETE", "/jobs", None),
        ("PUT", "/jobs/messages", {"messages": [{"id": "a", "body": 1}]}),
        ("GET", "/jobs/messages", None),
        ("DELETE", f"/jobs/messages/{handle}", None),
        ("PATCH", f"/jobs/messages/{handle}", {"visibility_seconds": 1}),
        ("GET", "/jobs/dead-letters", None),
        ("POST", "/jobs/dead-letters/redrive", None),
    ):
        assert_problem(stranger.call(method, path, body), 404, "not-found")
    # A feed of the same name is another one, and the handle is none of its.
    assert stranger.call("PUT", "/jobs", {}).status_code == 201
    assert stranger.receive() == []
    assert_problem(stranger.call("DELETE", f"/jobs/messages/{handle}"), 404, "not-found")
    assert [one["id"] for one in program.receive()] == ["a"]


@pytest.mark.parametrize(
    "body",
    [
        [], {}, {"messages": []}, {"messages": {}}, {"messages": [1]}, {"messages": [{}] * 11},
        {"messages": [{"id": "a"}]},
        {"messages": [{"id": "", "body": 1}]}, {"messages": [{"id": "a b", "body": 1}]},
        {"messages": [{"id": "ä", "body": 1}]}, {"messages": [{"id": "a\n", "body": 1}]},
        {"messages": [{"id": "a" * 129, "body": 1}]}, {"messages": [{"id": 1, "body": 1}]},
        {"messages": [{"id": "a", "key": "", "body": 1}]}, {"messages": [{"id": "a", "key": 1, "body": 1}]},
        {"messages": [{"id": "a", "key": "k" * 129, "body": 1}]}, {"messages": [{"id": "a", "body": 1, "extra": 1}]},
        {"messages": [{"id": "a", "body": "x" * 65_535}]}, {"messages": [{"id": "a", "body": 1}], "more": 1},
        {"messages": [{"id": "a", "body": 1}, {"id": "a", "body": 1}]},
        b'{"messages": [{"id": "a", "body": 1e999}]}', b'{"messages": [{"id": "a", "body": "\\u0000"}]}',
        b'{"messages": [{"id": "a", "body": {"\\ud800": 1}}]}',
    ],
)  # fmt: skip
def test_odd_messages_are_refused(program: Program, body: Any) -> None:
    assert_problem(program.call("PUT", "/jobs/messages", body), 422, "invalid")
    assert not Message.objects.exists()


def test_odd_parameters_are_refused(program: Program) -> None:
    assert program.send({"id": "~" * 128, "key": "🎫" * 128, "body": "x" * 65_534}).status_code == 200
    assert program.receive()[0]["key"] == "🎫" * 128
    for query in ("n=0", "n=11", "n=x", "n=²", "n=-1", "visibility_seconds=43201", "visibility_seconds=1.5", "n=%00"):
        assert_problem(program.call("GET", f"/jobs/messages?{query}"), 422, "invalid")
    for body in ({"visibility_seconds": -1}, {"visibility_seconds": True}, {"visibility_seconds": 1.0}, {}, []):
        assert_problem(program.call("PATCH", "/jobs/messages/1-0", body), 422, "invalid")
    for feed in ("Jobs", "a_b", "-a", "a" * 81):
        assert_problem(program.call("PUT", f"/{feed}", {}), 422, "invalid")
    for body in ({"retention_seconds": 59}, {"receives_max": 0}, {"receives_max": "3"}, {"name": "x"}):
        assert_problem(program.call("PUT", "/jobs", body), 422, "invalid")
    for handle in ("x", "1-0", "%F0%9F%8E%AB", "9" * 300):
        assert_problem(program.call("DELETE", f"/jobs/messages/{handle}"), 404, "not-found")
    assert_problem(program.call("PUT", "/jobs/messages", b"{"), 400, "malformed")
    assert_problem(program.call("GET", "/jobs/dead-letters?after=x"), 422, "invalid")


def test_an_organizer_has_a_limit_of_feeds(program: Program, settings: Any) -> None:
    settings.FEEDS_MAX = 2
    assert program.call("PUT", "/second", {}).status_code == 201
    assert_problem(program.call("PUT", "/third", {}), 409, "feeds-max")
    assert program.call("PUT", "/second", {"receives_max": 5}).status_code == 200
    settings.FEED_MESSAGES_MAX = 1
    refused = program.send({"id": "a", "body": 1}, {"id": "b", "body": 1})
    assert_problem(refused, 409, "feed-full")
    assert (refused.json()["limit"], refused.json()["max"]) == ("messages", 1)


def test_members_see_their_feeds_and_send_dead_letters_again(program: Program) -> None:
    program.send({"id": "broken-one", "body": 1}, {"id": "waits", "body": 1})
    for _ in range(2):
        program.receive("?n=1&visibility_seconds=0")
        time_out()
    assert [one["id"] for one in program.receive("?n=1")] == ["waits"]
    time_out()
    client = Client(headers=SAME_ORIGIN)
    client.force_login(factories.make_member(program.row.organizer, Role.ORGANIZER))
    page = client.get("/admin/feeds/feed/").content.decode()
    assert "jobs" in page
    assert "Alpha" in page
    feed = Feed.objects.get()
    assert "broken-one" in client.get(f"/admin/feeds/feed/{feed.pk}/change/").content.decode()
    client.post("/admin/feeds/feed/", {"action": "redrive", "_selected_action": [feed.pk]})
    feed.refresh_from_db()
    assert (feed.dead_count, feed.message_count) == (0, 2)
    client.force_login(factories.make_member(factories.make_organizer("beta", "Beta"), Role.ORGANIZER, "b@example.org"))
    assert "jobs" not in client.get("/admin/feeds/feed/").content.decode()


def test_a_key_for_feeds_needs_an_organizer(admin_user: Any) -> None:
    admin_client = Client(headers=SAME_ORIGIN)
    admin_client.force_login(admin_user)
    organizer = factories.make_organizer("alpha", "Alpha")
    form = {"name": "shop", "scopes": ["feeds:send"], "organizer": "", "event": ""}
    refused = admin_client.post("/admin/orders/feedkey/add/", form)
    assert "A key for feeds needs an organizer" in refused.content.decode()
    admin_client.post("/admin/orders/feedkey/add/", {**form, "organizer": organizer.pk})
    assert FeedKey.objects.get().scopes == ["feeds:send"]
