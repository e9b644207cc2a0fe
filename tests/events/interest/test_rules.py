"""The rules by which a view counts: one test for each, and their changes."""

from apps.events.facade import EventView
from apps.events.interest import rules
from apps.events.interest.log import shard_of
from apps.events.models import ViewRule
from apps.kernel.db import transactions
from tests.support.events.views import count_all, counts, log, view

Kind = ViewRule.Kind


def change(kind: Kind, **values: object) -> None:
    rules.read_rules()
    with transactions.write():
        ViewRule.objects.filter(pk=kind).update(**values)
        rules.store_set()


def test_a_view_counts_from_ten_seconds_on(concert: EventView) -> None:
    log([(0, view(concert.id, 1, seconds=9)), (1, view(concert.id, 2, seconds=10))])
    count_all()
    assert counts(concert.id) == {"counted": 1, "short": 1}


def test_the_same_person_counts_again_only_after_five_minutes(concert: EventView) -> None:
    log([(0, view(concert.id)), (299, view(concert.id)), (300, view(concert.id, person=2)), (599, view(concert.id))])
    count_all()
    assert counts(concert.id) == {"counted": 3, "repeated": 1}


def test_a_view_that_was_too_short_does_not_make_the_next_one_a_repetition(concert: EventView) -> None:
    log([(0, view(concert.id, seconds=3)), (60, view(concert.id, seconds=60))])
    count_all()
    assert counts(concert.id) == {"short": 1, "counted": 1}


def test_the_same_person_counts_for_each_event(concert: EventView) -> None:
    log([(0, view(concert.id)), (1, view(concert.id + 1_000))])
    count_all()
    assert (counts(concert.id), counts(concert.id + 1_000)) == ({"counted": 1}, {"counted": 1})


def test_of_one_address_ten_views_a_minute_count(concert: EventView) -> None:
    first = [(number / 10, view(concert.id + number, person=number)) for number in range(12)]
    log([*first, (59.9, view(concert.id, person=100)), (60.0, view(concert.id, person=101))])
    count_all()
    eleventh = {"over_address_max": 1}
    assert [counts(concert.id + number) for number in (9, 10, 11)] == [{"counted": 1}, eleventh, eleventh]
    assert counts(concert.id) == {"counted": 2, "over_address_max": 1}, "by the minutes of the clock"


def test_refused_views_of_an_address_keep_no_other_from_counting(concert: EventView) -> None:
    """Also while they arrive all the time, as they do here for ten minutes: bots, short ones and the same person."""
    refused = [view(concert.id + 1, is_bot=True), view(concert.id + 1, seconds=1), view(concert.id + 1)]
    flood = [(float(second), refused[second % 3]) for second in range(600)]
    log([*flood, *((600 + number, view(concert.id, person=100 + number)) for number in range(12))])
    count_all()
    assert counts(concert.id) == {"counted": 10, "over_address_max": 2}
    assert counts(concert.id + 1) == {"counted": 1, "bots": 200, "short": 200, "repeated": 199}


def test_a_repetition_from_another_address_takes_none_of_the_ten_views(concert: EventView) -> None:
    change(Kind.ADDRESS_MAX, number=1)
    elsewhere = next(address for address in range(9, 100) if shard_of(address) == shard_of(8))
    log([(0, view(concert.id, address=elsewhere)), (250, view(concert.id))])
    count_all()
    log([(251, view(concert.id, person=2))])  # A window of its own, which has no view of the first person.
    count_all()
    assert counts(concert.id) == {"counted": 2, "repeated": 1}


def test_staff_of_the_events_organizer_do_not_count(concert: EventView) -> None:
    log([(0, view(concert.id, is_staff=True)), (1, view(concert.id, person=2))])
    count_all()
    assert counts(concert.id) == {"counted": 1, "staff": 1}


def test_listed_bots_do_not_count(concert: EventView) -> None:
    found = rules.read_rules()
    assert found.is_bot("Mozilla/5.0 (compatible; GoogleBot/2.1)")
    assert found.is_bot("")
    assert not found.is_bot("Mozilla/5.0 " + 600 * "x" + "GoogleBot"), "only the beginning is searched"
    assert not found.is_bot("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36")
    log([(0, view(concert.id, is_bot=True)), (1, view(concert.id, person=2))])
    count_all()
    assert counts(concert.id) == {"counted": 1, "bots": 1}


def test_a_rule_that_is_off_refuses_nothing(concert: EventView) -> None:
    for kind in (Kind.MIN_SECONDS, Kind.REPEAT_MINUTES, Kind.OWN_STAFF):
        change(kind, is_on=False)
    log([(0, view(concert.id)), (1, view(concert.id, seconds=0, is_staff=True))])
    count_all()
    assert counts(concert.id) == {"counted": 2}


def test_without_the_rules_about_addresses_and_bots_all_count(concert: EventView) -> None:
    change(Kind.ADDRESS_MAX, is_on=False)
    change(Kind.BOTS, is_on=False)
    assert not rules.read_rules().is_bot("Googlebot")
    log([(0, view(concert.id, person=number)) for number in range(12)])
    count_all()
    assert counts(concert.id) == {"counted": 12}


def test_a_view_is_judged_by_the_rules_under_which_it_was_logged(concert: EventView) -> None:
    before = view(concert.id, person=1, seconds=10)
    change(Kind.MIN_SECONDS, number=30)
    log([(0, before), (1, view(concert.id, person=2, seconds=10)), (2, view(concert.id, person=3, seconds=30))])
    count_all()
    assert counts(concert.id) == {"counted": 2, "short": 1}


def test_changed_rules_are_read_anew(concert: EventView) -> None:
    old = rules.read_rules()
    change(Kind.BOTS, words="evil\nEvil\n\nworse ")
    new = rules.read_rules()
    assert new.id > old.id
    assert new.bots == ("evil", "worse")
