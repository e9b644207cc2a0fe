"""Two searches of one owner at once, and a log-in beside them."""

import pytest
from django.db import connection

from apps.accounts.models import User
from apps.events.models import RecentSearch, SearchHistory
from apps.events.recents import history
from apps.events.recents.owners import account_owner
from apps.kernel import clock
from tests.support.events.recent_reads import browser_cookies
from tests.support.races import rival_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


def test_control_without_the_lock_two_searches_get_the_same_version_and_one_is_lost() -> None:
    """A: SELECT version -> 1
    B: SELECT version -> 1; saves "b" as 2; COMMIT
    A: saves "a" as 2, and deletes what has another number: "b" is lost
    """
    owner, _ = browser_cookies()
    row = SearchHistory.objects.create(owner=owner.name, changed_at=clock.now())

    def record_naively(text: str) -> None:
        version = SearchHistory.objects.get(pk=row.pk).version
        if text == "a":
            _pause()
        SearchHistory.objects.filter(pk=row.pk).update(version=version + 1)
        RecentSearch.objects.filter(history=row, number=version + 1).delete()
        RecentSearch.objects.create(history=row, digest=text, text=text, number=version + 1, searched_at=clock.now())

    with rival_at("read_clock", "after", lambda: record_naively("b")):
        record_naively("a")
    assert history.read(owner).searches == ("a",)
    assert SearchHistory.objects.get().version == 2


def _pause() -> None:
    """Run a named statement, at which the rival is let in."""
    from apps.kernel.db import sql

    with connection.cursor() as cursor:
        sql.load("apps.kernel", "read_clock", prepared=True).rows(cursor)


def test_searches_at_the_same_time_are_all_in_the_list() -> None:
    """Also when the history is created by one of them."""
    owner, _ = browser_cookies()
    values(storm(8, lambda number: history.record(owner, f"act {number}")))
    assert sorted(history.read(owner).searches) == [f"act {number}" for number in range(8)]
    values(storm(6, lambda number: history.record(owner, f"more {number}")))
    assert len(history.read(owner).searches) == 10
    values(storm(6, lambda _: history.record(owner, "the same")))
    assert history.read(owner).searches.count("the same") == 1
    assert SearchHistory.objects.get().version == 20


def test_a_search_that_runs_beside_the_off_switch_is_not_saved_after_it() -> None:
    owner, _ = browser_cookies()
    history.record(owner, "jazz")

    def act(number: int) -> None:
        if number == 0:
            history.switch(owner, is_on=False)
        else:
            history.record(owner, f"act {number}")

    values(storm(6, act))
    assert history.read(owner) == history.Recents((), is_on=False)
    assert not RecentSearch.objects.exists()


def test_log_ins_of_one_browser_move_each_search_once_and_lose_none() -> None:
    """Two log-ins, searches of the browser and of the account: each search ends in one list."""
    ann = User.objects.create_user("ann@example.org")
    account, (browser, _) = account_owner(ann.pk), browser_cookies()
    history.record(browser, "before")

    def act(number: int) -> None:
        if number < 2:
            history.merge(browser, ann.pk)
        else:
            history.record(account if number % 2 else browser, f"act {number}")

    values(storm(6, act))
    both = [*history.read(account).searches, *history.read(browser).searches]
    assert sorted(both) == ["act 2", "act 3", "act 4", "act 5", "before"]
    history.merge(browser, ann.pk)
    assert sorted(history.read(account).searches) == ["act 2", "act 3", "act 4", "act 5", "before"]
