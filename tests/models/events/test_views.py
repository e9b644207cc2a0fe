"""Append, append again, count, count and be killed at any statement, in any order: after every step each view that was
appended is counted at most once, and in the end exactly once, as a recount from the log finds."""

import uuid
from contextlib import suppress
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from apps.events.interest import counts as view_counts
from apps.events.interest import recount
from apps.events.interest.log import SHARDS, View
from apps.events.models import ViewDay, ViewLog
from apps.kernel.db import sql
from tests.support import factories
from tests.support.events.views import append, count_all, counts, view

pytestmark = pytest.mark.django_db(transaction=True)

_numbers = count()


class Killed(BaseException):
    """The process ends."""


class Views(RuleBasedStateMachine):
    """Views of one event: each of a person of its own, so that all of them count."""

    def __init__(self) -> None:
        super().__init__()
        number = next(_numbers)
        self.event = factories.make_event(f"event-{number}", venue=f"Venue {number}")
        self.appended = 0
        self.last: tuple[uuid.UUID, list[View]] | None = None

    @rule(size=st.integers(1, 12))
    def append_batch(self, size: int) -> None:
        first = next(_numbers) * 1_000
        views = [view(self.event.id, first + one, first + one) for one in range(size)]
        self.last = uuid.uuid4(), views
        append(views, self.last[0])
        self.appended += size

    @rule()
    def append_the_last_batch_again(self) -> None:
        if self.last is not None:
            append(self.last[1], self.last[0])

    @rule(shard=st.integers(0, SHARDS - 1))
    def count_window(self, shard: int) -> None:
        view_counts.count_window(shard)

    @rule(shard=st.integers(0, SHARDS - 1), statement=st.integers(0, 14))
    def count_window_and_be_killed(self, shard: int, statement: int) -> None:
        left = statement

        def observe(name: str, when: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        with suppress(Killed), sql.observe(observe):
            view_counts.count_window(shard)

    @rule(statement=st.integers(0, 3))
    def append_and_be_killed(self, statement: int) -> None:
        left = statement

        def observe(name: str, when: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        number = next(_numbers) * 1_000
        with suppress(Killed), sql.observe(observe):
            append([view(self.event.id, number, number)])
        self.appended = ViewLog.objects.filter(event_id=self.event.id).count()

    @invariant()
    def counts_at_most_what_was_appended(self) -> None:
        assert ViewLog.objects.filter(event_id=self.event.id).count() == self.appended
        assert counts(self.event.id).get("counted", 0) <= self.appended
        assert counts(self.event.id).keys() <= {"counted"}

    def teardown(self) -> None:
        count_all()
        assert counts(self.event.id).get("counted", 0) == self.appended
        days = ViewDay.objects.filter(event_id=self.event.id).values_list("counted", flat=True)
        assert sum(days) == self.appended
        *_, (first, until) = recount.whole_hours(0)
        assert recount.recount(first - timedelta(hours=1), until) == []


def test_every_view_is_counted_once_whatever_is_killed() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Views, settings=settings(max_examples=12, stateful_step_count=20, derandomize=True, deadline=None)
    )
