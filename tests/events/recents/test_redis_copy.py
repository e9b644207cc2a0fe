"""The copy of recent searches in Redis is read only while it is that of the last commit, whatever happens to Redis and
to the outbox."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from redis import Redis

from apps.accounts.models import User
from apps.accounts.sessions import batch_authentication
from apps.events.models import RecentSearch, SearchHistory
from apps.events.recents import history, redis_copy
from apps.events.recents.owners import Owner, account_owner
from apps.kernel import redis
from apps.kernel.db import sql
from apps.kernel.fastpath.request import ForwardToSite
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from tests.support.api_client import Api
from tests.support.events.recent_reads import Reader, browser_cookies
from tests.support.orders.sale import deliver_outbox
from tests.support.own_redis import OwnRedis

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def reader() -> Iterator[Reader]:
    with Reader() as reader:
        yield reader


@pytest.fixture
def browser() -> tuple[Owner, dict[str, str]]:
    return browser_cookies()


def copy_of(owner: Owner) -> list[str]:
    """Return the copy in Redis without its header."""
    return [value.decode() for value in redis.client().lrange(owner.redis_key, 1, -1)]


def test_reads_come_from_postgresql_until_redis_has_followed(
    reader: Reader, browser: tuple[Owner, dict[str, str]]
) -> None:
    owner, cookies = browser
    history.record(owner, "jazz")
    deliver_outbox()
    assert (reader.searches(cookies), reader.ledger_reads) == (["jazz"], 0)
    history.record(owner, "opera")
    assert copy_of(owner) == ["jazz"]
    assert (reader.searches(cookies), reader.ledger_reads) == (["opera", "jazz"], 1)
    # The read has repaired the copy before the message was handled.
    assert copy_of(owner) == ["opera", "jazz"]
    assert (reader.searches(cookies), reader.ledger_reads) == (["opera", "jazz"], 1)
    deliver_outbox()
    assert copy_of(owner) == ["opera", "jazz"]
    assert 0 < redis.client().pttl(owner.redis_key) <= redis_copy.KEPT_DAYS * 86_400_000


def test_a_message_that_is_handled_late_or_twice_writes_the_present_state(
    browser: tuple[Owner, dict[str, str]],
) -> None:
    owner, _ = browser
    for text in ("jazz", "opera"):
        history.record(owner, text)
    first, second = outbox_messages()
    redis_copy.follow(second)
    redis_copy.follow(first)
    redis_copy.follow(first)
    assert copy_of(owner) == ["opera", "jazz"]


def outbox_messages() -> list[outbox.Message]:
    rows = OutboxMessage.objects.filter(topic=history.CHANGED).order_by("pk")
    return [
        outbox.Message(row.pk, row.topic, row.key, row.body, None, 1, row.created_at, row.available_at)  # type: ignore[arg-type]
        for row in rows
    ]


def test_the_script_keeps_a_newer_version_and_replaces_one_that_was_lost(browser: tuple[Owner, dict[str, str]]) -> None:
    owner, _ = browser
    client: Redis = redis.client()
    old = history.State("5.7.aa", (5, 7), history.Recents(("old",)))

    def keep(header: str, known: str = "") -> int:
        version = header.split(".")
        state = history.State(header, (int(version[0]), int(version[1])), history.Recents((header,)))
        return int(redis_copy._keep.run(client, [owner.redis_key], redis_copy.arguments(state, known)))

    redis_copy._keep.run(client, [owner.redis_key], redis_copy.arguments(old, ""))
    assert [keep("5.6.bb"), keep("4.9.bb"), copy_of(owner)] == [0, 0, ["old"]]
    assert [keep("5.7.cc"), keep("5.8.cc"), keep("6.1.cc"), copy_of(owner)] == [1, 1, 1, ["6.1.cc"]]
    assert [keep("5.9.dd", "6.0.other"), copy_of(owner)] == [0, ["6.1.cc"]], "another header than the lost one"
    assert [keep("5.9.dd", "6.1.cc"), copy_of(owner)] == [1, ["5.9.dd"]]


def test_a_restored_backup_is_read_although_redis_has_the_same_version_and_newer_ones(
    reader: Reader, browser: tuple[Owner, dict[str, str]]
) -> None:
    owner, cookies = browser
    history.record(owner, "jazz")
    backup = SearchHistory.objects.get(), list(RecentSearch.objects.all())
    for text in ("lost", "lost, too"):
        history.record(owner, text)
    deliver_outbox()
    SearchHistory.objects.all().delete()
    backup[0].save(force_insert=True)
    RecentSearch.objects.bulk_create(backup[1])
    history.record(owner, "opera")
    assert reader.searches(cookies) == ["opera", "jazz"]
    assert copy_of(owner) == ["opera", "jazz"]


def test_without_redis_all_works_and_a_redis_that_returns_empty_heals(
    settings: Any, reader: Reader, browser: tuple[Owner, dict[str, str]]
) -> None:
    owner, cookies = browser
    own = OwnRedis(settings)
    try:
        history.record(owner, "jazz")
        deliver_outbox()
        own.kill()
        history.record(owner, "opera")
        assert reader.searches(cookies) == ["opera", "jazz"]
        outbox.deliver()
        message = OutboxMessage.objects.filter(done_at=None, topic=history.CHANGED).get()
        assert "Redis is away" in message.last_error
        own.return_empty()
        with Reader() as another:  # With a connection of its own.
            assert another.searches(cookies) == ["opera", "jazz"]
            assert copy_of(owner) == ["opera", "jazz"]
            assert (another.searches(cookies), another.ledger_reads) == (["opera", "jazz"], 1)
    finally:
        own.end()
        redis.forget_outage()


def test_what_was_deleted_leaves_redis_too(reader: Reader, browser: tuple[Owner, dict[str, str]]) -> None:
    from apps.events.recents import personal_data

    ann = User.objects.create_user("ann@example.org")
    owner = account_owner(ann.pk)
    history.record(owner, "jazz")
    deliver_outbox()
    assert copy_of(owner) == ["jazz"]
    personal_data.erase_searches([ann.pk])
    deliver_outbox()
    assert not redis.client().exists(owner.redis_key)
    history.record(owner, "opera")
    history.switch(owner, is_on=False)
    deliver_outbox()
    assert copy_of(owner) == []


def test_an_account_is_read_by_its_session_and_an_ended_session_by_the_site(reader: Reader) -> None:
    ann = User.objects.create_user("ann@example.org")
    owner = account_owner(ann.pk)
    history.record(owner, "jazz")
    deliver_outbox()
    client = Client()
    client.force_login(ann)
    cookies = {name: morsel.value for name, morsel in client.cookies.items()}
    assert (reader.searches(cookies), reader.ledger_reads) == (["jazz"], 0)
    fast = Api(client, through_fast_path=True)
    assert fast.get("/search/recents").json() == Api(client).get("/search/recents").json()
    User.objects.update(is_active=False)
    response = fast.get("/search/recents")
    assert (response.status_code, response.json()["searches"]) == (200, [])


def test_a_known_session_is_read_in_one_round_trip_and_a_wrong_guess_of_its_account_is_corrected(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guess only says what to read early: the session itself decides whose searches these are."""
    ann, ben = (User.objects.create_user(name) for name in ("ann", "ben"))
    for user, text in ((ann, "jazz"), (ben, "opera")):
        history.record(account_owner(user.pk), text)
    deliver_outbox()
    client = Client()
    client.force_login(ann)
    cookies = {name: morsel.value for name, morsel in client.cookies.items()}
    session_key = cookies[settings.SESSION_COOKIE_NAME]
    batches = []
    execute_batch = sql.execute_batch
    monkeypatch.setattr(sql, "execute_batch", lambda *args: batches.append(1) or execute_batch(*args))
    for guess, trips in ((None, 2), (ann, 1), (ben, 2), (ann, 1)):
        if guess is not None:
            batch_authentication._session_accounts.remember(session_key, guess.pk)
        batches.clear()
        assert (reader.searches(cookies), len(batches)) == (["jazz"], trips)
    client.logout()
    with pytest.raises(ForwardToSite):
        reader.read(cookies)


def test_a_log_in_has_the_copy_written_in_the_background() -> None:
    ann = User.objects.create_user("ann@example.org", password="of course not")
    owner = account_owner(ann.pk)
    history.record(owner, "jazz")
    deliver_outbox()
    redis.client().flushall()
    Client().post("/accounts/log-in", {"username": ann.username, "password": "of course not"})
    deliver_outbox()
    assert copy_of(owner) == ["jazz"]
