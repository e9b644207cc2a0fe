"""What a change of a published event means for its live reservations: it leaves them as they are."""

from collections.abc import Iterator

from django.db.models import Sum

from apps.events import facade as events
from apps.reservations.models import Reservation

_KEPT: dict[str, str] = {
    events.ChangeKind.SCHEDULE: "Their pages show the new date and time; their deadlines stay as they are.",
    events.ChangeKind.ON_SALE: "They keep their deadlines and can still be paid, also after sales end.",
    events.ChangeKind.LIMITS: "They keep their deadlines and their size.",
    events.ChangeKind.FEES: "They keep the fees and the tax that their buyers saw.",
}


class ReservationChange:
    """Counts the live reservations. A change leaves them as they are: their deadlines are in their rows, and their
    terms are those of the time at which they were made."""

    def describe(self, proposal: events.Proposal) -> Iterator[str]:
        live = Reservation.objects.filter(event_id=proposal.event.id, status__in=Reservation.LIVE)
        count, tickets = live.count(), live.aggregate(sum=Sum("seat_count"))["sum"] or 0
        if count:
            noun = "reservation is" if count == 1 else "reservations are"
            yield f"{count:,} {noun} live ({tickets:,} ticket{'' if tickets == 1 else 's'}). {_KEPT[proposal.kind]}"

    def apply(self, proposal: events.Proposal, change_id: int) -> None:
        pass
