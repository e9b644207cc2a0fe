"""Announcements: what is said is in PostgreSQL first, at hand for everybody, corrected, taken back, and never lost."""

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


def say(event: EventView, text: str = "Doors open at seven.", **options: Any) -> queries.Announcement:
    return service.post(event.id, text, **({"who": "ann"} | options)).announcement


def read(event: EventView) -> list[str | None]:
    """What everybody reads who asks now, newest first."""
    return [one.text for one in facade.announcements_of(event.slug).shown]


def test_what_is_said_is_read_and_on_record(concert: EventView) -> None:
    said = say(concert, "  First line \n second line ")
    assert read(concert) == ["First line\nsecond line"]
    row = AnnouncementVersion.objects.get()
    assert (row.who, row.number, row.announcement, row.at) == ("ann", 1, 1, row.posted_at)
    assert (said.announcement_id, said.version, said.changed_at) == (1, 1, None)


def test_a_correction_stands_in_the_same_place_and_both_texts_stay_on_record(concert: EventView) -> None:
    first = say(concert, "Doors open at sven.")
    say(concert, "The bar is open.")
    fixed = service.correct(concert.id, first.announcement_id, "Doors open at seven.", who="bob").announcement
    assert (fixed.announcement_id, fixed.version, fixed.posted_at) == (1, 3, first.posted_at)
    assert fixed.changed_at is not None
    assert read(concert) == ["The bar is open.", "Doors open at seven."]
    record = AnnouncementVersion.objects.order_by("number").values_list("who", "text")
    assert list(record) == [
        ("ann", "Doors open at sven."),
        ("ann", "The bar is open."),
        ("bob", "Doors open at seven."),
    ]


def test_what_is_taken_back_is_read_by_nobody_and_told_to_who_has_read_it(concert: EventView) -> None:
    said = say(concert)
    service.retract(concert.id, said.announcement_id, who="ann")
    assert read(concert) == []
    (gone,) = queries.get_current(concert.id).announcements
    assert (gone.announcement_id, gone.version, gone.text) == (1, 2, None)
    assert not service.retract(concert.id, said.announcement_id, who="bob").is_new, "again is nothing"
    with pytest.raises(service.AnnouncementRefused, match="was taken back"):
        service.correct(concert.id, said.announcement_id, "Something else.", who="ann")


def test_what_was_said_cannot_be_rewritten_nor_removed(concert: EventView) -> None:
    say(concert)
    for act in (
        lambda: AnnouncementVersion.objects.update(text="Something else."),
        lambda: AnnouncementVersion.objects.all().delete(),
    ):
        with pytest.raises(IntegrityError, match="stays on record"), transaction.atomic():
            act()


def test_the_same_form_sent_twice_says_it_once(concert: EventView) -> None:
    first = service.post(concert.id, "Doors open at seven.", who="ann", key="form")
    again = service.post(concert.id, "Doors open at seven.", who="ann", key="form")
    assert (first.is_new, again.is_new) == (True, False)
    assert first.announcement == again.announcement
    with pytest.raises(service.AnnouncementRefused, match="something else already"):
        service.post(concert.id, "Doors open at eight.", who="ann", key="form")
    assert AnnouncementVersion.objects.count() == 1


@pytest.mark.parametrize(
    "text",
    ["", "  \n ", "x" * 501, "nul\x00", "bell\x07", "turned\u202eround", "half \ud800 a pair", "tab\tbed"],
    ids=["empty", "blank", "long", "nul", "control", "bidi", "surrogate", "tab"],
)
def test_what_is_no_plain_text_is_refused(concert: EventView, text: str) -> None:
    with pytest.raises(service.AnnouncementRefused):
        say(concert, text)
    assert not AnnouncementVersion.objects.exists()


