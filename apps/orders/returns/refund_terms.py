"""What an event's page says about returns and refunds."""

from apps.kernel.formatting import format_duration
from apps.orders.models import ReturnPolicy

CANCELED = "If the event is canceled, you get your money back automatically."


def describe_refunds(event_id: int) -> str:
    """Return the sentences for the event's page, from its return policy."""
    policy = ReturnPolicy.objects.filter(pk=event_id).first()
    if policy is None:
        return f"Tickets cannot be returned. {CANCELED}"
    hours = policy.until_hours
    deadline = f"until {format_duration(hours * 3_600)} before the start" if hours else "until the start"
    fees = "the price without fees" if policy.keeps_fees else "the price with fees"
    return f"You can return tickets {deadline} and get {fees} back. {CANCELED}"
