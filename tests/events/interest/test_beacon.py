"""The beacon of an event's page: what is accepted, what the log has of it, and what happens when PostgreSQL is slow."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.test import Client

from apps.accounts.models import User
from apps.events.facade import EventView
from apps.events.interest import async_views, identities, intake, log, rules
from apps.events.models import Membership, Organizer, Role, ViewKey, ViewLog, ViewShard
from apps.kernel.fastpath import cache
from apps.kernel.rate_limits import kinds
from tests.support import races
from tests.support.api_client import Api, assert_problem
from tests.support.events.views import append, view

pytestmark = pytest.mark.django_db(transaction=True)

VIEWS = "/events/concert/views"
BROWSER = {"user_agent": "Mozilla/5.0 Firefox/140.0"}
BODY = {"seconds": 12, "referrer": "www.Example.org"}


@pytest.fixture(autouse=True)
def own_intake(monkeypatch: pytest.MonkeyPatch) -> Iterator[intake.Intake]:
    cache.clear_all()
    made = intake.Intake(waiting_max=5)
    monkeypatch.setattr(intake, "intake", made)
    yield made
    log.known_days.clear()


def written(made: intake.Intake) -> list[ViewLog]:
    asyncio.run(made.write())
    return list(ViewLog.objects.order_by("at", "shard", "position"))


@pytest.mark.parametrize("through_fast_path", [True, False])
def test_a_view_is_accepted_and_logged_without_personal_data(
    concert: EventView, own_intake: intake.Intake, through_fast_path: bool
) -> None:
    api = Api(through_fast_path=through_fast_path)
    response = api.post(VIEWS, BODY, **BROWSER)
    assert (response.status_code, response.content) == (202, b"")
    assert response.headers["Cache-Control"] == "no-store"
    api.post(VIEWS, {"seconds": 30}, **BROWSER)
    one, two = written(own_intake)
    assert (one.event_id, one.seconds, one.referrer, one.is_bot, one.is_staff) == (
        concert.id,
        12,
        "example.org",
        False,
        False,
    )
    assert (two.person, two.address, two.referrer) == (one.person, one.address, "")
    assert {one.position, two.position} == {1, 2}
    stored = " ".join(str(value) for value in vars(one).values())
    assert "127.0.0.1" not in stored
    assert "Firefox" not in stored


def test_a_person_is_a_visitor_cookie_or_an_address_with_a_user_agent(
    concert: EventView, own_intake: intake.Intake
) -> None:
    api = Api(through_fast_path=True)
    api.post(VIEWS, BODY, **BROWSER)
    api.post(VIEWS, BODY, user_agent="another")
    ours = {"sec_fetch_site": "same-origin"}
    api.post(VIEWS, BODY, **BROWSER, **ours, cookie="visitor=abc:1")
    api.post(VIEWS, BODY, user_agent="another", **ours, cookie="a=1; visitor=abc:1")
    first, second, third, fourth = written(own_intake)
    assert len({first.person, second.person, third.person}) == 3
    assert fourth.person == third.person
    assert len({one.address for one in (first, second, third, fourth)}) == 1


def test_the_digests_of_two_days_differ_and_the_key_is_deleted(concert: EventView) -> None:
    day = identities.current_day()
    key = identities.read_key(day)
    assert identities.read_key(day) == key
    assert identities.read_key(day.replace(year=day.year - 1)) != key
    assert key.hex() not in ViewKey.objects.get(day=day).secret
    before = identities.person_digest(key, "", "192.0.2.1", "agent")
    ViewKey.objects.all().delete()
    assert identities.person_digest(identities.read_key(day), "", "192.0.2.1", "agent") != before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "seconds"),
        ({"seconds": -1}, "seconds"),
        ({"seconds": True}, "seconds"),
        ({"seconds": 1.5}, "seconds"),
        ({"seconds": 10**30}, "seconds"),
        ({"seconds": 10, "referrer": "a/b"}, "referrer"),
        ({"seconds": 10, "referrer": "a" * 254}, "referrer"),
        ({"seconds": 10, "referrer": None}, "referrer"),
        ({"seconds": 10, "person": "ann"}, "person"),
    ],
)
@pytest.mark.parametrize("through_fast_path", [True, False])
def test_a_wrong_report_is_refused(concert: EventView, body: Any, field: str, through_fast_path: bool) -> None:
    document = assert_problem(Api(through_fast_path=through_fast_path).post(VIEWS, body, **BROWSER), 422, "invalid")
    assert list(document["errors"]) == [field]


@pytest.mark.parametrize("through_fast_path", [True, False])
def test_an_unknown_event_and_a_list_are_refused(concert: EventView, through_fast_path: bool) -> None:
    api = Api(through_fast_path=through_fast_path)
    assert_problem(api.post("/events/nowhere/views", BODY), 404, "not-found")
    assert_problem(api.post(VIEWS, [1]), 422, "invalid")
    assert_problem(api.post(VIEWS, b"{", content_type="application/json"), 400, "malformed")


def test_a_known_event_is_accepted_without_a_statement(
    concert: EventView, own_intake: intake.Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake.terms, "fresh_seconds", rules.READ_SECONDS)
    api = Api(through_fast_path=True)
    assert api.post(VIEWS, BODY, **BROWSER).status_code == 202

    async def refuse(*args: Any) -> Any:
        raise AssertionError("the event was read")

    monkeypatch.setattr(async_views.event_views, "get_cached_event", refuse)
    monkeypatch.setattr(intake.terms, "get", refuse)
    assert api.post(VIEWS, BODY, **BROWSER).status_code == 202


def test_a_full_list_drops_views_and_counts_them(concert: EventView, own_intake: intake.Intake) -> None:
    api = Api(through_fast_path=True)
    dropped = intake._dropped._value.get()
    for _ in range(7):
        assert api.post(VIEWS, BODY, **BROWSER).status_code == 202
    assert intake._dropped._value.get() == dropped + 2
    assert len(written(own_intake)) == 5
    assert api.post(VIEWS, BODY, **BROWSER).status_code == 202
    assert len(written(own_intake)) == 6


def test_staff_of_the_events_organizer_are_marked_and_other_accounts_are_not(
    concert: EventView, own_intake: intake.Intake
) -> None:
    other = Organizer.objects.create(slug="other", name="Other")
    for name, organizer_id in (
        ("member", concert.organizer_id),
        ("stranger", other.pk),
        ("buyer", None),
        ("root", None),
    ):
        user = User.objects.create(username=name, is_superuser=name == "root")
        if organizer_id is not None:
            Membership.objects.create(user=user, organizer_id=organizer_id, role=Role.DOOR)
        client = Client(headers={"sec-fetch-site": "same-origin"})
        client.force_login(user)
        api = Api(client, through_fast_path=True)
        assert api.post(VIEWS, BODY, **BROWSER, sec_fetch_site="same-origin").status_code == 202
    assert [one.is_staff for one in written(own_intake)] == [True, False, False, True]


def test_a_batch_whose_answer_was_lost_is_not_written_twice(
    concert: EventView, own_intake: intake.Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append commits, its answer is lost; the views stay in the list and are submitted again."""
    Api(through_fast_path=True).post(VIEWS, BODY, **BROWSER)
    submit = log.appends.submit

    async def lose_answer(batch: log.Batch) -> int:
        await submit(batch)
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(log.appends, "submit", lose_answer)
    with pytest.raises(psycopg.OperationalError):
        asyncio.run(own_intake.write())
    monkeypatch.setattr(log.appends, "submit", submit)
    assert len(written(own_intake)) == 1
    assert ViewShard.objects.get().last_position == 1


