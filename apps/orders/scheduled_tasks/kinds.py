"""The kinds of tasks of this app. Each writes messages of the outbox in its run's transaction; the mails follow."""

from datetime import timedelta

from django import forms

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.outbox import facade as outbox
from apps.kernel.scheduler import facade as scheduler
from apps.orders import topics
from apps.orders.models import Reminder
from apps.orders.scheduled_tasks import reminders
from apps.orders.scheduled_tasks.figures_file import make_figures_file

REMIND = "orders.remind"
MAIL_FIGURES = "orders.mail_figures"
EXPORT_FIGURES = "orders.export_figures"
TEXT_CHARACTERS_MAX = 1_000
REMINDERS_MAX = 3
"""Reminders of one event within REMINDERS_WITHIN."""
REMINDERS_WITHIN = timedelta(hours=24)


def register() -> None:
    """Register the kinds of tasks of this app."""
    # An organizer's permission: box office and finance answer single buyers, but write to no one else.
    scheduler.register_task(
        REMIND, _remind, ReminderParams, label="Email a reminder to the buyers", permission="events.change_event",
        once_only=True,
    )  # fmt: skip
    scheduler.register_task(
        MAIL_FIGURES, _mail_figures, label="Email me the figures of the sale", permission="orders.view_order",
        is_slow=True,
    )  # fmt: skip
    scheduler.register_task(
        EXPORT_FIGURES, _export_figures, label="Export the figures of the sale to a file",
        permission="orders.view_order", idempotent=True, is_slow=True,
    )  # fmt: skip


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
    """Begin the reminder of each buyer with a valid ticket; of several orders with one address, of the first."""
    # Of two reminders at once the second one waits here, and then counts the first.
    events.lock_plan(run.event_id)
    event = events.get_event_by_id(run.event_id)
    if event.status != "published":
        raise scheduler.TaskFailed("the event is not published or was canceled, so its buyers get no reminder")
    if event.starts_at <= clock.now():
        raise scheduler.TaskFailed("the event has begun, so its buyers get no reminder")
    if Reminder.objects.filter(event_id=event.id, at__gt=clock.now() - REMINDERS_WITHIN).count() >= REMINDERS_MAX:
        raise scheduler.TaskFailed(
            f"the buyers of an event get at most {REMINDERS_MAX} reminders within 24 hours; run this one again later"
        )
    return f"{reminders.begin_reminder(run.id, event.id, run.params['text'])} emails"


def _mail_figures(run: scheduler.Run) -> str:
    outbox.publish(
        topics.SEND_FIGURES,
        str(run.id),
        {"event": run.event_id, "who": run.who, "account": run.account_id, "run": run.id},
    )
    return "1 email"


def _export_figures(run: scheduler.Run) -> scheduler.Outcome:
    event = events.get_staff_event(run.event_id)
    if event is None or event.is_draft:
        raise scheduler.TaskFailed("the event is not published, so there are no figures")
    return scheduler.Outcome("exported", make_figures_file(event))
