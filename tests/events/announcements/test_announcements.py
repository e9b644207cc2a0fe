"""Announcements: stored in PostgreSQL first, cached for readers, corrected, retracted, archived, and never lost."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from redis import Redis

from apps.events import facade
from apps.events.announcements import archive as announcement_archive
from apps.events.announcements import feed, queries, redis_cache, service
from apps.events.facade import EventView
from apps.events.models import Event
from apps.events.models.announcements import AnnouncementArchive, AnnouncementFeed, AnnouncementVersion
from apps.kernel import clock, redis
from apps.kernel.push import channel_layer
from tests.support import factories
from tests.support.own_redis import OwnRedis
from tests.support.races import in_another_connection, storm, values

pytestmark = pytest.mark.django_db


@pytest.fixture
def concert(db: None) -> EventView:
    return factories.make_event("concert", rows=0, general_admission=20)


def post(event: EventView, text: str = "Doors open at seven.", **options: Any) -> queries.Announcement:
    return service.post(event.id, text, **({"author": "ann"} | options)).announcement


def read(event: EventView) -> list[str | None]:
    """Return the texts that readers get now, newest first."""
    return [one.text for one in facade.announcements_of(event.slug).shown]


def test_a_posted_announcement_is_read_and_on_record(concert: EventView) -> None:
    posted = post(concert, "  First line \n second line ")
    assert read(concert) == ["First line\nsecond line"]
    row = AnnouncementVersion.objects.get()
    assert (row.who, row.number, row.announcement, row.at) == ("ann", 1, 1, row.posted_at)
    assert (posted.announcement_id, posted.version, posted.changed_at) == (1, 1, None)


def test_a_correction_keeps_the_announcements_position_and_both_texts_stay_on_record(concert: EventView) -> None:
    first = post(concert, "Doors open at sven.")
    post(concert, "The bar is open.")
    fixed = service.correct(concert.id, first.announcement_id, "Doors open at seven.", author="bob").announcement
    assert (fixed.announcement_id, fixed.version, fixed.posted_at) == (1, 3, first.posted_at)
    assert fixed.changed_at is not None
    assert read(concert) == ["The bar is open.", "Doors open at seven."]
    record = AnnouncementVersion.objects.order_by("number").values_list("who", "text")
    assert list(record) == [
        ("ann", "Doors open at sven."),
        ("ann", "The bar is open."),
        ("bob", "Doors open at seven."),
    ]


def test_a_retracted_announcement_is_gone_for_readers_and_listed_as_retracted(concert: EventView) -> None:
    posted = post(concert)
    service.retract(concert.id, posted.announcement_id, author="ann")
    assert read(concert) == []
    (retracted,) = queries.get_current(concert.id).announcements
    assert (retracted.announcement_id, retracted.version, retracted.text) == (1, 2, None)
    assert not service.retract(concert.id, posted.announcement_id, author="bob").is_new, "repeating it changes nothing"
    with pytest.raises(service.AnnouncementRefused, match="was retracted"):
        service.correct(concert.id, posted.announcement_id, "Something else.", author="ann")


def test_the_database_refuses_to_change_or_delete_a_version(concert: EventView) -> None:
    post(concert)
    for act in (
        lambda: AnnouncementVersion.objects.update(text="Something else."),
        lambda: AnnouncementVersion.objects.all().delete(),
    ):
        with pytest.raises(IntegrityError, match="stays on record"), transaction.atomic():
            act()


def test_a_form_that_is_sent_twice_posts_once(concert: EventView) -> None:
    first = service.post(concert.id, "Doors open at seven.", author="ann", key="form")
    again = service.post(concert.id, "Doors open at seven.", author="ann", key="form")
    assert (first.is_new, again.is_new) == (True, False)
    assert first.announcement == again.announcement
    with pytest.raises(service.AnnouncementRefused, match="already sent with another text"):
        service.post(concert.id, "Doors open at eight.", author="ann", key="form")
    assert AnnouncementVersion.objects.count() == 1


@pytest.mark.parametrize(
    "text",
    ["", "  \n ", "x" * 501, "nul\x00", "bell\x07", "turned\u202eround", "half \ud800 a pair", "tab\tbed"],
    ids=["empty", "blank", "long", "nul", "control", "bidi", "surrogate", "tab"],
)
def test_a_text_with_control_characters_or_a_wrong_length_is_refused(concert: EventView, text: str) -> None:
    with pytest.raises(service.AnnouncementRefused):
        post(concert, text)
    assert not AnnouncementVersion.objects.exists()


@pytest.mark.parametrize("text", ["x" * 500, "👨‍👩‍👧 welcome", "Türen ⏰ 19:00", "<b>not bold</b>"])
def test_plain_text_of_any_script_is_published_unchanged(concert: EventView, text: str) -> None:
    post(concert, text)
    assert read(concert) == [text]


def test_an_author_posts_at_most_ten_times_a_minute_but_may_always_retract(concert: EventView) -> None:
    for number in range(service.PER_MINUTE_MAX):
        post(concert, f"Number {number}.")
    with pytest.raises(service.AnnouncementRefused, match="times a minute"):
        post(concert, "One too many.")
    with pytest.raises(service.AnnouncementRefused, match="times a minute"):
        service.correct(concert.id, 1, "One too many.", author="ann")
    assert service.retract(concert.id, 1, author="ann").is_new
    assert post(concert, "Another author.", author="bob").version == service.PER_MINUTE_MAX + 2


def test_a_correction_of_an_outdated_version_is_refused_and_names_the_other_author(concert: EventView) -> None:
    seen = post(concert).version
    service.correct(concert.id, 1, "Doors open at eight.", author="bob", version=seen)
    with pytest.raises(service.AnnouncementRefused, match="changed meanwhile by bob"):
        service.correct(concert.id, 1, "Doors open at nine.", author="ann", version=seen)


def test_announcements_of_drafts_and_unknown_events_are_refused(concert: EventView) -> None:
    Event.objects.filter(pk=concert.id).update(status=Event.Status.DRAFT)
    for event_id in (concert.id, 999_999):
        with pytest.raises(service.AnnouncementRefused, match="published"):
            service.post(event_id, "Hello.", author="ann")
    assert not AnnouncementFeed.objects.exists()


def test_the_feed_has_thirty_announcements_and_the_history_has_all(concert: EventView) -> None:
    for number in range(1, 36):
        post(concert, f"Number {number}.", author=f"author {number}")
    service.retract(concert.id, 20, author="ann")
    current = queries.get_current(concert.id)
    shown = [one.announcement_id for one in current.shown]
    assert shown == [number for number in range(35, 4, -1) if number != 20]
    assert current.has_older
    seen, before = [], None
    while True:
        page = announcement_archive.history(concert.id, before, page_size=10)
        seen += [one.announcement_id for one in page.announcements]
        before = page.next_before
        if before is None:
            break
    assert seen == [number for number in range(35, 0, -1) if number != 20]


# --- the Redis cache --------------------------------------------------------------------------------------------------


def test_readers_are_served_from_the_cache(
    concert: EventView, redis_client: Redis, django_assert_num_queries: Any
) -> None:
    post(concert)
    with django_assert_num_queries(0):
        assert [one.text for one in feed.read(concert.id, concert.starts_at).shown] == ["Doors open at seven."]
    left = redis_client.pexpiretime(redis_cache.key_of(concert.id)) / 1_000 - concert.starts_at.timestamp()
    assert abs(left - redis_cache.KEPT_AFTER.total_seconds()) < 1, "expires an hour after the event"


def test_without_redis_readers_are_served_from_postgresql(concert: EventView, own_redis: OwnRedis) -> None:
    post(concert, "Before.")
    own_redis.kill()
    post(concert, "While it is away.")
    assert read(concert) == ["While it is away.", "Before."]
    own_redis.return_empty()
    assert read(concert) == ["While it is away.", "Before."]
    assert redis_cache.read(concert.id) == queries.get_current(concert.id), "a reader that finds none fills it in"


def test_refresh_repairs_a_cache_that_missed_a_commit(concert: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    """The posting process ended between its commit and the write to Redis."""
    post(concert, "First.")
    with monkeypatch.context() as patched:
        patched.setattr(redis_cache, "store", lambda *_: None)
        post(concert, "Second.")
    assert read(concert) == ["First."], "the race happened"
    assert redis_cache.refresh() == 1
    assert read(concert) == ["Second.", "First."]
    assert redis_cache.refresh() == 0


def test_refresh_drops_a_cached_feed_that_is_ahead_of_postgresql(concert: EventView) -> None:
    post(concert)
    ahead = queries.CurrentAnnouncements(99, (), has_older=False)
    redis_cache.store(concert.id, ahead, concert.starts_at)
    assert read(concert) == []
    assert redis_cache.refresh() == 1
    assert read(concert) == ["Doors open at seven."]


def test_an_older_feed_never_replaces_a_newer_one(concert: EventView) -> None:
    """A reader finds no cached feed and reads PostgreSQL; another post commits and is cached; then the reader
    writes."""
    post(concert, "First.")
    older = queries.get_current(concert.id)
    post(concert, "Second.")
    redis_cache.store(concert.id, older, concert.starts_at)
    assert read(concert) == ["Second.", "First."]


def test_an_unreadable_cached_feed_is_ignored(concert: EventView, redis_client: Redis) -> None:
    post(concert)
    redis_client.hset(redis_cache.key_of(concert.id), "said", "{}")
    assert read(concert) == ["Doors open at seven."]


# --- concurrency ------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_concurrent_clicks_post_once_and_concurrent_authors_get_consecutive_numbers() -> None:
    """All clicks find no version with their key before the lock; under the lock only the first one does."""
    concert = factories.make_event("concert", rows=0, general_admission=20)
    clicks = storm(6, lambda _: service.post(concert.id, "Doors open.", author="ann", key="form"))
    assert sorted(click.is_new for click in values(clicks)) == [False] * 5 + [True]
    results = storm(8, lambda number: service.post(concert.id, f"Number {number}.", author=f"author {number}"))
    assert sorted(one.announcement.version for one in values(results)) == list(range(2, 10))
    assert facade.announcements_of("concert").current == queries.get_current(concert.id)
    factories.assert_audit_clean()


@pytest.mark.django_db(transaction=True)
def test_of_two_concurrent_corrections_the_second_is_refused() -> None:
    concert = factories.make_event("concert", rows=0, general_admission=20)
    seen = post(concert).version

    def correct(number: int) -> service.PostResult:
        return service.correct(concert.id, 1, f"Number {number}.", author=f"author {number}", version=seen)

    outcomes = storm(2, correct)
    assert sorted(type(one.error or one.value).__name__ for one in outcomes) == ["AnnouncementRefused", "PostResult"]
    factories.assert_audit_clean()


@pytest.mark.django_db(transaction=True)
def test_listeners_are_notified_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    concert = factories.make_event("concert", rows=0, general_admission=20)
    sent: list[tuple[str, Any, int]] = []

    def record(group: str, message: Any) -> bool:
        sent.append((group, message, in_another_connection(AnnouncementVersion.objects.count)))
        return True

    monkeypatch.setattr(channel_layer, "send_to_group", record)
    posted = post(concert)
    frame = ["announcement", "1", "", posted.document()]
    assert sent == [(f"live.{concert.id}", {"type": "news", "event": concert.id, "frames": [frame]}, 1)]


# --- the archive ------------------------------------------------------------------------------------------------------


def advance_clock(event: EventView, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Stop the clock at a time `days` from now."""
    later = clock.now() + timedelta(days=days)
    monkeypatch.setattr(clock, "now", lambda: later)


