"""The kinds of tasks of this app. Each writes messages of the outbox in its run's transaction; the mails follow."""

from typing import Any

from django import forms

from apps.events import facade as events
from apps.kernel.db import sql
from apps.kernel.outbox import facade as outbox
from apps.kernel.scheduler import facade as scheduler
from apps.orders import topics
from apps.orders.models import Order

REMIND = "orders.remind"
MAIL_FIGURES = "orders.mail_figures"
TEXT_CHARACTERS_MAX = 1_000


def register() -> None:
    """Register the kinds of tasks of this app."""
    scheduler.register_task(
        REMIND, _remind, ReminderParams, label="Email a reminder to the buyers", permission="orders.change_order"
    )
    scheduler.register_task(
        MAIL_FIGURES, _mail_figures, label="Email me the figures of the sale", permission="orders.view_order"
    )


class ReminderParams(scheduler.TaskParams):
    text = forms.CharField(
        max_length=TEXT_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 5}),
        label="Text of the email",
        help_text="Plain text. The email adds the event, its date and place, and the link to the order.",
    )

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"].strip()
        if not sql.is_text(text):
            raise forms.ValidationError("The text has characters that cannot be stored.")
        return text


def _remind(run: scheduler.Run) -> str:
    """Write a message for each buyer with a valid ticket; of several orders with one address, for the first."""
    event = events.get_event_by_id(run.event_id)
    if event.status != "published":
        raise scheduler.TaskFailed("the event is canceled, so its buyers get no reminder")
    orders = Order.objects.filter(event_id=event.id, status__in=Order.STANDING)
    order_ids = orders.order_by("email", "placed_at", "pk").distinct("email").values_list("pk", flat=True)
    messages = [
        outbox.NewMessage(topics.SEND_REMINDER, str(order_id), _reminder(order_id, run))
        for order_id in sorted(order_ids)
    ]
    if messages:
        outbox.publish_all(messages)
    return f"{len(messages)} emails"


def _reminder(order_id: Any, run: scheduler.Run) -> dict[str, Any]:
    return {"order": str(order_id), "text": run.params["text"], "run": run.id}


def _mail_figures(run: scheduler.Run) -> str:
    outbox.publish(topics.SEND_FIGURES, str(run.id), {"event": run.event_id, "who": run.who, "run": run.id})
    return "1 email"
