"""A process keeps the plans that it has built or read, within bounds, so that an outage of Redis costs no processor."""

import gzip
from typing import Any

import pytest
from django.test import Client

from apps.events import selectors
from apps.events.models import Category
from tests.support.factories import make_event
from tests.support.races import storm, values

PLAN = "/events/concert/plan.json"


class Builds(list[str]):
    """The slugs of the plans that were built."""


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Builds:
    """Count the plans that are built while Redis is away."""
    built, build = Builds(), selectors._plan

    def counted(slug: str) -> dict[str, Any]:
        built.append(slug)
        return build(slug)

    class Away:
        def get(self, key: str) -> None:
            return None

        def set(self, key: str, value: bytes, seconds: int) -> None:
            return None

    monkeypatch.setattr(selectors._plans, "fresh_seconds", 60.0)
    monkeypatch.setattr(selectors, "_plan", counted)
    monkeypatch.setattr(selectors, "cache", Away())
    return built


@pytest.mark.django_db
def test_without_redis_a_plan_is_built_once(builds: Builds) -> None:
    event = make_event("concert")
    documents = {selectors.plan_document("concert") for _ in range(5)}
    assert len(documents) == 1
    assert builds == ["concert"]
    Category.objects.filter(event=event.id).update(name="Front")
    assert b"Front" in selectors.plan_document("concert").body, "a changed plan is built again"
    assert builds == ["concert", "concert"]


@pytest.mark.django_db(transaction=True)
def test_requests_at_the_same_moment_build_a_plan_once(builds: Builds) -> None:
    make_event("concert")
    documents = values(storm(8, lambda _: selectors.plan_document("concert")))
    assert len(set(documents)) == 1
    assert builds == ["concert"]


@pytest.mark.django_db
@pytest.mark.parametrize("bound", ["number", "size"])
def test_the_kept_plans_are_bounded_and_the_oldest_is_removed(
    builds: Builds, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two large plans that did not fit together were built again for each request."""
    for slug in ("first", "other", "third"):
        make_event(slug, venue=slug)
    size = len(selectors.plan_document("first").compressed)
    if bound == "number":
        monkeypatch.setattr(selectors, "PLANS_MAX", 2)
    else:
        monkeypatch.setattr(selectors, "PLAN_BYTES_MAX", 2 * size + 20)
    for slug in ("other", "third", "other", "third"):
        selectors.plan_document(slug)
    assert builds == ["first", "other", "third"]
    assert {slug for slug, _ in selectors._plans._kept} == {"other", "third"}


@pytest.mark.django_db
def test_a_plan_is_compressed_once_for_all_requests(
    builds: Builds, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_event("concert")
    compressed: list[int] = []
    compress = gzip.compress

    def counted(data: bytes, *args: Any, **options: Any) -> bytes:
        compressed.append(len(data))
        return compress(data, *args, **options)

    def refused(*args: Any, **options: Any) -> bytes:
        raise AssertionError("the middleware compressed the plan of one request")

    monkeypatch.setattr(gzip, "compress", counted)
    monkeypatch.setattr("django.middleware.gzip.compress_string", refused)
    answers = [client.get(PLAN, headers={"Accept-Encoding": "br, gzip"}) for _ in range(3)]
    plain = client.get(PLAN, headers={"Accept-Encoding": "gzip;q=0"})
    assert compressed == [len(plain.content)]
    for accepted in ("gzip;q=0", "x-gzip", "identity", ""):
        answer = client.get(PLAN, headers={"Accept-Encoding": accepted})
        assert (answer.content, answer.headers.get("Content-Encoding")) == (plain.content, None)
    for answer in answers:
        assert gzip.decompress(answer.content) == plain.content
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["Content-Length"] == str(len(answer.content))
        assert answer.headers["ETag"] == f"W/{plain.headers['ETag']}"
        for name in ("Vary", "Cache-Control", "Content-Type"):
            assert answer.headers[name] == plain.headers[name]
    assert plain.headers["Vary"] == "Accept-Encoding"


@pytest.mark.django_db
@pytest.mark.parametrize("accepted", ["gzip", "identity"])
def test_the_etag_of_either_encoding_is_answered_with_304(client: Client, accepted: str) -> None:
    make_event("concert")
    first = client.get(PLAN, headers={"Accept-Encoding": accepted})
    for asked in ("gzip", "identity"):
        headers = {"Accept-Encoding": asked, "If-None-Match": first.headers["ETag"]}
        again = client.get(PLAN, headers=headers)
        assert (again.status_code, again.content, again.headers["Vary"]) == (304, b"", "Accept-Encoding")
        assert again.headers["ETag"].removeprefix("W/") == first.headers["ETag"].removeprefix("W/")
        assert again.headers["Cache-Control"] == first.headers["Cache-Control"]