def past(days: float) -> EventView:
    event = factories.make_event("concert", rows=0, general_admission=20)
    Event.objects.filter(pk=event.id).update(starts_at=clock.now() - timedelta(days=days))
    return facade.get_event("concert")


def test_a_month_after_the_event_announcements_are_archived_and_read_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    event = past(1)
    for text in ("First.", "Second.", "Third."):
        post(event, text)
    service.correct(event.id, 1, "First, corrected.", author="bob")
    service.retract(event.id, 2, author="bob")
    before = announcement_archive.history(event.id)
    record = list(AnnouncementVersion.objects.order_by("number").values_list("number", "text", "who", "key"))
    assert announcement_archive.archive_old() == 0, "it is not old yet"
    advance_clock(event, monkeypatch, 31)
    assert announcement_archive.archive_old() == 5
    assert not AnnouncementVersion.objects.exists()
    archive = AnnouncementArchive.objects.get()
    archived = [(one.number, one.text, one.who, one.key) for one in announcement_archive.versions_in(archive)]
    assert archived == record, "authors, texts and order are kept"
    assert bytes(archive.body[:2]) == b"\x1f\x8b"
    assert announcement_archive.history(event.id) == before
    assert queries.get_current(event.id).latest == 5, "numbers continue"
    assert announcement_archive.archive_old() == 0
    assert post(event, "Long after.").version == 6
    assert [one.text for one in announcement_archive.history(event.id).announcements] == [
        "Long after.", "Third.", "First, corrected."
    ]  # fmt: skip