def test_a_batch_is_appended_once_however_often_it_is_submitted_at_once(concert: EventView) -> None:
    batch_id, views = uuid.uuid4(), [view(concert.id, address=address) for address in range(20)]
    append([view(concert.id)])
    races.values(races.storm(4, lambda _: append(views, batch_id)))
    assert ViewLog.objects.count() == 21


def test_concurrent_appends_leave_no_gaps(concert: EventView) -> None:
    """Positions are assigned under the lock of the shard's end, sorted by shard: no gap, no double, no deadlock."""
    append([view(concert.id)])
    orders = [list(range(16)), list(range(15, -1, -1))]
    races.values(races.storm(6, lambda number: append([view(concert.id, address=a) for a in orders[number % 2]])))
    for shard in range(log.SHARDS):
        rows = list(ViewLog.objects.filter(shard=shard).order_by("position").values_list("position", "at"))
        assert [position for position, _ in rows] == list(range(1, len(rows) + 1))
        assert [at for _, at in rows] == sorted(at for _, at in rows)
    assert ViewLog.objects.count() == 1 + 6 * 16


def test_views_have_a_limit_of_their_own() -> None:
    assert kinds.kind_of("POST", "/api/events/concert/views") == "view"
    assert "view" in settings.RATE_LIMITS
