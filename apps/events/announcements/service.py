"""Saying something, correcting it, taking it back: PostgreSQL first, then everybody who listens or reads."""

import logging
import uuid
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from django.db import DatabaseError

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
"""What one author may say, corrections among it. Taking back is never refused."""
AUTHOR_CHARACTERS_MAX = 150
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
"""Emoji and some scripts are written with them."""


class AnnouncementRefused(problems.Problem):
    """Nothing was said; the words are for its author."""


class PostResult(NamedTuple):
    announcement: Announcement
    is_new: bool
    """Whether this call has said it: a form that is sent twice says it once."""


def plain_text(text: str) -> str:
    """The text as everybody will read it. Raises AnnouncementRefused."""
    text = "\n".join(line.strip() for line in text.strip().splitlines())
    if not text:
        raise AnnouncementRefused("an announcement says something")
    if len(text) > TEXT_CHARACTERS_MAX:
        raise AnnouncementRefused(f"an announcement has at most {TEXT_CHARACTERS_MAX} characters, this has {len(text)}")
    if not sql.is_text(text) or not all(one.isprintable() or one == "\n" or one in _JOINERS for one in text):
        raise AnnouncementRefused("an announcement is plain text, without control characters")
    return text


def post(event_id: int, text: str, *, who: str, key: str = "") -> PostResult:
    """Everybody can read this announcement. The same key again says nothing more. Raises AnnouncementRefused."""
    return _post_version(event_id, None, plain_text(text), who, key)


def correct(event_id: int, announcement_id: int, text: str, *, who: str, key: str = "", version: int = 0) -> PostResult:
    """Everybody reads this text in its place; `version`: the one that its author has seen, where that matters. A text
    that stands already says nothing more. Raises AnnouncementRefused."""
    return _post_version(event_id, announcement_id, plain_text(text), who, key, version)


def retract(event_id: int, announcement_id: int, *, who: str, key: str = "") -> PostResult:
    """Nobody reads it any more, but in the record of what was said. Again is nothing. Raises AnnouncementRefused."""
    return _post_version(event_id, announcement_id, "", who, key)


def _post_version(event_id: int, announcement: int | None, text: str, who: str, key: str, seen: int = 0) -> PostResult:
    if not who or len(who) > AUTHOR_CHARACTERS_MAX or not sql.is_text(who):
        raise AnnouncementRefused("an announcement needs an author's name")
    key = key or str(uuid.uuid4())
    if len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
        raise AnnouncementRefused("the form is not one of ours; open it anew")
    with transactions.write():
        starts_at = _require_public(event_id)
        latest = queries.lock_feed(event_id)
        said = _find_duplicate(event_id, announcement, text, key) or _find_unchanged(event_id, announcement, text, seen)
        if said is None:
            now = clock.now()
            if text:
                _check_rate_limit(who, now)
            said = _write(event_id, announcement, latest + 1, text, now, who, key)
    if said.is_new:
        _publish(event_id, said.announcement, starts_at)
    return said


def _require_public(event_id: int) -> datetime:
    """When the event begins. Raises AnnouncementRefused."""
    public = Event.objects.filter(pk=event_id).exclude(status=Event.Status.DRAFT)
    starts_at = public.values_list("starts_at", flat=True).first()
    if starts_at is None:
        raise AnnouncementRefused("only a published event has somebody to say something to")
    return starts_at


def _last_version(event_id: int, announcement: int) -> AnnouncementVersion | None:
    rows = AnnouncementVersion.objects.filter(event_id=event_id, announcement=announcement)
    return rows.order_by("-number").first()


def _find_duplicate(event_id: int, announcement: int | None, text: str, key: str) -> PostResult | None:
    """What the form of this key has said. Under the lock: of two clicks at once the second finds the first."""
    sent = AnnouncementVersion.objects.filter(event_id=event_id, key=key).first()
    if sent is None:
        return None
    is_first = sent.announcement == sent.number
    if sent.text != text or (announcement is None) != is_first or (announcement or sent.number) != sent.announcement:
        raise AnnouncementRefused("this form has said something else already; open it anew")
    return PostResult(_to_announcement(sent), is_new=False)


def _find_unchanged(event_id: int, announcement: int | None, text: str, seen: int) -> PostResult | None:
    """What stands of the announcement, if that is what is to be said. Raises AnnouncementRefused where nothing can be
    said of it any more."""
    if announcement is None:
        return None
    last = _last_version(event_id, announcement)
    if last is None:
        raise AnnouncementRefused(f"there is no announcement {announcement} that could be changed")
    if last.text == text:
        return PostResult(_to_announcement(last), is_new=False)
    if not last.text:
        raise AnnouncementRefused(f"announcement {announcement} was taken back; say it anew")
    if seen and text and last.number != seen:
        raise AnnouncementRefused(f"announcement {announcement} was changed meanwhile by {last.who}; look at it again")
    return None


def _check_rate_limit(who: str, now: datetime) -> None:
    # Exact at one event, whose lock we hold; who speaks at several in the same moment may say one thing too many.
    lately = AnnouncementVersion.objects.filter(who=who, at__gt=now - timedelta(minutes=1)).exclude(text="")
    if lately.count() >= PER_MINUTE_MAX:
        raise AnnouncementRefused(f"one author says at most {PER_MINUTE_MAX} things in a minute; wait a moment")


def _write(
    event_id: int, announcement: int | None, number: int, text: str, now: datetime, who: str, key: str
) -> PostResult:
    posted_at = now
    if announcement is not None:
        first = AnnouncementVersion.objects.filter(event_id=event_id, announcement=announcement).order_by("number")
        posted_at = first.values_list("posted_at", flat=True)[0]
    row = AnnouncementVersion.objects.create(
        event_id=event_id, number=number, announcement=announcement or number, text=text, posted_at=posted_at, at=now,
        who=who, key=key,
    )  # fmt: skip
    AnnouncementFeed.objects.filter(pk=event_id).update(latest=number)
    return PostResult(_to_announcement(row), is_new=True)


def _to_announcement(row: AnnouncementVersion) -> Announcement:
    return Announcement.of(row.announcement, row.number, row.text, row.posted_at, row.at)


def _publish(event_id: int, announcement: Announcement, starts_at: datetime) -> None:
    """Listeners and readers have it, as far as Redis is there. It is said already: what is lost here is looked for by
    `redis_cache.refresh` and by whoever has listeners."""
    try:
        redis_cache.store(event_id, queries.get_current(event_id), starts_at)
    except DatabaseError as error:
        logger.warning("the hot list is written in a moment (%s)", log_context.summarize_error(error))
    channel_layer.send_to_group(group_of(event_id), channel_message(event_id, announcement))


def channel_message(event_id: int, announcement: Announcement) -> dict[str, object]:
    """How the channel layer tells it: one frame."""
    frame = [FRAME, str(announcement.announcement_id), "", msgspec.json.encode(announcement)]
    return {"type": "news", "event": event_id, "frames": [frame]}


FRAME = "announcement"
"""What frames of announcements are called in the stream."""