@pytest.mark.parametrize("text", ["x" * 500, "👨‍👩‍👧 welcome", "Türen ⏰ 19:00", "<b>not bold</b>"])
def test_plain_text_of_any_script_is_said_as_it_is(concert: EventView, text: str) -> None:
    say(concert, text)
    assert read(concert) == [text]


def test_one_author_says_only_so_much_in_a_minute_but_may_always_take_back(concert: EventView) -> None:
    for number in range(service.PER_MINUTE_MAX):
        say(concert, f"Number {number}.")
    with pytest.raises(service.AnnouncementRefused, match="in a minute"):
        say(concert, "One too many.")
    with pytest.raises(service.AnnouncementRefused, match="in a minute"):
        service.correct(concert.id, 1, "One too many.", who="ann")
    assert service.retract(concert.id, 1, who="ann").is_new
    assert say(concert, "Another author.", who="bob").version == service.PER_MINUTE_MAX + 2


def test_two_who_correct_the_same_are_told_of_each_other(concert: EventView) -> None:
    seen = say(concert).version
    service.correct(concert.id, 1, "Doors open at eight.", who="bob", version=seen)
    with pytest.raises(service.AnnouncementRefused, match="changed meanwhile by bob"):
        service.correct(concert.id, 1, "Doors open at nine.", who="ann", version=seen)


def test_nothing_is_said_at_a_draft_nor_where_there_is_nothing(concert: EventView) -> None:
    Event.objects.filter(pk=concert.id).update(status=Event.Status.DRAFT)
    for event_id in (concert.id, 999_999):
        with pytest.raises(service.AnnouncementRefused, match="published"):
            service.post(event_id, "Hello.", who="ann")
    assert not AnnouncementFeed.objects.exists()


def test_thirty_are_at_hand_and_all_of_them_are_history(concert: EventView) -> None:
    for number in range(1, 36):
        say(concert, f"Number {number}.", who=f"author {number}")
    service.retract(concert.id, 20, who="ann")
    standing = queries.get_current(concert.id)
    shown = [one.announcement_id for one in standing.shown]
    assert shown == [number for number in range(35, 4, -1) if number != 20]
    assert standing.has_older
    seen, before = [], None
    while True:
        page = announcement_archive.history(concert.id, before, page_size=10)
        seen += [one.announcement_id for one in page.announcements]
        before = page.next_before
        if before is None:
            break
    assert seen == [number for number in range(35, 0, -1) if number != 20]


# --- the hot list -----------------------------------------------------------------------------------------------------


def test_readers_are_answered_from_the_hot_list(
    concert: EventView, redis_client: Redis, django_assert_num_queries: Any
) -> None:
    say(concert)
    with django_assert_num_queries(0):
        assert [one.text for one in feed.read(concert.id, concert.starts_at).shown] == ["Doors open at seven."]
    left = redis_client.pexpiretime(redis_cache.key_of(concert.id)) / 1_000 - concert.starts_at.timestamp()
    assert abs(left - redis_cache.KEPT_AFTER.total_seconds()) < 1, "gone an hour after the event"


def test_without_redis_postgresql_answers(concert: EventView, own_redis: OwnRedis) -> None:
    say(concert, "Before.")
    own_redis.kill()
    say(concert, "While it is away.")
    assert read(concert) == ["While it is away.", "Before."]
    own_redis.return_empty()
    assert read(concert) == ["While it is away.", "Before."]
    assert redis_cache.read(concert.id) == queries.get_current(concert.id), "who finds none fills it in"


