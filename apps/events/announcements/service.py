"""Posts, corrects and retracts announcements. Each is stored in PostgreSQL, then published to Redis and listeners."""

import logging
import uuid
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from django.db import DatabaseError, transaction

from apps.events.announcements import queries, redis_cache
from apps.events.announcements.queries import Announcement
from apps.events.models import Event
from apps.events.models.announcements import (
    KEY_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    AnnouncementFeed,
    AnnouncementVersion,
)
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import problems
from apps.kernel.observability import log_context
from apps.kernel.push import channel_layer
from apps.kernel.push.channel_names import group_of

logger = logging.getLogger(__name__)

PER_MINUTE_MAX = 10
"""Posts and corrections of one author per minute. Retractions are not limited."""
AUTHOR_CHARACTERS_MAX = 150
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
"""Invisible joiners, which emoji and some scripts contain."""


class AnnouncementRefused(problems.Problem):
    """Nothing was published; the message is for the author."""


class PostResult(NamedTuple):
    announcement: Announcement
    is_new: bool
    """Whether this call added a version; False for a repeated form and for an unchanged text."""


def plain_text(text: str) -> str:
    """Return the text as it will be published. Raises AnnouncementRefused."""
    text = "\n".join(line.strip() for line in text.strip().splitlines())
    if not text:
        raise AnnouncementRefused("an announcement needs a text")
    if len(text) > TEXT_CHARACTERS_MAX:
        raise AnnouncementRefused(f"an announcement has at most {TEXT_CHARACTERS_MAX} characters, this has {len(text)}")
    if not sql.is_text(text) or not all(one.isprintable() or one == "\n" or one in _JOINERS for one in text):
        raise AnnouncementRefused("an announcement is plain text, without control characters")
    return text


def post(event_id: int, text: str, *, author: str, key: str = "") -> PostResult:
    """Publish an announcement. A second call with the same key publishes nothing. Raises AnnouncementRefused."""
    return _post_version(event_id, None, plain_text(text), author, key)


def correct(
    event_id: int, announcement_id: int, text: str, *, author: str, key: str = "", version: int = 0
) -> PostResult:
    """Publish a corrected text. An unchanged text publishes nothing.

    `version` is the version that the author has seen: if there is a newer one, the correction is refused; 0 skips this
    check. Raises AnnouncementRefused.
    """
    return _post_version(event_id, announcement_id, plain_text(text), author, key, version)


def retract(event_id: int, announcement_id: int, *, author: str, key: str = "") -> PostResult:
    """Remove the announcement from the feed; its versions stay in the database. A second retraction changes nothing.
    Raises AnnouncementRefused."""
    return _post_version(event_id, announcement_id, "", author, key)


def post_scheduled(event_id: int, text: str, *, author: str, key: str) -> PostResult:
    """Write an announcement in the caller's transaction, and publish it after its commit. A second call with the same
    key writes nothing. Raises AnnouncementRefused."""
    transactions.require_transaction()
    result, starts_at = _store_version(event_id, None, plain_text(text), author, key, is_limited=False)
    if result.is_new:
        transaction.on_commit(lambda: _publish(event_id, result.announcement, starts_at), robust=True)
    return result


def _post_version(
    event_id: int, announcement: int | None, text: str, author: str, key: str, seen: int = 0
) -> PostResult:
    with transactions.write():
        result, starts_at = _store_version(event_id, announcement, text, author, key, seen)
    if result.is_new:
        _publish(event_id, result.announcement, starts_at)
    return result


def _store_version(
    event_id: int,
    announcement: int | None,
    text: str,
    author: str,
    key: str,
    seen: int = 0,
    *,
    is_limited: bool = True,
) -> tuple[PostResult, datetime]:
    """Write the version in the caller's transaction, and return it with the event's start."""
    if not author or len(author) > AUTHOR_CHARACTERS_MAX or not sql.is_text(author):
        raise AnnouncementRefused("an announcement needs an author's name")
    key = key or str(uuid.uuid4())
    if len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
        raise AnnouncementRefused("the form is invalid; refresh the page")
    starts_at = _require_public(event_id)
    latest = queries.lock_feed(event_id)
    result = _find_duplicate(event_id, announcement, text, key) or _find_unchanged(event_id, announcement, text, seen)
    if result is None:
        now = clock.now()
        if text and is_limited:
            _check_rate_limit(author, now)
        result = _write(event_id, announcement, latest + 1, text, now, author, key)
    return result, starts_at


