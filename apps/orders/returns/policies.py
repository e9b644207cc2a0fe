"""Return policies of events, for the creation of events in the app below."""

from apps.events.facade import ReturnTerms
from apps.orders.models import ReturnPolicy
from apps.orders.models.returns import HOURS_MAX


class EventReturnPolicies:
    """Keeps the return policies of events."""

    def read(self, event_id: int) -> ReturnTerms | None:
        row = ReturnPolicy.objects.filter(event_id=event_id).first()
        return None if row is None else ReturnTerms(row.until_hours, row.keeps_fees)

    def write(self, event_id: int, terms: ReturnTerms) -> None:
        if not 0 <= terms.until_hours <= HOURS_MAX:
            raise ValueError(f"hours for returns must be between 0 and {HOURS_MAX}, not {terms.until_hours}")
        ReturnPolicy.objects.update_or_create(
            event_id=event_id, defaults={"until_hours": terms.until_hours, "keeps_fees": terms.keeps_fees}
        )
