"""Creation and publication of events: all or nothing, and once, also if repeated or concurrent."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from apps.events import facade, publication, registries
from apps.events.creation import EventDiffers, GeneralAdmission, Outcome, create_event, event_creation
from apps.events.models import Category, Event, OnSale, Seat, SeatingPlan, Section, Venue
from apps.events.plans import PlanError
from apps.events.publication import EventRefused, publish_event
from apps.kernel.db import transactions
from tests.support.events.factories import block, encoded, in_days, make_event, plan, spec
from tests.support.races import in_another_connection, storm, values

pytestmark = pytest.mark.django_db


def _rows() -> tuple[int, ...]:
    return tuple(model.objects.count() for model in (Venue, SeatingPlan, Event, OnSale, Category, Section, Seat))


def test_a_created_event_is_published_with_its_sections_seats_and_prices() -> None:
    created = create_event(spec())
    event = facade.get_event("hamlet")
    assert (created.outcome, created.event_id) == (Outcome.PUBLISHED, event.id)
    sections = facade.list_sections(event.id)
    assert [(s.slug, s.kind, s.capacity) for s in sections] == [
        ("stalls", "reserved", 8),
        ("floor", "general_admission", 10),
    ]
    assert [price.price_minor for section in sections for price in section.prices] == [4500, 2000]
    seats = facade.section_seats(sections[0].id)
    assert [seat.guid for seat in seats[:5]] == [
        "Stalls-A-1", "Stalls-A-2", "Stalls-A-3", "Stalls-A-4", "Stalls-B-1",
    ]  # fmt: skip
    assert [seat.id for seat in seats] == facade.seat_ids_in_plan_order(event.id)


def test_a_draft_is_invisible_until_the_same_description_without_draft_publishes_it() -> None:
    drafted = spec(draft=True)
    assert create_event(drafted).outcome is Outcome.DRAFTED
    assert create_event(drafted).outcome is Outcome.UNCHANGED
    with pytest.raises(facade.EventNotFound):
        facade.get_event("hamlet")
    assert Seat.objects.count() == 0
    assert create_event(replace(drafted, draft=False)).outcome is Outcome.PUBLISHED
    assert Seat.objects.count() == 8
    with pytest.raises(EventDiffers, match="status is published, not draft"):
        create_event(drafted)


def test_an_identical_description_changes_nothing() -> None:
    description = spec()
    create_event(description)
    before = _rows(), Event.objects.values().get()
    assert create_event(description).outcome is Outcome.UNCHANGED
    assert (_rows(), Event.objects.values().get()) == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "Macbeth"}, "name is “Hamlet”, not “Macbeth”"),
        ({"venue": "New Theatre"}, "venue is “Old Theatre”, not “New Theatre”"),
        ({"city": "Elsinore"}, "city is “”, not “Elsinore”"),
        ({"timezone": "Europe/Copenhagen"}, "time zone is “UTC”, not “Europe/Copenhagen”"),
        ({"starts_at": datetime(2190, 1, 1, 20, tzinfo=UTC)}, "not 2190-01-01T20:00:00Z"),
        ({"doors_at": datetime(2030, 1, 1, tzinfo=UTC)}, "doors is none, not 2030-01-01T00:00:00Z"),
        ({"ends_at": datetime(2190, 1, 1, tzinfo=UTC)}, "ends is none, not 2190-01-01T00:00:00Z"),
        ({"currency": "EUR"}, "currency is USD, not EUR"),
        ({"prices": {"Stalls": 5000}}, "price of “Stalls” is 4500, not 5000"),
        ({"per_buyer_max": 4}, "per-buyer is none, not 4"),
        ({"hold_seconds": 90}, "hold-seconds is 600, not 90"),
        ({"payment_seconds": 30}, "payment-seconds is 180, not 30"),
        ({"seats_per_reservation_max": 4}, "seats-per-reservation is 8, not 4"),
        ({"opens_at": datetime(2030, 1, 1, tzinfo=UTC)}, "not 2030-01-01T00:00:00Z"),
        ({"closes_at": datetime(2190, 1, 1, tzinfo=UTC)}, "on-sale-ends is none, not 2190"),
        ({"description": "To be"}, "description is “”, not “To be”"),
        ({"general_admission": ()}, "general admission “Floor” is 10 at 2000, not none"),
        ({"general_admission": (GeneralAdmission("Floor", 11, 2000),)}, "“Floor” is 10 at 2000, not 11 at 2000"),
        ({"plan": encoded(plan([block("Stalls", 3, 4)]))}, "plan is "),
    ],
)
def test_a_description_with_another_value_is_refused_and_the_value_is_listed(change: dict, named: str) -> None:
    description = spec()
    create_event(description)
    before = _rows()
    with pytest.raises(EventDiffers) as refused:
        create_event(replace(description, **change))
    assert len(refused.value.differences) == 1
    assert named in refused.value.differences[0]
    assert _rows() == before


def test_every_difference_is_listed() -> None:
    description = spec()
    create_event(description)
    with pytest.raises(EventDiffers) as refused:
        create_event(replace(description, name="Macbeth", currency="EUR", per_buyer_max=1))
    assert len(refused.value.differences) == 3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"slug": "Ham let"}, "the slug"),
        ({"slug": "-hamlet"}, "the slug"),
        ({"slug": "h" * 81}, "the slug"),
        ({"slug": ""}, "the slug"),
        ({"name": " "}, "the name is empty"),
        ({"name": "Ham\x00let"}, "cannot be printed"),
        ({"name": "h" * 201}, "longer than 200"),
        ({"currency": "usd"}, "ISO 4217"),
        ({"currency": "ZZZ"}, "ISO 4217"),
        ({"currency": "XTS"}, "ISO 4217"),
        ({"timezone": "Mars/Olympus"}, "time zone"),
        ({"timezone": "../../etc/passwd"}, "time zone"),
        ({"plan": None, "prices": {}, "general_admission": ()}, "nothing to sell"),
        ({"prices": {}}, "no price for “Stalls”"),
        ({"prices": {"Stalls": 1, "Box": 2}}, "no category for the price of “Box”"),
        ({"prices": {"Stalls": -1}}, "the price of “Stalls” must be between 0 and"),
        ({"prices": {"Stalls": 10**12 + 1}}, "the price of “Stalls” must be between 0 and"),
        ({"general_admission": (GeneralAdmission("Floor", 0, 1),)}, "the capacity of “Floor”"),
        ({"general_admission": (GeneralAdmission("Floor", 10**9, 1),)}, "the capacity of “Floor”"),
        ({"general_admission": (GeneralAdmission("Floor", 1, -5),)}, "the price of “Floor”"),
        ({"general_admission": (GeneralAdmission("!!!", 1, 5),)}, "needs a letter or a digit"),
        ({"general_admission": (GeneralAdmission("STALLS!", 1, 5),)}, "the same id as section “Stalls”"),
        ({"general_admission": (GeneralAdmission("Floor", 1, 5), GeneralAdmission("floor", 1, 5))}, "the same id as"),
        ({"hold_seconds": 29}, "hold seconds must be between 30 and 14400"),
        ({"hold_seconds": 14_401}, "hold seconds"),
        ({"payment_seconds": 29}, "payment seconds must be between 30 and 3600"),
        ({"per_buyer_max": 0}, "seats per buyer"),
        ({"seats_per_reservation_max": 101}, "seats per reservation"),
        ({"starts_at": datetime(2020, 1, 1, tzinfo=UTC)}, "in the past"),
        ({"starts_at": datetime(9999, 12, 31, 23, 59, tzinfo=UTC)}, "after the year"),
        ({"doors_at": datetime(2190, 1, 1, tzinfo=UTC)}, "doors would open after the event starts"),
        ({"ends_at": datetime(2001, 1, 1, tzinfo=UTC)}, "the event must end after it starts"),
        ({"ends_at": datetime(9999, 12, 31, tzinfo=UTC)}, "before the year"),
        ({"opens_at": datetime(2190, 1, 1, tzinfo=UTC)}, "open after the event starts"),
        ({"closes_at": datetime(2001, 1, 1, tzinfo=UTC)}, "end before it opens"),
        ({"closes_at": datetime(2190, 1, 1, tzinfo=UTC)}, "end after the event starts"),
    ],
)
def test_an_invalid_description_is_refused_with_its_reason_and_nothing_is_written(change: dict, why: str) -> None:
    with pytest.raises(EventRefused) as refused:
        create_event(spec(**change))
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
    assert sum(_rows()) == 0


def test_a_bad_plan_leaves_nothing_behind() -> None:
    with pytest.raises(PlanError):
        create_event(spec(plan=encoded(plan([block("Stalls", 2, 4, category="Nowhere")]))))
    assert sum(_rows()) == 0


def test_a_time_without_an_offset_is_venue_local_time() -> None:
    event = make_event(starts_at=datetime(2190, 1, 15, 20, 0), timezone="America/New_York")
    assert event.starts_at == datetime(2190, 1, 16, 1, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "error"),
    [
        (datetime(2031, 3, 30, 2, 30), "2031-03-30 02:30 does not exist in Europe/Berlin"),
        (datetime(2031, 10, 26, 2, 30), "occurs twice in Europe/Berlin.*Enter 2031-10-26T02:30.02:00 for the first"),
    ],
)
def test_a_local_time_that_does_not_exist_or_occurs_twice_is_refused(moment: datetime, error: str) -> None:
    with pytest.raises(EventRefused, match=error):
        create_event(spec(starts_at=moment, timezone="Europe/Berlin"))


def test_an_existing_venue_is_reused_and_keeps_its_city_when_none_is_given() -> None:
    make_event(city="Elsinore", timezone="Europe/Copenhagen")
    other = make_event("macbeth")
    assert Venue.objects.count() == 1
    assert (other.venue.city, other.venue.timezone) == ("Elsinore", "Europe/Copenhagen")
    with pytest.raises(EventRefused, match="city is “Elsinore”, not “Glamis”"):
        create_event(spec("lear", city="Glamis"))


def test_venues_whose_names_give_the_same_slug_get_different_slugs() -> None:
    make_event(venue="Café")
    make_event("macbeth", venue="Cafe")
    assert sorted(Venue.objects.values_list("slug", flat=True)) == ["cafe", "cafe-2"]


def test_the_same_file_is_stored_as_one_plan_per_venue() -> None:
    first, second = make_event(), make_event("macbeth")
    assert first.plan_id == second.plan_id
    assert Seat.objects.filter(event=second).count() == 8


def test_publishing_twice_changes_nothing_and_listeners_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(registries, "_publish_listeners", [called.append])
    event_id = create_event(spec(draft=True)).event_id
    assert publish_event(event_id) is True
    before = _rows(), Event.objects.values().get()
    assert publish_event(event_id) is False
    assert (_rows(), Event.objects.values().get()) == before
    assert called == [event_id]


def test_a_failing_listener_rolls_back_the_whole_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(event_id: int) -> None:
        assert Seat.objects.filter(event_id=event_id).count() == 8, "the seats exist when the listeners run"
        raise RuntimeError("no stock today")

    monkeypatch.setattr(registries, "_publish_listeners", [refuse])
    with pytest.raises(RuntimeError, match="no stock today"):
        create_event(spec())
    assert sum(_rows()) == 0


def test_publishing_loads_all_seats_with_one_copy() -> None:
    few = create_event(spec(draft=True, plan=encoded(plan([block("Stalls", 2, 5)])))).event_id
    many = create_event(spec("big", draft=True, plan=encoded(plan([block("Stalls", 20, 100)])))).event_id
    with CaptureQueriesContext(connection) as small:
        publish_event(few)
    with CaptureQueriesContext(connection) as large:
        publish_event(many)
    assert len(small) == len(large)
    assert Seat.objects.filter(event_id=many).count() == 2000
    ids = facade.seat_ids_in_plan_order(many)
    in_order = Seat.objects.filter(event_id=many).order_by("section__position", "row_index", "place_index")
    assert list(in_order.values_list("id", flat=True)) == ids


@pytest.mark.django_db(transaction=True)
def test_of_eight_concurrent_publishers_one_publishes() -> None:
    """Eight publishers read a draft. The first to lock its row publishes; the others wait and find it published."""
    event_id = create_event(spec(draft=True)).event_id
    assert sorted(values(storm(8, lambda _: publish_event(event_id)))) == [False] * 7 + [True]
    assert Seat.objects.count() == 8


@pytest.mark.django_db(transaction=True)
def test_of_eight_concurrent_identical_descriptions_one_creates_the_event() -> None:
    """Venue, plan and event are new to all eight: without the creation lock seven would fail on a unique constraint."""
    description = spec()
    outcomes = [created.outcome for created in values(storm(8, lambda _: create_event(description)))]
    assert sorted(outcomes) == [Outcome.PUBLISHED] + [Outcome.UNCHANGED] * 7
    assert _rows() == (1, 1, 1, 1, 2, 2, 8)


@pytest.mark.django_db(transaction=True)
def test_different_events_created_concurrently_at_one_new_venue_all_succeed() -> None:
    starts = in_days(30)
    created = values(storm(6, lambda n: create_event(spec(f"night-{n}", starts_at=starts))))
    assert {entry.outcome for entry in created} == {Outcome.PUBLISHED}
    assert Venue.objects.count() == 1
    assert SeatingPlan.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_concurrent_publication_between_lookup_and_lock_is_noticed() -> None:
    """We describe the draft again to publish it; another process publishes it first and commits; we change nothing."""
    description = spec(draft=True)
    event_id = create_event(description).event_id
    assert in_another_connection(lambda: publish_event(event_id)) is True
    assert create_event(replace(description, draft=False)).outcome is Outcome.UNCHANGED
    assert Seat.objects.count() == 8


@pytest.mark.django_db(transaction=True)
def test_control_without_the_creation_lock_the_second_creator_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """We find no event with this slug; another process creates it and commits; our insert conflicts with its rows."""
    description, write, rivals = spec(), event_creation._write, [lambda: create_event(description)]

    def write_after_rival(*args: Any) -> Event:
        if rivals:
            in_another_connection(rivals.pop())
        return write(*args)

    monkeypatch.setattr(event_creation, "lock_creation", lambda: None)
    monkeypatch.setattr(event_creation, "_write", write_after_rival)
    with pytest.raises(IntegrityError):
        create_event(description)
    assert Event.objects.count() == 1, "the constraint still holds"


@pytest.mark.django_db(transaction=True)
def test_control_without_the_event_lock_the_second_publisher_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """We read a draft without its lock; another process publishes it and commits; our load conflicts with its
    sections."""
    event_id, load, rivals = create_event(spec(draft=True)).event_id, publication._write_seats, [publish_event]

    def load_after_rival(*args: Any) -> None:
        if rivals:
            rival = rivals.pop()
            in_another_connection(lambda: rival(event_id))
        load(*args)

    monkeypatch.setattr(publication, "lock_event", lambda pk: Event.objects.select_related("plan").get(pk=pk))
    monkeypatch.setattr(publication, "_write_seats", load_after_rival)
    with pytest.raises(IntegrityError) as broken:
        publish_event(event_id)
    assert transactions.violated_constraint(broken.value) == "section_slug_once_per_event"
    assert Seat.objects.count() == 8


def test_publishing_locks_the_event_before_it_writes_anything() -> None:
    event_id = create_event(spec(draft=True)).event_id
    with CaptureQueriesContext(connection) as queries:
        publish_event(event_id)
    statements = [query["sql"] for query in queries]
    lock = next(index for index, sql in enumerate(statements) if "FOR NO KEY UPDATE" in sql)
    first_write = next(index for index, sql in enumerate(statements) if sql.startswith(("INSERT", "UPDATE", "COPY")))
    assert lock < first_write
    assert not any("FOR UPDATE" in sql for sql in statements)


def test_a_description_can_require_access_codes_for_sections() -> None:
    def guarded() -> set[str]:
        return set(Section.objects.filter(needs_access_since__isnull=False).values_list("slug", flat=True))

    described = spec(needs_access=("stalls", "floor"))
    assert create_event(replace(described, draft=True)).outcome is Outcome.DRAFTED
    assert guarded() == {"floor"}, "the plan's sections are created at publication"
    assert create_event(replace(described, draft=True)).outcome is Outcome.UNCHANGED
    assert create_event(described).outcome is Outcome.PUBLISHED
    assert guarded() == {"stalls", "floor"}
    assert create_event(described).outcome is Outcome.UNCHANGED
    with pytest.raises(EventDiffers, match="needs-access is floor, stalls, not floor"):
        create_event(replace(described, needs_access=("floor",)))


def test_an_unknown_section_cannot_require_an_access_code() -> None:
    with pytest.raises(EventRefused, match="no section 'cellar' to require an access code for"):
        create_event(spec(needs_access=("cellar",)))
