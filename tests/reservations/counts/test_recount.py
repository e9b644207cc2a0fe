"""Only sections with changes are counted again, and no change is missed in any order of commits."""

from collections.abc import Iterable

import pytest

from apps.events import facade as events
from apps.reservations import facade as reservations
from apps.reservations.counts import recount as section_recount
from apps.reservations.counts.recount import Recount
from apps.reservations.inventory import availability
from apps.reservations.models import SeatInventory
from apps.reservations.staff import stock
from apps.reservations.staff.selection import Selection
from tests.support.factories import hold, make_event
from tests.support.races import rival_at

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Record which sections each count was of. A full count never happens merely because it is time."""
    calls: list[list[int]] = []

    def count(section_ids: Iterable[int]) -> dict[int, int]:
        calls.append(list(section_ids))
        return availability.free_counts(calls[-1])

    monkeypatch.setattr(section_recount, "free_counts", count)
    monkeypatch.setattr(section_recount, "FULL_COUNT_SECONDS", float("inf"))
    return calls


def started_recount(sections: list[int]) -> Recount:
    """A recounter that has counted everything and continues from here: no other transaction writes to this test's
    database. (Transactions of other tests on the same server might prevent it from knowing that.)"""
    recount = Recount()
    recount.free(sections)
    recount._start_positions = recount._last
    return recount


def test_only_sections_with_changes_are_counted_again(counted: list[list[int]]) -> None:
    event = make_event(general_admission=20)
    hall, floor = sections = [section.id for section in events.list_sections(event.id)]
    recount = started_recount(sections)
    assert recount.free(sections) == {hall: 50, floor: 20}

    def changes() -> tuple[dict[int, int], set[int]]:
        del counted[:]
        free = recount.free(sections)
        return free, {section for of_one in counted for section in of_one}

    view = hold(event, ga_section="floor", ga_quantity=3)
    free, again = changes()
    assert (free, again - {floor}) == ({hall: 50, floor: 17}, set())
    reservations.release(view.id, who="test")
    hold(event, seats=["hall-A-1"])
    assert changes()[0] == {hall: 49, floor: 20}
    stock.block_seats(event, Selection(section="hall", rows=("B",)), "house", who="ann", why="test")
    assert changes()[0] == {hall: 39, floor: 20}
    stock.resize(event, "floor", 30, who="ann", why="test")
    assert changes()[0] == {hall: 39, floor: 30}


def test_a_late_commit_is_counted_although_later_numbers_were_read(counted: list[list[int]]) -> None:
    event = make_event(general_admission=20)
    hall, floor = sections = [section.id for section in events.list_sections(event.id)]
    recount = started_recount(sections)

    def overtake() -> list[dict[int, int]]:
        hold(event, ga_section="floor", ga_quantity=3)
        return [recount.free(sections) for _ in range(3)]

    with rival_at("insert_transitions", "after", overtake) as rival:
        hold(event, seats=["hall-A-1"])
    assert rival.result == [{hall: 50, floor: 17}] * 3
    assert recount.free(sections) == {hall: 49, floor: 17}


def test_an_unrecorded_change_is_found_by_the_full_count(
    counted: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    event = make_event()
    (hall,) = sections = [section.id for section in events.list_sections(event.id)]
    recount = started_recount(sections)
    by_hand = SeatInventory.objects.filter(pk=SeatInventory.objects.earliest("pk").pk)
    by_hand.update(status=SeatInventory.Status.BLOCKED, blocked_for="house")
    monkeypatch.setattr(section_recount, "FULL_COUNT_SECONDS", 0.0)
    assert recount.free(sections) == {hall: 49}


def test_with_too_many_changes_everything_is_counted(counted: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_event(general_admission=20)
    hall, floor = sections = [section.id for section in events.list_sections(event.id)]
    recount = started_recount(sections)
    monkeypatch.setattr(section_recount, "CHANGES_MAX", 1)
    hold(event, ga_section="floor", ga_quantity=3)
    hold(event, seats=["hall-A-1"])
    del counted[:]
    assert recount.free(sections) == {hall: 49, floor: 17}
    assert counted == [sections]
    recount.forget()
    with monkeypatch.context() as broken:
        broken.setattr(section_recount, "free_counts", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            recount.free(sections)
    assert recount.free(sections) == {hall: 49, floor: 17}
