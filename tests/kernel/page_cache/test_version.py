"""The version of the public pages in PostgreSQL."""

from datetime import timedelta

import psycopg
import pytest
from django.db import connection
from django.db.models import Max

from apps.events.facade import EventView
from apps.kernel import clock
from apps.kernel.models import PageChange
from apps.kernel.page_cache.version import KEPT_SECONDS, delete_old_changes, read_version
from tests.support.databases import database_url

TABLES = (
    "events_announcementfeed", "events_category", "events_event", "events_legalpage", "events_onsale",
    "events_organizer", "events_seat", "events_seatingplan", "events_section", "events_section_categories",
    "events_venue", "orders_returnpolicy",
)  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_a_change_of_each_table_that_pages_show_changes_the_version(concert: EventView) -> None:
    """By a statement that no code of ours made."""
    versions = [read_version()]
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"DELETE FROM {table} WHERE false")
            versions.append(read_version())
    assert len(set(versions)) == len(TABLES) + 1
    assert read_version() == versions[-1]


@pytest.mark.django_db(transaction=True)
def test_a_transaction_leaves_one_mark(concert: EventView) -> None:
    """A form with hundreds of prices left as many, which each process counts twice a second."""
    rename = "UPDATE events_event SET name = name"
    before = PageChange.objects.count()
    with psycopg.connect(database_url()) as writer:
        writer.execute("SAVEPOINT one")
        writer.execute(rename)
        writer.execute("ROLLBACK TO one")
        for _ in range(3):
            writer.execute(rename)
        writer.commit()
        assert PageChange.objects.count() == before + 1
        writer.execute(rename)
        writer.rollback()
        writer.execute(rename)
        writer.commit()
    assert PageChange.objects.count() == before + 2


@pytest.mark.django_db(transaction=True)
def test_a_change_that_commits_after_a_later_one_changes_the_version(concert: EventView) -> None:
    """first: notes its change | second: notes its change and commits | version is read | first: commits

    A process that compared the newest change would keep the page without the first one."""
    rename = "UPDATE events_event SET name = name"
    with psycopg.connect(database_url()) as first, psycopg.connect(database_url()) as second:
        before = read_version()
        first.execute(rename)
        assert read_version() == before, "a change that is not committed cannot be rendered yet"
        second.execute("UPDATE events_venue SET name = name")
        second.commit()
        between, newest = read_version(), PageChange.objects.aggregate(Max("id"))
        assert between != before
        first.commit()
    assert read_version() != between
    assert PageChange.objects.aggregate(Max("id")) == newest, "the control: the newest change is the same"


@pytest.mark.django_db
def test_old_marks_are_removed_and_new_ones_stay(concert: EventView) -> None:
    count = PageChange.objects.count()
    PageChange.objects.create(at=clock.now() - timedelta(seconds=KEPT_SECONDS + 60))
    assert delete_old_changes() == 1
    assert PageChange.objects.count() == count
