"""What a change of an event means for its orders: its mass cancellation with the orders that failed, and the notices of
a new date with the return window that it opens."""

from django.db import models
from django.db.models import Q

from apps.orders.models.orders import Order
from apps.orders.models.tickets import TicketTransfer

WORDS_LENGTH_MAX = 4_000


class EventCancellation(models.Model):
    """A running or finished cancellation of an event. Its counts are recomputed from the orders, so they cannot
    drift."""

    event = models.OneToOneField("events.Event", on_delete=models.PROTECT, primary_key=True, related_name="+")
    words = models.TextField(
        "message to the buyers",
        max_length=WORDS_LENGTH_MAX,
        help_text="Sent in one email per order.",
    )
    started_by = models.CharField(max_length=120)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    counted_at = models.DateTimeField()
    orders_left = models.PositiveIntegerField(default=0, help_text="Not processed yet, without the failed ones.")
    orders_done = models.PositiveIntegerField(default=0)
    orders_failed = models.PositiveIntegerField(default=0)
    reservations_done = models.PositiveIntegerField(default=0, help_text="Holds without an order that were ended.")
    refunded_minor = models.PositiveBigIntegerField(default=0, help_text="Refunded or being refunded.")

    class Meta:
        ordering = ["-started_at"]
        constraints = [models.CheckConstraint(condition=~Q(words=""), name="event_cancellation_has_words")]

    def __str__(self) -> str:
        return f"{self.event}: {self.orders_done} of {self.orders_total} orders processed"

    @property
    def orders_total(self) -> int:
        return self.orders_done + self.orders_left + self.orders_failed


class CancellationFailure(models.Model):
    """An order that failed in its event's cancellation; retried when the cancellation is resumed."""

    order = models.OneToOneField(Order, on_delete=models.PROTECT, primary_key=True, related_name="+")
    cancellation = models.ForeignKey(EventCancellation, on_delete=models.PROTECT, related_name="failures")
    error = models.CharField(max_length=500)
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at"]

    def __str__(self) -> str:
        return self.error


class Reminder(models.Model):
    """An organizer's reminder to the buyers of an event, which one run of a scheduled task has begun. `position` is the
    digest of the last address that has its message; `batches` counts the messages written for it."""

    run = models.BigIntegerField(primary_key=True, help_text="The run's id. Runs are deleted after their time.")
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+")
    text = models.TextField()
    at = models.DateTimeField()
    batches = models.PositiveIntegerField(default=0)
    position = models.CharField(max_length=64, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True, help_text="When no address without a message was left.")

    class Meta:
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"{self.event}: reminder of {self.at:%Y-%m-%d %H:%M}"


class ScheduleNotice(models.Model):
    """The notice of one change of an event's date and times."""

    change = models.OneToOneField("events.EventChange", on_delete=models.PROTECT, primary_key=True, related_name="+")
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField()
    held_until = models.DateTimeField(
        help_text="Orders whose seats were reserved until then get a mail: their buyers may not have seen the change."
    )
    return_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then these orders may be returned, fees included; empty: no window."
    )
    finished_at = models.DateTimeField(null=True, blank=True, help_text="When no order without a mail was left.")

    class Meta:
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"{self.event}: notice of {self.at:%Y-%m-%d %H:%M}"


class ScheduleMail(models.Model):
    """A mail of a notice, to the buyer of an order or to the recipient of a transferred ticket: one for each address.
    (If several buyers paid with it, one for each of them.) Only the order or the transfer has the address."""

    notice = models.ForeignKey(ScheduleNotice, on_delete=models.CASCADE, related_name="mails")
    order = models.ForeignKey(Order, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    transfer = models.ForeignKey(TicketTransfer, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["notice", "order"], name="schedule_mail_once_per_order"),
            models.UniqueConstraint(fields=["notice", "transfer"], name="schedule_mail_once_per_transfer"),
            models.CheckConstraint(
                condition=Q(order__isnull=False, transfer__isnull=True) | Q(order__isnull=True, transfer__isnull=False),
                name="schedule_mail_has_one_recipient",
            ),
        ]

    def __str__(self) -> str:
        return f"mail {self.pk} of {self.notice_id}"
