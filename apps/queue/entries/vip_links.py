"""VIP links: signed, good once, for one person each. Opening one changes nothing; taking it lets its visitor through
ahead of the turn, within the caps and marked.

The signature says that the link is ours and for which event; whether it is still good stands in its row, and that is
decided under the row's lock.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.db import connection
from django.urls import reverse

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.kernel.tokens import jwt, keys
from apps.queue.entries import positions
from apps.queue.errors import ActRefused, EntryNotFound, LinkRefused
from apps.queue.identity.caller import Caller
from apps.queue.models import QueueEntry, RoomAct, VipLink, WaitingRoom
from apps.queue.room import operations
from apps.queue.room_row import lock_room, record_act

HOURS_DEFAULT = 24
HOURS_MAX = keys.LIFETIME_MAX // timedelta(hours=1)
"""A link is a token: its key is kept for no longer."""
NOTE_CHARACTERS_MAX = 200

State = Literal["open", "used", "revoked", "expired"]


@dataclass(frozen=True, slots=True)
class LinkView:
    id: uuid.UUID
    event_slug: str
    note: str
    expires_at: datetime
    state: State
    is_used_by_caller: bool = False
    """Whoever asks is who used it."""


def state_of(link: VipLink, now: datetime) -> State:
    """Whether the link still lets anybody through, or why not."""
    if link.used_at is not None:
        return "used"
    if link.revoked_at is not None:
        return "revoked"
    return "open" if now < link.expires_at else "expired"


def make_link(event_id: int, *, note: str = "", hours: int = HOURS_DEFAULT, who: str, why: str = "") -> VipLink:
    """A new link for one person, good for so many hours. Raises ActRefused."""
    note = note.strip()
    if not 1 <= hours <= HOURS_MAX:
        raise ActRefused(f"a link is good for 1 to {HOURS_MAX} hours")
    if len(note) > NOTE_CHARACTERS_MAX or not note.isprintable():
        raise ActRefused(f"a note is one line of at most {NOTE_CHARACTERS_MAX} characters")
    with transactions.write(), connection.cursor() as cursor:
        lock_room(cursor, event_id)
        now = clock.now_on(cursor)
        link = VipLink.objects.create(
            event_id=event_id,
            note=note,
            created_by=who[:150],
            created_at=now,
            expires_at=now + timedelta(hours=hours),
        )
        record_act(cursor, event_id, now, who, RoomAct.What.LINK, f"made, good for {hours} h", why)
    return link


def revoke_link(link_id: uuid.UUID, *, who: str, why: str = "") -> bool:
    """The link lets nobody through any more; False if it was revoked already. Raises ActRefused once it is used."""
    event_id = VipLink.objects.filter(pk=link_id).values_list("event_id", flat=True).first()
    if event_id is None:
        raise ActRefused("there is no such link")
    with transactions.write(), connection.cursor() as cursor:
        lock_room(cursor, event_id)
        link = VipLink.objects.select_for_update(no_key=True).get(pk=link_id)
        if link.used_at is not None:
            raise ActRefused("the link has been used; take its visitor out of the line instead")
        if link.revoked_at is not None:
            return False
        link.revoked_at = clock.now_on(cursor)
        link.save(update_fields=["revoked_at"])
        record_act(cursor, event_id, link.revoked_at, who, RoomAct.What.LINK, "revoked", why)
    return True


def address_of(link: VipLink, event_slug: str) -> str:
    """Where the link leads: whoever has this text may use it."""
    # The row's moments are the database's clock; this machine's may be a little behind it.
    lifetime = min(keys.LIFETIME_MAX, max(timedelta(seconds=1), link.expires_at - clock.process_now()))
    token = jwt.issue("vip", str(link.pk), lifetime, event_slug)
    return f"{settings.SITE_URL}{reverse('queue:vip', args=[event_slug, token])}"


def view_link(event: events.EventView, token: str, caller: Caller) -> LinkView:
    """What the link is worth to the caller now; nothing is used up by looking. Raises LinkRefused for a text that is
    no link of this event."""
    link = _find(event, token)
    return LinkView(
        id=link.pk,
        event_slug=event.slug,
        note=link.note,
        expires_at=link.expires_at,
        state=state_of(link, clock.now()),
        is_used_by_caller=link.entry is not None and _is_owned_by(link.entry, caller),
    )


def redeem_link(event: events.EventView, token: str, caller: Caller) -> positions.EntryView:
    """The caller has a place, marked and let in as soon as a slot is free, and the link is used; the same caller again
    gets the same place. Raises LinkRefused, and what joining raises.

    Joining comes first, in its own transaction: of two who take one link at once both have a place, as anybody would,
    and one of them goes ahead.
    """
    link = _find(event, token)
    if link.entry is not None and _is_owned_by(link.entry, caller):
        return _get_entry_view(link.entry.pk)
    _require_open(link, clock.now())
    joined = positions.join(event, caller)
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event.id)
        entry = QueueEntry.objects.select_for_update(no_key=True).get(pk=joined.id)
        link = VipLink.objects.select_for_update(no_key=True).get(pk=link.pk)
        now = clock.now_on(cursor)
        if link.entry_id != entry.pk:
            _require_open(link, now)
            if entry.status not in QueueEntry.LIVE:
                raise EntryNotFound  # Left in another tab, this very moment.
            if not entry.marked:
                # Where nobody was ahead the join itself has let it in, by its number: then there is nothing to mark.
                if entry.status != QueueEntry.Status.READY and room.state != WaitingRoom.State.DRAINED:
                    operations.mark_priority(
                        cursor, room, entry, QueueEntry.Mark.VIP, now, present=True, also_paused=False
                    )
                link.used_at, link.entry = now, entry
                link.save(update_fields=["used_at", "entry"])
                who = f"VIP link of {link.created_by}"
                detail = f"{operations.describe_entry(entry)}, by a VIP link"
                record_act(cursor, event.id, now, who, RoomAct.What.LET_THROUGH, detail, link.note)
    return _get_entry_view(entry.pk)


def _get_entry_view(entry_id: uuid.UUID) -> positions.EntryView:
    view = positions.entry_by_id(entry_id)
    assert view is not None, "a place is never deleted"
    return view


def _find(event: events.EventView, token: str) -> VipLink:
    try:
        claims = jwt.verify(token, frozenset({"vip"}), audience=event.slug)
        link = VipLink.objects.select_related("entry").get(pk=uuid.UUID(claims.subject), event_id=event.id)
    except problems.TokenExpired as error:
        raise LinkRefused("expired") from error
    except problems.TokenWrongEvent as error:
        raise LinkRefused("foreign") from error
    except (problems.TokenInvalid, VipLink.DoesNotExist, ValueError) as error:
        raise LinkRefused("damaged") from error
    return link


def _require_open(link: VipLink, now: datetime) -> None:
    state = state_of(link, now)
    if state != "open":
        raise LinkRefused(state)


def _is_owned_by(entry: QueueEntry, caller: Caller) -> bool:
    if caller.entry_id is not None:
        return caller.entry_id == entry.pk
    if caller.account_id is not None and caller.account_id == entry.account_id:
        return True
    return bool(caller.visitor_id) and caller.visitor_id == entry.visitor_id
