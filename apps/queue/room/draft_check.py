"""What the waiting room adds to the checklist of a draft."""

from collections.abc import Iterator
from datetime import datetime

from django.conf import settings

from apps.events import facade as events
from apps.kernel.formatting import format_duration
from apps.queue.models import WaitingRoom


def check_draft(draft: events.Draft, now: datetime) -> Iterator[events.Finding]:
    """Yield what is unsafe about the draft's waiting room. Only reads."""
    on_sale = draft.on_sale
    if on_sale is None or not on_sale.has_room:
        return
    admission_seconds: int = WaitingRoom._meta.get_field("admission_seconds").default
    if on_sale.hold_seconds > admission_seconds:
        text = (
            f"Seats stay reserved for {format_duration(on_sale.hold_seconds)}, longer than the "
            f"{format_duration(admission_seconds)} of an admission: visitors who do not pay keep their place in the "
            "shop for the longer time, so the line moves more slowly."
        )
        yield events.Finding(events.Level.WARNING, text, draft.form_link("on_sale-group"))
    if on_sale.lobby_opens_at is not None and not settings.QUEUE_BEACON_URL:
        text = "The draw of the lobby uses no public beacon: it will be called consistent, not operator-proof."
        yield events.Finding(events.Level.WARNING, text)