def test_a_recent_correction_delays_the_archiving_of_its_whole_day(monkeypatch: pytest.MonkeyPatch) -> None:
    event = past(1)
    post(event, "First.")
    advance_clock(event, monkeypatch, 20)
    service.correct(event.id, 1, "Corrected later.", author="ann")
    advance_clock(event, monkeypatch, 11)
    assert announcement_archive.archive_old() == 0
    advance_clock(event, monkeypatch, 20)
    assert announcement_archive.archive_old() == 2


def test_an_archived_announcement_cannot_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    event = past(1)
    post(event)
    advance_clock(event, monkeypatch, 31)
    announcement_archive.archive_old()
    with pytest.raises(service.AnnouncementRefused, match="to change"):
        service.correct(event.id, 1, "Something else.", author="ann")


def test_old_announcements_of_a_future_event_are_not_archived(
    concert: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(concert)
    advance_clock(concert, monkeypatch, 29)
    assert announcement_archive.archive_old() == 0
    assert read(concert) == ["Doors open at seven."]


def test_history_pages_span_archived_and_recent_days(monkeypatch: pytest.MonkeyPatch) -> None:
    event = past(1)
    real = clock.now
    for day in range(3):
        monkeypatch.setattr(clock, "now", lambda day=day: real() + timedelta(days=day))
        for number in range(4):
            post(event, f"Day {day}, number {number}.", author=f"author {day} {number}")
    monkeypatch.setattr(clock, "now", lambda: real() + timedelta(days=31, hours=12))
    assert announcement_archive.archive_old() == 8
    assert AnnouncementVersion.objects.exists()
    seen, before = [], None
    while before is not None or not seen:
        page = announcement_archive.history(event.id, before, page_size=3)
        seen += [one.announcement_id for one in page.announcements]
        before = page.next_before
    assert seen == list(range(12, 0, -1))


@pytest.mark.django_db(transaction=True)
def test_two_concurrent_archivers_archive_a_day_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find the day due. One has the feed locked; the other skips it, or finds no rows left."""
    event = past(1)
    post(event)
    advance_clock(event, monkeypatch, 31)
    assert sorted(values(storm(2, lambda _: announcement_archive.archive_old()))) == [0, 1]
    assert AnnouncementArchive.objects.get().version_count == 1


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_posts_corrects_retracts_and_lists(concert: EventView, capsys: Any) -> None:
    call_command("announce", "concert", "--key", "form", "Doors open at sven.", who="ann")
    call_command("announce", "concert", "--correct", "1", "Doors open at seven.", who="ann")
    call_command("announce", "concert")
    out = capsys.readouterr().out
    assert "concert: announcement 1 published" in out
    assert "corrected  Doors open at seven." in out
    call_command("announce", "concert", take_back="1", who="ann")
    call_command("announce", "concert")
    assert "no announcements" in capsys.readouterr().out
    for wrong in (("nowhere", "Hello."), ("concert", "\x00"), ("concert", "x" * 501)):
        with pytest.raises(CommandError):
            call_command("announce", *wrong, who="ann")
    for options in ({"correct": "1"}, {"correct": "x", "text": "Hello."}, {"take_back": "7"}):
        with pytest.raises(CommandError):
            call_command("announce", "concert", who="ann", **options)


def test_a_redis_error_does_not_count_as_an_outage(concert: EventView, redis_client: Redis) -> None:
    redis_client.set(redis_cache.key_of(concert.id), "no hash")
    post(concert)
    assert read(concert) == ["Doors open at seven."]
    assert not redis.is_paused()
