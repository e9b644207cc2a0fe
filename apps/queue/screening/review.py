"""Operators' changes to screening: a room's settings, and the end of an entry's review. Both are recorded."""

import uuid

from django.db import connection, transaction

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.queue.errors import ActRefused
from apps.queue.models import QueueEntry, RoomAct, WaitingRoom
from apps.queue.room import operations
from apps.queue.room_row import lock_room, record_act
from apps.queue.screening.policy import policies

REVIEW_SCORE_MAX = 100


def set_screening(
    event_id: int, *, when: str | None = None, review_score: int | None = None, who: str, why: str = ""
) -> bool:
    """Set when joins need work, and from which score on entries wait for review (0: never); None: unchanged. Returns
    False if nothing changed. Raises ActRefused. Entries in review stay there."""
    if when is not None and when not in WaitingRoom.Screening.values:
        raise ActRefused(f"proof of work is {', '.join(WaitingRoom.Screening.values)}")
    if review_score is not None and not 0 <= review_score <= REVIEW_SCORE_MAX:
        raise ActRefused(f"a score for review is from 1 to {REVIEW_SCORE_MAX}, or 0 for never")
    with transactions.write(), connection.cursor() as cursor:
        lock_room(cursor, event_id)
        room = WaitingRoom.objects.get(event_id=event_id)
        before = (room.screening, room.review_score)
        if when is not None:
            room.screening = when
        if review_score is not None:
            room.review_score = review_score or None
        if (room.screening, room.review_score) == before:
            return False
        room.save(update_fields=["screening", "review_score"])
        now = clock.now_on(cursor)
        detail = f"{describe(*before)} → {describe(room.screening, room.review_score)}"
        record_act(cursor, event_id, now, who, RoomAct.What.SCREENING, detail, why)
        transaction.on_commit(policies.clear)  # The other processes read it within two seconds.
    return True


def describe(when: str, review_score: int | None) -> str:
    """Return the settings in words."""
    review = "no review" if review_score is None else f"review from score {review_score}"
    return f"proof of work {when}, {review}"


def end_review(entry_id: uuid.UUID, *, who: str, why: str = "") -> bool:
    """End the entry's review: it waits with its number as if it had never been in review. If its number has been
    reached meanwhile, it gets priority, and this returns whether it is admitted now. Raises ActRefused."""
    event_id = QueueEntry.objects.filter(pk=entry_id).values_list("event_id", flat=True).first()
    if event_id is None:
        raise ActRefused("there is no such queue entry")
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        entry = QueueEntry.objects.select_for_update(no_key=True).get(pk=entry_id)
        if entry.status != QueueEntry.Status.REVIEW:
            raise ActRefused("this queue entry is not in review")
        now, admitted = clock.now_on(cursor), False
        operations.require_selling(room, now)
        if entry.number is not None and entry.number <= room.head:
            # The proof lists admissions behind the head as marked, and the audit checks that there are no others.
            admitted = operations.mark_priority(cursor, room, entry, QueueEntry.Mark.OPERATOR, now, also_paused=False)
        else:
            entry.status = QueueEntry.Status.WAITING
            entry.save(update_fields=["status"])
        record_act(cursor, event_id, now, who, RoomAct.What.REVIEW, operations.describe_entry(entry), why)
    return admitted