def _require_public(event_id: int) -> datetime:
    """Return when the event begins. Raises AnnouncementRefused for a draft or an unknown event."""
    public = Event.objects.filter(pk=event_id).exclude(status=Event.Status.DRAFT)
    starts_at = public.values_list("starts_at", flat=True).first()
    if starts_at is None:
        raise AnnouncementRefused("the event is not published, so announcements have no readers yet")
    return starts_at


def _find_duplicate(event_id: int, announcement: int | None, text: str, key: str) -> PostResult | None:
    """Return the version that this form has already posted, if any. The feed is locked, so the second request of a
    double click finds the version of the first."""
    sent = AnnouncementVersion.objects.filter(event_id=event_id, key=key).first()
    if sent is None:
        return None
    is_first = sent.announcement == sent.number
    if sent.text != text or (announcement is None) != is_first or (announcement or sent.number) != sent.announcement:
        raise AnnouncementRefused("this form was already sent with another text; refresh the page")
    return PostResult(_to_announcement(sent), is_new=False)


def _find_unchanged(event_id: int, announcement: int | None, text: str, seen: int) -> PostResult | None:
    """Return the last version if it has this text already. Raises AnnouncementRefused if the announcement cannot be
    changed."""
    if announcement is None:
        return None
    versions = AnnouncementVersion.objects.filter(event_id=event_id, announcement=announcement)
    last = versions.order_by("-number").first()
    if last is None:
        raise AnnouncementRefused(f"there is no announcement {announcement} to change")
    if last.text == text:
        return PostResult(_to_announcement(last), is_new=False)
    if not last.text:
        raise AnnouncementRefused(f"announcement {announcement} was retracted; post a new one")
    if seen and text and last.number != seen:
        raise AnnouncementRefused(f"announcement {announcement} was changed meanwhile by {last.who}; refresh the page")
    return None


def _check_rate_limit(author: str, now: datetime) -> None:
    # The lock on this event's feed makes the count exact for posts to this event. An author who posts to several events
    # at the same time may exceed the limit.
    recent = AnnouncementVersion.objects.filter(who=author, at__gt=now - timedelta(minutes=1)).exclude(text="")
    if recent.count() >= PER_MINUTE_MAX:
        raise AnnouncementRefused(f"an author posts at most {PER_MINUTE_MAX} times a minute; wait a moment")


def _write(
    event_id: int, announcement: int | None, number: int, text: str, now: datetime, author: str, key: str
) -> PostResult:
    posted_at = now
    if announcement is not None:
        first = AnnouncementVersion.objects.filter(event_id=event_id, announcement=announcement).order_by("number")
        posted_at = first.values_list("posted_at", flat=True)[0]
    row = AnnouncementVersion.objects.create(
        event_id=event_id, number=number, announcement=announcement or number, text=text, posted_at=posted_at, at=now,
        who=author, key=key,
    )  # fmt: skip
    AnnouncementFeed.objects.filter(pk=event_id).update(latest=number)
    return PostResult(_to_announcement(row), is_new=True)


def _to_announcement(row: AnnouncementVersion) -> Announcement:
    return Announcement.of(row.announcement, row.number, row.text, row.posted_at, row.at)


def _publish(event_id: int, announcement: Announcement, starts_at: datetime) -> None:
    """Publish the committed version to Redis and listeners, if Redis is available. A lost write is repaired by
    `redis_cache.refresh`; a lost message is replaced when processes with listeners next read PostgreSQL."""
    try:
        redis_cache.store(event_id, queries.get_current(event_id), starts_at)
    except DatabaseError as error:
        logger.warning("the announcement cache will be refreshed later (%s)", log_context.summarize_error(error))
    channel_layer.send_to_group(group_of(event_id), channel_message(event_id, announcement))


def channel_message(event_id: int, announcement: Announcement) -> dict[str, object]:
    """Return the announcement as a message of the channel layer that contains one frame."""
    frame = [FRAME, str(announcement.announcement_id), "", msgspec.json.encode(announcement)]
    return {"type": "news", "event": event_id, "frames": [frame]}


FRAME = "announcement"
"""The event type of announcement frames in the stream."""
