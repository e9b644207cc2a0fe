"""The recorded sale of an event, read from its room's admissions and its entries."""

from datetime import datetime

from django.db.models import F

from apps.queue.calibration.runs import Batch, Run, Wait
from apps.queue.models import AdmissionBatch, QueueEntry, RateChange, WaitingRoom

ENTRIES_MAX = 200_000


def read_run(event_id: int) -> Run:
    """Return the event's sale so far. Entries that left before their turn, and priority entries, are not in it. Raises
    WaitingRoom.DoesNotExist."""
    room = WaitingRoom.objects.get(event_id=event_id)
    in_turn = AdmissionBatch.objects.filter(event_id=event_id).exclude(reason=AdmissionBatch.Reason.MARKED)
    rows = list(in_turn.order_by("at", "id").values_list("at", "count", "to_number", "active_count", "active_max"))
    first = rows[0][0] if rows else room.ticked_at

    def seconds(moment: datetime | None) -> float:
        assert first is not None
        assert moment is not None
        return (moment - first).total_seconds()

    batches, head = [], 0
    for at, count, to_number, active, active_max in rows:
        head = max(head, to_number)  # An entry that returns is behind the head.
        batches.append(Batch(seconds(at), count, head, active, active_max))
    entries = QueueEntry.objects.filter(event_id=event_id, number__isnull=False, marked="", ready_at__isnull=False)
    waited = entries.filter(ready_at__gte=F("joined_at")).order_by("number")
    waits = waited.values_list("number", "joined_at", "ready_at")[:ENTRIES_MAX]
    ended = entries.filter(ended_at__isnull=False).order_by("ended_at").values_list("ended_at", flat=True)
    changes = RateChange.objects.filter(event_id=event_id).order_by("at").values_list("at", "from_rate", "to_rate")
    rates = [(seconds(at), to_rate) for at, _, to_rate in changes]
    first_rate = float(changes[0][1]) if rates else float(room.rate_per_second)
    return Run(
        batches=batches,
        freed_at=[seconds(moment) for moment in ended[:ENTRIES_MAX]],
        rates=[(float("-inf"), first_rate), *rates],
        waits=[Wait(number or 0, seconds(joined), seconds(ready)) for number, joined, ready in waits],
        admission_seconds=room.admission_seconds,
    )
