"""A process keeps the plans that it has built or read, within bounds, so that an outage of Redis costs no processor."""

from typing import Any

import pytest

from apps.events import selectors
from apps.events.models import Category
from tests.support.factories import make_event
from tests.support.races import storm, values


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
    assert b"Front" in selectors.plan_document("concert"), "a changed plan is built again"
    assert builds == ["concert", "concert"]


@pytest.mark.django_db(transaction=True)
def test_requests_at_the_same_moment_build_a_plan_once(builds: Builds) -> None:
    make_event("concert")
    documents = values(storm(8, lambda _: selectors.plan_document("concert")))
    assert len(set(documents)) == 1
    assert builds == ["concert"]


@pytest.mark.django_db
def test_the_kept_plans_are_bounded_by_number_and_size(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    for slug in ("first", "second"):
        make_event(slug, venue=slug)
    size = len(selectors.plan_document("first"))
    monkeypatch.setattr(selectors, "PLAN_BYTES_MAX", size + 10)
    selectors.plan_document("second")
    assert [slug for slug, _ in selectors._plans._kept] == ["second"]
    selectors.plan_document("first")
    assert [slug for slug, _ in selectors._plans._kept] == ["first"]
