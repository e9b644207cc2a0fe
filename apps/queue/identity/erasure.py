"""Personal data of queue entries: their export, and the replacement of identities.

An erased entry keeps its number, its times and its place in the published proof. Its account or browser is replaced by
a random visitor id, which no browser has. It only says whether there was an account, for the figures of the sale.
"""

import hmac
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.kernel import clock, random_bytes, secret_key
from apps.kernel.db import transactions
from apps.queue.identity import networks
from apps.queue.models import QueueEntry, RoomAct, SignUp, VipLink, WaitingRoom

ERASED = "erased-"
"""The beginning of an erased entry's visitor id; `erased-account-` if it had an account."""
ERASED_BUYER = f"visitor:{ERASED}"
"""The beginning of an erased buyer key (`erased_buyer`)."""


def entries_of_accounts(account_ids: Collection[int]) -> list[UUID]:
    """Return the ids of all entries of these accounts."""
    return list(QueueEntry.objects.filter(account__in=account_ids).order_by("pk").values_list("pk", flat=True))


def count_entries_of_accounts(account_ids: Collection[int], count_max: int) -> int:
    """Return the number of entries of these accounts, at most `count_max`."""
    return QueueEntry.objects.filter(account__in=account_ids).order_by()[:count_max].count()


def export_entries(entry_ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """Return what is stored about these entries, as JSON values."""
    notes = dict(VipLink.objects.filter(entry__in=entry_ids).values_list("entry", "note"))
    entries = QueueEntry.objects.select_related("event").filter(pk__in=entry_ids).order_by("joined_at")
    return [
        _numbers(entry)
        | {
            "priority": entry.marked,
            "note_of_vip_link": notes.get(entry.pk),
            "score": entry.score,
            "reasons_for_score": entry.reasons,
            "account": entry.account_id,
            "visitor_id": entry.visitor_id,
            "is_network_recorded": entry.network is not None,
            "is_opened_by_code": entry.presale_key is not None,
        }
        for entry in entries
    ]


def export_numbers(entry_ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """Return numbers and times of these entries, as JSON values, without the account or the browser."""
    entries = QueueEntry.objects.select_related("event").filter(pk__in=entry_ids).order_by("joined_at")
    return [_numbers(entry) for entry in entries]


def _numbers(entry: QueueEntry) -> dict[str, Any]:
    return {
        "id": str(entry.pk),
        "event": entry.event.slug,
        "number": entry.number,
        "status": entry.status,
        "joined_at": clock.iso(entry.joined_at),
        "ready_at": entry.ready_at and clock.iso(entry.ready_at),
        "ended_at": entry.ended_at and clock.iso(entry.ended_at),
    }


def export_sign_ups(account_ids: Collection[int]) -> list[dict[str, Any]]:
    """Return the sign-ups for draws of these accounts, as JSON values."""
    found = SignUp.objects.filter(account__in=account_ids).select_related("event").order_by("pk")
    return [{"event": row.event.slug, "signed_up_at": clock.iso(row.signed_up_at)} for row in found]


def events_of_sign_ups(account_id: int) -> list[str]:
    """Return the names of the events for whose draw the account has signed up, without those that have begun."""
    found = SignUp.objects.filter(account=account_id, event__starts_at__gt=clock.now())
    return list(found.order_by("event__name").values_list("event__name", flat=True))


def erase_sign_ups(account_ids: Collection[int], over_before: datetime) -> None:
    """Delete the sign-ups of these accounts for events that began before `over_before`, and commit. Until then a
    sign-up stays, as a digest without address and network: it keeps the person from a second entry in the draw."""
    with transactions.write():
        SignUp.objects.filter(account__in=account_ids).exclude(origin="").update(origin="")
        SignUp.objects.filter(account__in=account_ids, event__starts_at__lt=over_before).delete()


def lock_entries(entry_ids: Sequence[UUID], over_before: datetime) -> list[UUID]:
    """Lock these entries in id order. Return the ids of those that can be erased: not those that are erased, and not
    those that still wait or shop, unless their event began before `over_before`. Joins the caller's transaction."""
    transactions.require_transaction()
    entries = _unerased().select_related("event").select_for_update(no_key=True, of=("self",)).filter(pk__in=entry_ids)
    return [
        entry.pk
        for entry in entries.order_by("pk")
        if entry.status not in QueueEntry.LIVE or entry.event.starts_at < over_before
    ]


def events_of_live_entries(
    entry_ids: QuerySet[Any, UUID], account_ids: Collection[int], over_before: datetime
) -> list[str]:
    """Return the names of the events for which one of these entries, or an entry of these accounts, still waits or
    shops, without those that began before `over_before`. `entry_ids` is a query, because there may be many."""
    live = _unerased().filter(status__in=QueueEntry.LIVE, event__starts_at__gte=over_before)
    # Two queries: an index serves each, and none serves both conditions at once.
    found = (live.filter(pk__in=entry_ids), live.filter(account__in=account_ids))
    return sorted({name for entries in found for name in entries.values_list("event__name", flat=True)})


def erase_entries(entry_ids: Sequence[UUID]) -> None:
    """Replace the identities of these locked entries, blank their networks, and what operators wrote about them: the
    notes of VIP links, and the reasons for letting them through. Joins the caller's transaction."""
    transactions.require_transaction()
    entries = list(QueueEntry.objects.filter(pk__in=entry_ids))
    for entry in entries:
        entry.visitor_id, entry.account = _new_visitor_id(had_account=entry.account_id is not None), None
        entry.network = entry.presale_key = None
    QueueEntry.objects.bulk_update(entries, ["account", "visitor_id", "network", "presale_key"])
    _blank_notes(entries)


def _blank_notes(entries: Sequence[QueueEntry]) -> None:
    """Blank the notes of the VIP links that these entries redeemed, and the reasons of the acts that let them through.
    Links are locked after entries, as when a link is redeemed."""
    links = list(
        VipLink.objects.select_for_update(no_key=True)
        .filter(entry__in=[entry.pk for entry in entries])
        .exclude(note="")
        .order_by("pk")
    )
    acts = RoomAct.objects.filter(what=RoomAct.What.LET_THROUGH).exclude(why="")
    # In the lobby an entry has no number: its act has the link's note as the reason.
    about = reduce(or_, [Q(event=link.event_id, who__startswith="VIP link of ", why=link.note) for link in links], Q())
    for entry in entries:
        if entry.marked and entry.number is not None:
            name = f"number {entry.number}"
            about |= Q(event=entry.event_id) & (Q(detail=name) | Q(detail__startswith=f"{name},"))
    if about:
        acts.filter(about).update(why="")
    VipLink.objects.filter(pk__in=[link.pk for link in links]).update(note="")


def erased_buyer(event_id: int, buyer: str, *, had_account: bool) -> str:
    """Return the key, as in `EntryView.buyer`, that replaces this buyer's in the event's sales, and that no person has.
    It is always the same, so that the figures of the sale count one buyer, whenever each of its sales is erased."""
    digest = hmac.digest(secret_key.require_key().encode(), f"erased buyer {event_id} {buyer}".encode(), "sha256")
    return f"{ERASED_BUYER}{'account-' if had_account else ''}{digest[:16].hex()}"


def is_erased_buyer(buyer: str) -> bool:
    return buyer.startswith(ERASED_BUYER)


def _new_visitor_id(*, had_account: bool) -> str:
    return f"{ERASED}{'account-' if had_account else ''}{random_bytes.next_bytes().hex()}"


def events_to_erase(before: datetime) -> list[int]:
    """Return the events that began before this time and whose entries were not all looked at (`finish_event`)."""
    rooms = WaitingRoom.objects.filter(erased_at=None, event__starts_at__lt=before)
    return list(rooms.order_by("pk").values_list("pk", flat=True))


def entries_of_event(event_id: int, after: int, limit: int) -> tuple[list[UUID], int | None]:
    """Return a batch of the event's entries that are not erased, in the order of their numbers, and the `after` of the
    next batch; None after the last one. The first batch has `after` 0, and the entries without a number."""
    numbers = list(
        QueueEntry.objects.filter(event=event_id, number__gt=after)
        .order_by("number")
        .values_list("number", flat=True)[:limit]
    )
    until = numbers[-1] if numbers else after
    found = _unerased().filter(event=event_id, number__gt=after, number__lte=until)
    ids = list(found.values_list("pk", flat=True))
    if after == 0:
        ids += _unerased().filter(event=event_id, number=None).values_list("pk", flat=True)
    return ids, until if len(numbers) == limit else None


def finish_event(event_id: int) -> None:
    """Blank what operators wrote about the event's visitors: the notes of VIP links, the reasons for letting visitors
    through, and what was asked for in refused acts. Delete its sign-ups and the key of its networks. Then record that
    its entries were erased, and commit."""
    with transactions.write():
        networks.delete_key(event_id)  # Locks the room.
        VipLink.objects.filter(event=event_id).exclude(note="").update(note="")
        RoomAct.objects.filter(event=event_id, what=RoomAct.What.LET_THROUGH).exclude(why="").update(why="")
        # The public proof has never contained these texts, so it stays the same.
        RoomAct.objects.filter(event=event_id).exclude(refusal="").update(detail="", why="", refusal="refused")
        SignUp.objects.filter(event=event_id).delete()
        WaitingRoom.objects.filter(pk=event_id).update(erased_at=clock.now())


def _unerased() -> QuerySet[QueueEntry]:
    return QueueEntry.objects.exclude(visitor_id__startswith=ERASED)
