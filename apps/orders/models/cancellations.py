"""The mass cancellation of an event: its progress, and the orders that failed."""

from django.db import models
from django.db.models import Q

from apps.orders.models.orders import Order

WORDS_LENGTH_MAX = 4_000


class EventCancellation(models.Model):
    """A running or finished cancellation of an event. Its counts are recomputed from the orders, so they cannot
    drift."""

    event = models.OneToOneField("events.Event", on_delete=models.PROTECT, primary_key=True, related_name="+")
    words = models.TextField(
        "message to the buyers",
        max_length=WORDS_LENGTH_MAX,
        help_text="Sent in one mail per order.",
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
