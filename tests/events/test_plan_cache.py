"""A process keeps the plans that it has built or read, within bounds, so that an outage of Redis costs no processor."""

import gzip
import json
from typing import Any

import pytest
from django.test import Client
from redis import Redis

from apps.events.models import Category, Seat
from apps.events.public_plan import documents
from apps.kernel.fastpath.cache import clear_all
from tests.support.factories import make_event
from tests.support.races import storm, values

PLAN = "/events/concert/plan.json"


class Builds(list[str]):
    """The slugs of the plans that were built."""


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Builds:
    """Count the plans that are built while Redis is away."""
    built, build = Builds(), documents._plan

    def counted(slug: str) -> dict[str, Any]:
        built.append(slug)
        return build(slug)

    class Away:
        def get(self, key: str) -> None:
            return None

        def set(self, key: str, value: bytes, seconds: int) -> None:
            return None

    monkeypatch.setattr(documents._plans, "fresh_seconds", 60.0)
    monkeypatch.setattr(documents, "_plan", counted)
    monkeypatch.setattr(documents, "cache", Away())
    return built


@pytest.mark.django_db
def test_without_redis_a_plan_is_built_once(builds: Builds) -> None:
    event = make_event("concert")
    found = {documents.plan_document("concert") for _ in range(5)}
    assert len(found) == 1
    assert builds == ["concert"]
    Category.objects.filter(event=event.id).update(name="Front")
    assert b"Front" in documents.plan_document("concert").body, "a changed plan is built again"
    assert builds == ["concert", "concert"]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of seats of the drawings that were made."""
    made: list[int] = []
    make = documents.encode_drawing

    def counted(*args: Any) -> bytes:
        made.append(len(args[-2]))
        return make(*args)

    monkeypatch.setattr(documents, "encode_drawing", counted)
    return made


def plan_now() -> dict[str, Any]:
    """Return the plan as another process would show it."""
    clear_all()
    return dict(json.loads(documents.plan_document("concert").body))


@pytest.mark.django_db
def test_a_change_of_a_price_draws_no_seat_again(redis_client: Redis, drawn: list[int]) -> None:
    event = make_event("concert", tiers={"Circle": 2_000}, tier_of={"hall-B": "Circle"})
    first = plan_now()
    Category.objects.filter(event=event.id).update(price_minor=1_234)
    second = plan_now()
    assert len(drawn) == 1
    assert {category["price_minor"] for category in second["categories"]} == {1_234}
    assert second["categories"] != first["categories"]
    assert {**second, "categories": first["categories"]} == first


@pytest.mark.django_db
@pytest.mark.parametrize("change", ["order", "category", "moved"])
def test_other_categories_and_moved_seats_are_drawn_again(redis_client: Redis, drawn: list[int], change: str) -> None:
    event = make_event("concert", tiers={"Circle": 2_000}, tier_of={"hall-B": "Circle"})
    plan_now()
    seat = Seat.objects.filter(event=event.id).order_by("id").first()
    assert seat is not None
    if change == "order":
        for category in Category.objects.filter(event=event.id):
            Category.objects.filter(pk=category.pk).update(position=10 - category.position)
    else:
        new = Category.objects.create(
            event_id=event.id, key="New", name="New", color="#123456", price_minor=5, position=9
        )
        if change == "moved":
            Seat.objects.filter(pk=seat.pk).update(category=new)
            seat.section.categories.add(new)
    shown = plan_now()
    assert len(drawn) == 2
    assert len(documents.cache.keys("events:drawing.gz:*")) == 1, "it replaces the former one"
    seat.refresh_from_db()
    assert shown["categories"][shown["seats"]["category"][0]]["key"] == seat.category.key


@pytest.mark.django_db
def test_a_damaged_drawing_is_made_again(redis_client: Redis, drawn: list[int]) -> None:
    make_event("concert")
    first = plan_now()
    (key,) = documents.cache.keys("events:drawing.gz:*")
    for damaged in (b"", b"not gzip", gzip.compress(b"{}"), gzip.compress(b"{")):
        documents.cache.set(key, damaged, 60)
        assert plan_now() == first
    assert len(drawn) == 5


@pytest.mark.django_db
def test_a_drawing_above_the_limit_is_not_kept_in_redis(
    redis_client: Redis, drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "DRAWING_BYTES_MAX", 100)
    make_event("concert")
    assert plan_now() == plan_now()
    assert len(drawn) == 2
    assert documents.cache.keys("events:drawing.gz:*") == []


@pytest.mark.django_db(transaction=True)
def test_requests_at_the_same_moment_build_a_plan_once(builds: Builds) -> None:
    make_event("concert")
    found = values(storm(8, lambda _: documents.plan_document("concert")))
    assert len(set(found)) == 1
    assert builds == ["concert"]


@pytest.mark.django_db
@pytest.mark.parametrize("bound", ["number", "size"])
def test_the_kept_plans_are_bounded_and_the_oldest_is_removed(
    builds: Builds, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two large plans that did not fit together were built again for each request."""
    for slug in ("first", "other", "third"):
        make_event(slug, venue=slug)
    size = len(documents.plan_document("first").compressed)
    if bound == "number":
        monkeypatch.setattr(documents, "PLANS_MAX", 2)
    else:
        monkeypatch.setattr(documents, "PLAN_BYTES_MAX", 2 * size + 20)
    for slug in ("other", "third", "other", "third"):
        documents.plan_document(slug)
    assert builds == ["first", "other", "third"]
    assert {slug for slug, _ in documents._plans._kept} == {"other", "third"}


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
    assert compressed[1:] == [len(plain.content)], "first its drawing, for all processes"
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