def test_a_hot_list_that_missed_a_commit_is_written_anew(concert: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that said it ended between its commit and Redis."""
    say(concert, "First.")
    with monkeypatch.context() as patched:
        patched.setattr(redis_cache, "store", lambda *_: None)
        say(concert, "Second.")
    assert read(concert) == ["First."], "the race is there"
    assert redis_cache.refresh() == 1
    assert read(concert) == ["Second.", "First."]
    assert redis_cache.refresh() == 0


def test_a_hot_list_of_a_time_that_postgresql_has_forgotten_goes(concert: EventView) -> None:
    say(concert)
    ahead = queries.CurrentAnnouncements(99, (), has_older=False)
    redis_cache.store(concert.id, ahead, concert.starts_at)
    assert read(concert) == []
    assert redis_cache.refresh() == 1
    assert read(concert) == ["Doors open at seven."]


def test_an_older_list_never_takes_the_place_of_a_newer_one(concert: EventView) -> None:
    """A reader finds no list and reads PostgreSQL; somebody says more and writes it; then the reader writes."""
    say(concert, "First.")
    older = queries.get_current(concert.id)
    say(concert, "Second.")
    redis_cache.store(concert.id, older, concert.starts_at)
    assert read(concert) == ["Second.", "First."]


def test_what_in_redis_is_not_ours_is_passed_over(concert: EventView, redis_client: Redis) -> None:
    say(concert)
    redis_client.hset(redis_cache.key_of(concert.id), "said", "{}")
    assert read(concert) == ["Doors open at seven."]


# --- at once ----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_two_clicks_at_once_say_it_once_and_many_authors_get_numbers_without_a_gap() -> None:
    """Both find no such key, and only one of them under the lock."""
    concert = factories.make_event("concert", rows=0, general_admission=20)
    clicks = storm(6, lambda _: service.post(concert.id, "Doors open.", who="ann", key="form"))
    assert sorted(click.is_new for click in values(clicks)) == [False] * 5 + [True]
    said = storm(8, lambda number: service.post(concert.id, f"Number {number}.", who=f"author {number}"))
    assert sorted(one.announcement.version for one in values(said)) == list(range(2, 10))
    assert facade.announcements_of("concert").standing == queries.get_current(concert.id)
    factories.assert_audit_clean()


@pytest.mark.django_db(transaction=True)
def test_of_two_corrections_at_once_the_second_hears_of_the_first() -> None:
    concert = factories.make_event("concert", rows=0, general_admission=20)
    seen = say(concert).version

    def correct(number: int) -> service.PostResult:
        return service.correct(concert.id, 1, f"Number {number}.", who=f"author {number}", version=seen)

    outcomes = storm(2, correct)
    assert sorted(type(one.error or one.value).__name__ for one in outcomes) == ["AnnouncementRefused", "PostResult"]
    factories.assert_audit_clean()


@pytest.mark.django_db(transaction=True)
def test_listeners_are_told_after_the_commit_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    concert = factories.make_event("concert", rows=0, general_admission=20)
    told: list[tuple[str, Any, int]] = []

    def tell(group: str, message: Any) -> bool:
        told.append((group, message, in_another_connection(AnnouncementVersion.objects.count)))
        return True

    monkeypatch.setattr(channel_layer, "send_to_group", tell)
    said = say(concert)
    frame = ["announcement", "1", "", said.document()]
    assert told == [(f"live.{concert.id}", {"type": "news", "event": concert.id, "frames": [frame]}, 1)]


# --- the archive ------------------------------------------------------------------------------------------------------


def long_ago(event: EventView, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """The clock stands `days` later from now on."""
    later = clock.now() + timedelta(days=days)
    monkeypatch.setattr(clock, "now", lambda: later)


def past(days: float) -> EventView:
    event = factories.make_event("concert", rows=0, general_admission=20)
    Event.objects.filter(pk=event.id).update(starts_at=clock.now() - timedelta(days=days))
    return facade.get_event("concert")


def test_a_month_after_the_event_all_of_it_is_packed_and_read_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    event = past(1)
    for text in ("First.", "Second.", "Third."):
        say(event, text)
    service.correct(event.id, 1, "First, corrected.", who="bob")
    service.retract(event.id, 2, who="bob")
    before = announcement_archive.history(event.id)
    record = list(AnnouncementVersion.objects.order_by("number").values_list("number", "text", "who", "key"))
    assert announcement_archive.archive_old() == 0, "it is not old yet"
    long_ago(event, monkeypatch, 31)
    assert announcement_archive.archive_old() == 5
    assert not AnnouncementVersion.objects.exists()
    archive = AnnouncementArchive.objects.get()
    packed = [(one.number, one.text, one.who, one.key) for one in announcement_archive.versions_in(archive)]
    assert packed == record, "who said what, and when, stays"
    assert bytes(archive.body[:2]) == b"\x1f\x8b"
    assert announcement_archive.history(event.id) == before
    assert queries.get_current(event.id).latest == 5, "numbers go on where they were"
    assert announcement_archive.archive_old() == 0
    assert say(event, "Long after.").version == 6
    assert [one.text for one in announcement_archive.history(event.id).announcements] == [
        "Long after.", "Third.", "First, corrected."
    ]  # fmt: skip


def test_what_was_touched_lately_waits_with_its_whole_day(monkeypatch: pytest.MonkeyPatch) -> None:
    event = past(1)
    say(event, "First.")
    long_ago(event, monkeypatch, 20)
    service.correct(event.id, 1, "Corrected later.", who="ann")
    long_ago(event, monkeypatch, 11)
    assert announcement_archive.archive_old() == 0
    long_ago(event, monkeypatch, 20)
    assert announcement_archive.archive_old() == 2


def test_what_is_packed_can_be_changed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    event = past(1)
    say(event)
    long_ago(event, monkeypatch, 31)
    announcement_archive.archive_old()
    with pytest.raises(service.AnnouncementRefused, match="could be changed"):
        service.correct(event.id, 1, "Something else.", who="ann")


def test_an_event_to_come_keeps_what_it_said_however_long_ago(
    concert: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(concert)
    long_ago(concert, monkeypatch, 29)
    assert announcement_archive.archive_old() == 0
    assert read(concert) == ["Doors open at seven."]


def test_days_are_read_page_by_page_packed_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    event = past(1)
    real = clock.now
    for day in range(3):
        monkeypatch.setattr(clock, "now", lambda day=day: real() + timedelta(days=day))
        for number in range(4):
            say(event, f"Day {day}, number {number}.", who=f"author {day} {number}")
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
def test_two_archivers_at_once_pack_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find the day due; one of them has the feed locked, and the other leaves it alone or finds nothing there."""
    event = past(1)
    say(event)
    long_ago(event, monkeypatch, 31)
    assert sorted(values(storm(2, lambda _: announcement_archive.archive_old()))) == [0, 1]
    assert AnnouncementArchive.objects.get().version_count == 1


# --- by command -------------------------------------------------------------------------------------------------------


def test_the_command_says_corrects_takes_back_and_shows(concert: EventView, capsys: Any) -> None:
    call_command("announce", "concert", "--key", "form", "Doors open at sven.", who="ann")
    call_command("announce", "concert", "--correct", "1", "Doors open at seven.", who="ann")
    call_command("announce", "concert")
    out = capsys.readouterr().out
    assert "concert: announcement 1 can be read by everybody" in out
    assert "corrected  Doors open at seven." in out
    call_command("announce", "concert", take_back="1", who="ann")
    call_command("announce", "concert")
    assert "nothing is announced" in capsys.readouterr().out
    for wrong in (("nowhere", "Hello."), ("concert", "\x00"), ("concert", "x" * 501)):
        with pytest.raises(CommandError):
            call_command("announce", *wrong, who="ann")
    for options in ({"correct": "1"}, {"correct": "x", "text": "Hello."}, {"take_back": "7"}):
        with pytest.raises(CommandError):
            call_command("announce", "concert", who="ann", **options)


def test_what_redis_refuses_is_no_outage(concert: EventView, redis_client: Redis) -> None:
    redis_client.set(redis_cache.key_of(concert.id), "no hash")
    say(concert)
    assert read(concert) == ["Doors open at seven."]
    assert not redis.is_paused()
