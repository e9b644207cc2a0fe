"""A published event is changed by one service, which records the change, and refuses what would break a promise."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from apps.events import facade as events
from apps.events.creation import create_event
from apps.events.models import Event, EventChange, OnSale
from apps.events.public_plan import documents
from apps.events.revisions import service
from apps.events.revisions.proposal import Kind
from apps.kernel import clock
from apps.kernel.http import problems
from apps.queue.models import RoomAct
from apps.reservations.inventory import cache_invalidation
from tests.support.events.factories import in_days, spec
from tests.support.factories import make_event
from tests.support.queue.rooms import make_room

pytestmark = pytest.mark.django_db
BY = {"who": "ada", "why": "the singer is ill"}


def change(event: events.EventView, kind: str, **wanted: Any) -> EventChange:
    options = {name: wanted.pop(name) for name in ("message", "return_days", "seen") if name in wanted}
    change_id = service.change_event(event.id, kind, wanted, **BY, **{"return_days": 14, **options})
    return EventChange.objects.get(pk=change_id)


def refusal(event: events.EventView, kind: str, **wanted: Any) -> dict[str, str]:
    with pytest.raises(problems.Invalid) as refused:
        change(event, kind, **wanted)
    assert not EventChange.objects.exists()
    errors: dict[str, str] = refused.value.extra["errors"]
    return errors


def test_a_new_start_moves_doors_end_and_end_of_sales_by_the_same_time() -> None:
    starts_at = in_days(30)
    event = make_event(
        starts_at=starts_at, doors_at=starts_at - timedelta(hours=1), ends_at=starts_at + timedelta(hours=3),
        closes_at=starts_at - timedelta(hours=2),
    )  # fmt: skip
    made = change(event, Kind.SCHEDULE, starts_at=starts_at + timedelta(days=7), message="See you next week.")
    after = events.get_event_by_id(event.id)
    week = timedelta(days=7)
    assert (after.starts_at, after.doors_at, after.ends_at, after.policy.closes_at) == tuple(
        moment + week for moment in (starts_at, event.doors_at, event.ends_at, event.policy.closes_at) if moment
    )
    assert (made.who, made.why, made.message) == ("ada", "the singer is ill", "See you next week.")
    assert datetime.fromisoformat(made.before["starts_at"]) == starts_at
    assert datetime.fromisoformat(made.after["starts_at"]) == starts_at + week


def test_a_new_start_does_not_reopen_a_sale_that_has_ended() -> None:
    event = make_event(starts_at=in_days(30), opens_at=in_days(-2), closes_at=in_days(1))
    closed_at, starts_at = in_days(-1), in_days(37)
    OnSale.objects.filter(event_id=event.id).update(closes_at=closed_at)
    change(event, Kind.SCHEDULE, starts_at=starts_at)
    after = events.get_event_by_id(event.id)
    assert (after.starts_at, after.policy.closes_at) == (starts_at, closed_at)


def test_only_what_is_named_changes_and_a_change_to_the_same_values_is_none() -> None:
    event = make_event()
    assert service.change_event(event.id, Kind.LIMITS, {"hold_seconds": event.policy.hold_seconds}, **BY) is None
    change(event, Kind.LIMITS, hold_seconds=300)
    after = events.get_event_by_id(event.id).policy
    assert (after.hold_seconds, after.seats_per_reservation_max) == (300, event.policy.seats_per_reservation_max)


@pytest.mark.parametrize(
    ("kind", "name", "value", "text"),
    [
        (Kind.SCHEDULE, "starts_at", -1, "must be in the future"),
        (Kind.SCHEDULE, "doors_at", 31, "must not be after the start"),
        (Kind.SCHEDULE, "ends_at", 29, "must be after the start"),
        (Kind.ON_SALE, "opens_at", 31, "must be before the event starts"),
        (Kind.ON_SALE, "opens_at", 0, "must be more than a minute away, so that every process knows it in time"),
        (Kind.ON_SALE, "closes_at", 31, "must be after sales open, and not after the event starts"),
        (Kind.ON_SALE, "closes_at", -1, "must be in the future"),
        (Kind.ON_SALE, "presale_until", 20, "the event has no presale"),
        (Kind.LIMITS, "hold_seconds", None, "must be between 30 and 14,400"),
        (Kind.LIMITS, "per_buyer_max", 0.0, "must be between 1 and 1,000,000"),
        (Kind.FEES, "tax_rate", 10_001.0, "must be between 0 and 10,000"),
        (Kind.FEES, "opens_at", 1, "cannot be changed here"),
    ],
)
def test_what_contradicts_other_values_is_refused(kind: str, name: str, value: Any, text: str) -> None:
    event = make_event(starts_at=in_days(30), opens_at=in_days(10))
    wanted = in_days(value) if isinstance(value, int) else None if value is None else int(value)
    assert refusal(event, kind, **{name: wanted}) == {name: text}


def test_an_opening_that_is_over_or_near_or_promised_by_a_draw_is_not_moved() -> None:
    event = make_event("open")
    assert "opened already" in refusal(event, Kind.ON_SALE, opens_at=in_days(1))["opens_at"]
    event = make_event("near", opens_at=clock.now() + timedelta(seconds=30))
    assert "too late" in refusal(event, Kind.ON_SALE, opens_at=in_days(1))["opens_at"]
    room = events.WaitingRoomSettings(rate_per_second=5, active_max=50, lobby_opens_at=in_days(2))
    event = make_event("draw", opens_at=in_days(3), room=room)
    assert "commitment to the draw" in refusal(event, Kind.ON_SALE, opens_at=in_days(4))["opens_at"]
    assert change(event, Kind.SCHEDULE, starts_at=in_days(60)).kind == Kind.SCHEDULE


def test_a_moved_opening_is_among_the_public_acts_of_the_room() -> None:
    event = make_room(opens_at=in_days(2))
    opens_at = in_days(3)
    change(event, Kind.ON_SALE, opens_at=opens_at)
    act = RoomAct.objects.latest("id")
    assert (act.who, act.why) == ("ada", "the singer is ill")
    assert act.detail == f"on-sale: {clock.iso(event.policy.opens_at)} → {clock.iso(opens_at)}"
    assert events.get_event_by_id(event.id).policy.opens_at == opens_at


def test_a_presale_can_be_moved_until_it_is_over() -> None:
    event = make_event(opens_at=in_days(2), presale=events.Presale("account", in_days(3)))
    change(event, Kind.ON_SALE, presale_until=in_days(4))
    assert "enter a time" in _presale_refusal(event, None)
    OnSale.objects.update(opens_at=in_days(-2), presale_until=in_days(-1))
    assert "over" in _presale_refusal(event, in_days(5))


def _presale_refusal(event: events.EventView, until: Any) -> str:
    with pytest.raises(problems.Invalid) as refused:
        change(event, Kind.ON_SALE, presale_until=until)
    return str(refused.value.extra["errors"]["presale_until"])


def test_a_draft_and_a_canceled_event_are_not_changed_here() -> None:
    draft = events.get_event_by_id(create_event(spec(draft=True)).event_id)
    assert refusal(draft, Kind.LIMITS, hold_seconds=300) == {"event": "is not published"}
    Event.objects.update(status="canceled", published_at=clock.now())
    assert refusal(draft, Kind.LIMITS, hold_seconds=300) == {"event": "is not published"}


def test_a_change_needs_a_reason_and_a_new_start_needs_a_return_window() -> None:
    event = make_event()
    with pytest.raises(problems.Invalid, match=r"."):
        service.change_event(event.id, Kind.LIMITS, {"hold_seconds": 300}, who="ada", why=" ")
    assert "return_days" in refusal(event, Kind.SCHEDULE, starts_at=in_days(60), return_days=0)


def test_values_that_were_changed_since_the_user_saw_them_are_not_overwritten() -> None:
    event = make_event()
    seen = service.version(event, Kind.LIMITS)
    change(event, Kind.LIMITS, hold_seconds=300, seen=seen)
    with pytest.raises(service.EventChangedMeanwhile):
        change(event, Kind.LIMITS, hold_seconds=360, seen=seen)
    assert events.get_event_by_id(event.id).policy.hold_seconds == 300


def test_the_record_of_changes_is_append_only() -> None:
    made = change(make_event(), Kind.LIMITS, hold_seconds=300)
    for act in (made.delete, lambda: EventChange.objects.update(why="")):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            act()


def test_the_terms_of_each_time_are_found_in_the_record() -> None:
    event = make_event(per_buyer_max=6)
    times = []
    for cap, fee in ((4, 100), (None, 200)):
        change(event, Kind.LIMITS, per_buyer_max=cap)
        times.append(change(event, Kind.FEES, ticket_fee_minor=fee).effective_at)
    event = events.get_event_by_id(event.id)
    found = [events.terms_at(event, at) for at in (times[0] - timedelta(minutes=1), times[0], times[1])]
    assert [(terms.per_buyer_max, terms.price_policy.ticket_fee_minor) for terms in found] == [
        (6, 0), (4, 100), (None, 200),
    ]  # fmt: skip
    assert events.cap_since(event) is not None


def test_the_public_plan_and_pages_in_caches_follow_a_change_of_the_fees() -> None:
    event = make_event()
    cache_invalidation.publish_page_changes()
    before = json.loads(documents.plan_document(event.slug).body)["categories"][0]["full_price_minor"]
    change(event, Kind.FEES, ticket_fee_minor=250)
    assert json.loads(documents.plan_document(event.slug).body)["categories"][0]["full_price_minor"] == before + 250
    with connection.cursor() as cursor:
        assert cache_invalidation._changed_pages.rows(cursor, rest_seconds=-1, limit=9)
