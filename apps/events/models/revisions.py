"""Changes to a published event: who changed what, when and why."""

from django.db import models

MESSAGE_LENGTH_MAX = 4_000


class EventChange(models.Model):
    """A change to a published event's dates, on-sale, limits or fees. A trigger makes the table append-only.

    `before` and `after` have all values of the kind: those before the first change since a reservation are the terms
    under which it was made.
    """

    class Kind(models.TextChoices):
        SCHEDULE = "schedule", "date and time"
        ON_SALE = "on_sale", "on-sale"
        LIMITS = "limits", "limits"
        FEES = "fees", "fees and tax"

    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="changes")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    at = models.DateTimeField()
    effective_at = models.DateTimeField(
        help_text="From then on the new limits and fees hold for new reservations: every process knows them."
    )
    who = models.CharField(max_length=150)
    why = models.CharField(max_length=200)
    message = models.TextField(blank=True, max_length=MESSAGE_LENGTH_MAX, help_text="To the buyers.")
    before = models.JSONField()
    after = models.JSONField()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["event", "effective_at"], name="event_change_effective")]

    def __str__(self) -> str:
        return f"{self.event}: {self.get_kind_display()}, {self.at:%Y-%m-%d %H:%M}"
