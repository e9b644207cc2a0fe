"""Searches, deletions, log-ins and the off switch in any order, while messages are late or repeated and Redis is away,
emptied, or returns with an old save, and PostgreSQL is restored from a backup: each read is that of a plain list."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from django.test import Client
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from apps.accounts.models import User
from apps.events.models import RecentSearch, SearchHistory
from apps.events.recents import history, personal_data, redis_copy
from apps.events.recents.owners import Owner, account_owner
from apps.kernel import clock, redis
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from tests.support.events.recent_reads import Reader, browser_cookies

pytestmark = pytest.mark.django_db(transaction=True)

words = st.sampled_from(["jazz", "Jazz", "opera", *(f"act {number}" for number in range(12))])
owners = st.sampled_from(["account", "browser"])
_accounts = count()


@dataclass
class Model:
    """What one owner must read: plain lists, newest first."""

    searches: list[str] = field(default_factory=list)
    is_on: bool = True

    def search(self, text: str) -> None:
        if self.is_on:
            self.delete(text)
            self.searches = [text, *self.searches][: history.SEARCHES_MAX]

    def delete(self, text: str) -> None:
        self.searches = [one for one in self.searches if one.casefold() != text.casefold()]

    def copy(self) -> "Model":
        return Model(list(self.searches), self.is_on)


class RecentSearchMachine(RuleBasedStateMachine):
    """One account and one browser, each with its model."""

    def __init__(self) -> None:
        super().__init__()
        self.user = User.objects.create_user(f"ann-{next(_accounts)}@example.org")
        client = Client()
        client.force_login(self.user)
        browser, cookies = browser_cookies()
        self.owners: dict[str, Owner] = {"account": account_owner(self.user.pk), "browser": browser}
        self.cookies = {
            "account": {name: morsel.value for name, morsel in client.cookies.items()},
            "browser": cookies,
        }
        self.models = {"account": Model(), "browser": Model()}
        self.order: list[tuple[str, str]] = []
        """Searches that are in a list, newest first, over both owners."""
        self.reader = Reader()
        self.handled: list[outbox.Message] = []
        self.old_save: dict[str, list[Any]] = {}
        self.backup: Callable[[], None] = lambda: None

    def teardown(self) -> None:
        redis.forget_outage()
        OutboxMessage.objects.all().delete()
        self.reader.close()

    @rule(name=owners, text=words)
    def search(self, name: str, text: str) -> None:
        history.record(self.owners[name], text)
        self.models[name].search(text)
        self._note(name, text)

    def _note(self, name: str, text: str) -> None:
        self.order = [(name, text), *(one for one in self.order if one != (name, text))]

    @rule(name=owners, text=words)
    def delete(self, name: str, text: str) -> None:
        history.delete(self.owners[name], text)
        self.models[name].delete(text)

    @rule(name=owners)
    def clear(self, name: str) -> None:
        history.clear(self.owners[name])
        self.models[name].searches = []

    @rule(name=owners, is_on=st.booleans())
    def switch(self, name: str, is_on: bool) -> None:
        history.switch(self.owners[name], is_on=is_on)
        model = self.models[name]
        if model.is_on != is_on:
            self.models[name] = Model(is_on=is_on)

    @rule()
    def log_in(self) -> None:
        account, browser = self.models["account"], self.models["browser"]
        history.merge(self.owners["browser"], self.user.pk)
        moved = [text for name, text in self.order if name == "browser" and text in browser.searches]
        for name, text in reversed(self.order):
            if name == "account" and text in account.searches:
                account.search(text)
            elif name == "browser" and text in moved:
                account.search(text)
                self._rename(text)
        browser.searches = []

    def _rename(self, text: str) -> None:
        index = self.order.index(("browser", text))
        self.order = [one for one in self.order if one != ("account", text)]
        index = self.order.index(("browser", text))
        self.order[index] = ("account", text)

    @rule()
    def erase(self) -> None:
        personal_data.erase_searches([self.user.pk])
        self.models["account"] = Model()

    @rule(position=st.integers(0, 9))
    def handle_a_message(self, position: int) -> None:
        """In any order: `position` is counted among those that wait."""
        waiting = list(OutboxMessage.objects.filter(topic=history.CHANGED, done_at=None).order_by("pk"))
        if not waiting:
            return
        row = waiting[position % len(waiting)]
        message = outbox.Message(
            row.pk,
            row.topic,
            row.key,
            row.body,
            row.receipt,
            1,
            row.created_at,
            row.available_at,  # type: ignore[arg-type]
        )
        try:
            redis_copy.follow(message)
        except outbox.RetryLater:
            return
        OutboxMessage.objects.filter(pk=row.pk).update(done_at=clock.now())
        self.handled.append(message)

    @rule(position=st.integers(0, 9))
    def handle_a_message_again(self, position: int) -> None:
        if self.handled:
            try:
                redis_copy.follow(self.handled[-1 - position % len(self.handled)])
            except outbox.RetryLater:
                return

    @rule()
    def redis_is_away(self) -> None:
        redis._outage.paused_until = float("inf")

    @rule()
    def redis_is_back(self) -> None:
        redis.forget_outage()

    @rule()
    def redis_is_emptied(self) -> None:
        redis.client().flushall()

    @rule()
    def redis_is_saved(self) -> None:
        client = redis.client()
        self.old_save = {owner.redis_key: client.lrange(owner.redis_key, 0, -1) for owner in self.owners.values()}

    @rule()
    def redis_returns_with_its_save(self) -> None:
        client = redis.client()
        for key, values in self.old_save.items():
            client.delete(key)
            if values:
                client.rpush(key, *values)

    @rule()
    def postgresql_is_saved(self) -> None:
        names = [owner.name for owner in self.owners.values()]
        histories = list(SearchHistory.objects.filter(owner__in=names))
        rows = list(RecentSearch.objects.filter(history__in=histories))
        models, order = {name: model.copy() for name, model in self.models.items()}, list(self.order)

        def restore() -> None:
            SearchHistory.objects.filter(owner__in=names).delete()
            SearchHistory.objects.bulk_create(histories)
            RecentSearch.objects.bulk_create(rows)
            self.models = {name: model.copy() for name, model in models.items()}
            self.order = list(order)

        self.backup = restore

    @rule()
    def postgresql_is_restored(self) -> None:
        self.backup()

    @invariant()
    def reads_are_those_of_the_lists(self) -> None:
        for name, model in self.models.items():
            found = self.reader.read(self.cookies[name])
            assert (found["is_on"], [one["q"] for one in found["searches"]]) == (model.is_on, model.searches), name


def test_recent_searches_are_those_of_plain_lists() -> None:
    run_state_machine_as_test(
        RecentSearchMachine, settings=settings(max_examples=15, stateful_step_count=30, deadline=None)
    )
