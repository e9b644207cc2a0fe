"""What access codes add to the checklist of a draft."""

from collections.abc import Iterator
from datetime import datetime

from django.urls import reverse

from apps.events import facade as events
from apps.reservations.models import AccessCode


def check_draft(draft: events.Draft, now: datetime) -> Iterator[events.Finding]:
    """Yield a warning if the presale needs an access code and there is none. Only reads."""
    on_sale = draft.on_sale
    if on_sale is None or on_sale.presale_condition != "code":
        return
    if not AccessCode.objects.filter(event_id=draft.event_id).exists():
        text = "The presale is for visitors with an access code, and the event has none yet."
        link = f"{reverse('admin:reservations_accesscode_add')}?event={draft.event_id}"
        yield events.Finding(events.Level.WARNING, text, link)
