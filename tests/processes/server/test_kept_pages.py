"""Shared pages in the memory of two processes of `web`, in front of the site in processes of its own."""

import contextlib
import gzip
from http.client import HTTPConnection
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.test import Client

from apps.accounts.models import User
from tests.processes.server.site_processes import site
from tests.support.databases import database_url
from tests.support.factories import make_event
from tests.support.own_redis import OwnRedis
from tests.support.web_processes import WAIT_SECONDS_MAX, Web, wait_until, web

REQUESTS = 20
"""Each on a connection of its own, so that both processes answer some of them."""
TOKEN = "token-of-the-metrics"
SHARED = ("/", "/events/concert/", "/events/concert/plan.json", "/api/events", "/static/css/fairgate.css")


def visit(served: Web, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    with contextlib.closing(HTTPConnection("127.0.0.1", served.port, timeout=WAIT_SECONDS_MAX)) as client:
        client.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = client.getresponse()
        body = answer.read()
        if answer.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}, body


def answers_from_memory(served: Web) -> float:
    """Return how many requests for pages were answered from memory, by the metrics."""
    status, _, body = visit(served, "/metrics", authorization=f"Bearer {TOKEN}")
    assert status == 200
    lines = [line for line in body.decode().splitlines() if line.startswith("fairgate_page_cache_answers_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'how="hit"' in line or 'how="stale"' in line)


@pytest.mark.django_db(transaction=True)
def test_every_process_shows_a_change_and_no_page_of_another_visitor(own_redis: OwnRedis) -> None:
    """A visitor with an account and reserved tickets is the first to see each page; then come strangers."""
    make_event("concert", name="The old name")
    shopper = Client()
    shopper.force_login(User.objects.create_user("ann@example.org"))
    url = database_url()
    environment: dict[str, Any] = {
        "DATABASE_URL": url, "DATABASE_DIRECT_URL": url, "REDIS_URL": own_redis.server.url, "METRICS_TOKEN": TOKEN,
        "SECRET_KEY": settings.SECRET_KEY,
    }  # fmt: skip
    with site(**environment) as port, web(port, workers=2, **environment) as served:
        own_redis.kill()
        cookie = f"sessionid={shopper.cookies['sessionid'].value}; signed_in=1"
        assert b"ann@example.org" in visit(served, "/accounts/", cookie=cookie)[2], "the account's own page"
        pages = {path: [visit(served, path, cookie=cookie) for _ in range(REQUESTS)] for path in SHARED}
        for path, answers in pages.items():
            answers += [visit(served, path, accept_encoding="gzip") for _ in range(REQUESTS)]
            assert {status for status, *_ in answers} == {200}
            assert not [headers for _, headers, _ in answers if "set-cookie" in headers]
            (body,) = {body for *_, body in answers}
            assert b"ann@example.org" not in body
            assert len({headers["x-request-id"] for _, headers, _ in answers}) == 2 * REQUESTS
        assert b"The old name" in pages["/events/concert/"][0][2]
        assert b"ann@example.org" in visit(served, "/accounts/", cookie=cookie)[2]
        assert visit(served, "/accounts/")[0] == 302

        with psycopg.connect(url) as editor:
            editor.execute("UPDATE events_event SET name = 'The new name'")

        def names() -> set[bool]:
            paths = ["/events/concert/", "/api/events"] * (REQUESTS // 2)
            return {b"The new name" in visit(served, path)[2] for path in paths}

        wait_until(lambda: names() == {True}, "both processes show the new name")
        wait_until(lambda: answers_from_memory(served) > len(SHARED) * REQUESTS, "the metrics are written")
