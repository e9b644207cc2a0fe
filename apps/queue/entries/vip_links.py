"""VIP links. Each is signed and valid once, for one person. Opening a link changes nothing; redeeming it gives the
visitor priority, within the caps.

The signature proves the link's origin and event. Its row, locked when the link is redeemed, states whether it is still
valid.
"""

import uuid
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from django.conf import settings
from django.db import connection
from django.urls import reverse

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.kernel.tokens import jwt, keys
from apps.queue.entries import positions
from apps.queue.entries.presale import PresaleAccess
from apps.queue.errors import ActRefused, EntryNotFound, LinkRefused, NotOnSale
from apps.queue.identity.caller import Caller
from apps.queue.models import QueueEntry, RoomAct, VipLink, WaitingRoom
from apps.queue.room import operations
from apps.queue.room_row import lock_room, record_act

HOURS_DEFAULT = 24
HOURS_MAX = keys.LIFETIME_MAX // timedelta(hours=1)
"""A link is a token. Its signing key is kept for this time, so a link cannot be valid for longer."""
NOTE_CHARACTERS_MAX = 200

State = Literal["open", "used", "revoked", "expired"]


class LinkView(NamedTuple):
    state: State
    is_used_by_caller: bool


def state_of(link: VipLink, now: datetime) -> State:
    """Return "open" for a valid link, or why it is not valid."""
    if link.used_at is not None:
        return "used"
    if link.revoked_at is not None:
        return "revoked"
    return "open" if now < link.expires_at else "expired"


def make_link(event_id: int, *, note: str = "", hours: int = HOURS_DEFAULT, who: str, why: str = "") -> VipLink:
    """Create a link for one person, valid for `hours`. Raises ActRefused."""
    note = note.strip()
    if not 1 <= hours <= HOURS_MAX:
        raise ActRefused(f"a link is valid for 1 to {HOURS_MAX} hours")
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
        record_act(cursor, event_id, now, who, RoomAct.What.LINK, f"created, valid for {hours} h", why)
    return link


def revoke_link(link_id: uuid.UUID, *, who: str, why: str = "") -> bool:
    """Revoke the link; return False if it was revoked already. Raises ActRefused for a used link."""
    event_id = VipLink.objects.filter(pk=link_id).values_list("event_id", flat=True).first()
    if event_id is None:
        raise ActRefused("there is no such link")
    with transactions.write(), connection.cursor() as cursor:
        lock_room(cursor, event_id)
        link = VipLink.objects.select_for_update(no_key=True).get(pk=link_id)
        if link.used_at is not None:
            raise ActRefused("the link has been used; remove its visitor from the queue instead")
        if link.revoked_at is not None:
            return False
        link.revoked_at = clock.now_on(cursor)
        link.save(update_fields=["revoked_at"])
        record_act(cursor, event_id, link.revoked_at, who, RoomAct.What.LINK, "revoked", why)
    return True


def address_of(link: VipLink, event_slug: str) -> str:
    """Return the link's URL. Any person who has it can redeem it."""
    # The row's times are from the database's clock; the clock of this host may be slightly behind.
    lifetime = min(keys.LIFETIME_MAX, max(timedelta(seconds=1), link.expires_at - clock.process_now()))
    token = jwt.issue("vip", str(link.pk), lifetime, event_slug)
    return f"{settings.SITE_URL}{reverse('queue:vip', args=[event_slug, token])}"


def view_link(event: events.EventView, token: str, caller: Caller) -> LinkView:
    """Return the link's state for the caller, without using it. Raises LinkRefused if the token is not a link of this
    event."""
    link = _find(event, token)
    return LinkView(state_of(link, clock.now()), link.entry is not None and _is_owned_by(link.entry, caller))


def redeem_link(
    event: events.EventView, token: str, caller: Caller, network: bytes | None = None
) -> positions.EntryView:
    """Give the caller an entry with priority, and mark the link as used. If the same caller repeats this, the same
    entry is returned.

    Raises LinkRefused, and the errors of joining. Joining and redeeming are one transaction under the room's lock. Of
    callers who redeem one link concurrently, the first to lock the room gets the entry; the others read the used link
    under the lock and are refused before they join. Otherwise they would get ordinary entries, which a presale or proof
    of work may deny them.
    """
    link = _find(event, token)
    if link.entry is not None and _is_owned_by(link.entry, caller):
        return _get_entry_view(link.entry.pk)
    _require_open(link, clock.now())
    with transactions.write(lock_ms=positions.JOIN_LOCK_MS), connection.cursor() as cursor:
        try:
            room = lock_room(cursor, event.id)
        except WaitingRoom.DoesNotExist as error:
            raise NotOnSale from error
        link = VipLink.objects.select_related("entry").get(pk=link.pk)
        if link.entry is not None and _is_owned_by(link.entry, caller):
            return _get_entry_view(link.entry.pk)
        _require_open(link, clock.now_on(cursor))
        joined = positions.join_on_cursor(cursor, event, caller, access=PresaleAccess(), network=network)
        room = lock_room(cursor, event.id)  # The join has changed it.
        entry = QueueEntry.objects.select_for_update(no_key=True).get(pk=joined.id)
        link = VipLink.objects.select_for_update(no_key=True).get(pk=link.pk)
        now = clock.now_on(cursor)
        if link.entry_id != entry.pk:
            _require_open(link, now)
            if entry.status not in QueueEntry.LIVE:
                raise EntryNotFound  # The visitor has left in another tab since the join.
            if not entry.marked:
                # If no entry was ahead, the join has admitted this one already, and it needs no priority.
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


def has_vip_link(entry_id: uuid.UUID) -> bool:
    """Return whether a VIP link was redeemed for this entry, which may have been admitted without its priority."""
    return VipLink.objects.filter(entry_id=entry_id).exists()


def _get_entry_view(entry_id: uuid.UUID) -> positions.EntryView:
    view = positions.entry_by_id(entry_id)
    assert view is not None, "entries are never deleted"
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
        return caller.entry_id == entry.pk and caller.may_use_account(entry.account_id)
    if caller.account_id is not None and caller.account_id == entry.account_id:
        return True
    return bool(caller.visitor_id) and caller.visitor_id == entry.visitor_id
