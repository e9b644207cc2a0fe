"""Feeds and their messages, for tests."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Count, Sum
from django.db.models.functions import Length

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.feeds import facade as feeds
from apps.kernel.feeds.models import Feed, Message

OWNER, NAME = 7, "jobs"


def make_feed(name: str = NAME, owner: int = OWNER, **limits: int) -> Feed:
    with transactions.write():
        feeds.put_feed(owner, name, **limits)
    return Feed.objects.get(organizer_id=owner, name=name, deleted_at=None)


def new(message_id: str, key: str | None = None, body: Any = None) -> feeds.NewMessage:
    return feeds.NewMessage(message_id, key, json.dumps(body))


def send(*messages: feeds.NewMessage, name: str = NAME) -> list[feeds.SentMessage]:
    return feeds.send(OWNER, name, messages)


def receive(limit: int = 10, seconds: int = 600, name: str = NAME) -> list[feeds.ReceivedMessage]:
    return feeds.receive(OWNER, name, limit, seconds)


def ids(messages: Sequence[Any]) -> list[str]:
    return [one.id for one in messages]


def time_out() -> None:
    """End the visibility time-out of all messages in flight."""
    Message.objects.filter(state=Message.State.READY).update(visible_at=clock.now() - timedelta(seconds=1))


def assert_counts_are_exact() -> None:
    """The counts of every feed are those of its messages, and the first unfinished message of each key, and no other
    one, is ready."""
    for feed in Feed.objects.all():
        rows = Message.objects.filter(feed=feed)
        present = rows.exclude(state=Message.State.DELETED)
        # The test's bodies are ASCII, so characters are bytes.
        sums = present.aggregate(count=Count("pk"), size=Sum(Length("body")))
        ended = [rows.filter(state=state).count() for state in ("dead", "deleted")]
        found = [sums["count"], sums["size"] or 0, *ended]
        assert [feed.message_count, feed.byte_count, feed.dead_count, feed.deleted_count] == found
        seen = set()
        unfinished = rows.filter(state__in=["ready", "behind"]).order_by("sequence")
        for key, state in unfinished.values_list("key", "state"):
            assert (state == "behind") == (key is not None and key in seen), key
            seen.add(key)
