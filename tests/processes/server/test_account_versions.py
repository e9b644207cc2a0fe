"""A raised version of an account ends its admission tokens in every process of `web`, while Redis is unavailable."""

import contextlib
from http.client import HTTPConnection
from typing import Any

import pytest

from apps.accounts.models import User
from apps.accounts.tokens import versions
from apps.queue import facade as queue
from apps.queue.identity.caller import issue_admission_token
from tests.support.databases import database_url
from tests.support.factories import join_directly, make_event
from tests.support.own_redis import OwnRedis
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, wait_until, web
from ticketing.devserver.ports import free_port

REQUESTS = 20
"""Each on a connection of its own, so that both processes answer some of them."""


def statuses(served: Web, token: str) -> set[int]:
    found = set()
    for _ in range(REQUESTS):
        with contextlib.closing(HTTPConnection("127.0.0.1", served.port, timeout=WAIT_SECONDS_MAX)) as client:
            client.request("GET", "/api/events/concert/queue/status", headers={"authorization": f"Bearer {token}"})
            found.add(client.getresponse().status)
    return found


@pytest.mark.django_db(transaction=True)
def test_a_raised_version_ends_admission_tokens_in_every_process(own_redis: OwnRedis) -> None:
    event = make_event("concert")
    ann, bob = (User.objects.create_user(f"{name}@example.org") for name in ("ann", "bob"))
    tokens: list[Any] = []
    for user in (ann, bob):
        entry = join_directly(event, queue.Caller(account_id=user.pk))
        version = versions.AccountVersion(user.pk, user.token_version)
        tokens.append(issue_admission_token(entry.id, event.slug, entry.number, version))
    url = database_url()
    with web(
        free_port(), workers=2, DATABASE_URL=url, DATABASE_DIRECT_URL=url, REDIS_URL=own_redis.server.url
    ) as served:
        own_redis.kill()
        assert statuses(served, tokens[0]) == statuses(served, tokens[1]) == {200}
        versions.raise_version(ann)
        wait_until(lambda: statuses(served, tokens[0]) == {401}, "both processes refuse the token")
        assert statuses(served, tokens[1]) == {200}
