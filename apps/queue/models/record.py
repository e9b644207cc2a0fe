"""Records of a room: admissions, operations, rate changes."""

from django.db import models
from django.db.models import Q


class AdmissionBatch(models.Model):
    """An admission of one or more entries: by a tick, a join into an empty queue, or an operator.

    The public proof lists all batches: rows are never changed, and are deleted only with the event.
    """

    class Reason(models.TextChoices):
        TICK = "tick", "their turn"
        EMPTY_LINE = "empty line", "no entry was ahead"
        OPERATOR = "operator", "by an operator"
        MARKED = "marked", "priority"

    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField()
    reason = models.CharField(max_length=12, choices=Reason.choices)
    from_number = models.PositiveBigIntegerField()
    to_number = models.PositiveBigIntegerField()
    count = models.PositiveIntegerField()
    active_count = models.PositiveIntegerField(help_text="Occupied slots, including these.")
    active_max = models.PositiveIntegerField(help_text="The cap at that time.")
    epoch = models.PositiveBigIntegerField(help_text="The leader's epoch, or the room's for other admissions.")

    class Meta:
        verbose_name_plural = "admission batches"
        ordering = ["-id"]
        indexes = [models.Index(fields=["event", "at"], name="admission_batch_recent")]
        constraints = [
            models.CheckConstraint(condition=Q(count__gte=1), name="admission_batch_admits_somebody"),
            models.CheckConstraint(
                condition=Q(active_count__lte=models.F("active_max")), name="admission_batch_within_cap"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.count} admitted, numbers {self.from_number} to {self.to_number}"


class RoomAct(models.Model):
    """An operation on a room: operator, time, change and reason. Written with the change, never updated. A refused
    operation has a row too, which says why it was refused."""

    class What(models.TextChoices):
        STATE = "state", "state"
        LIMITS = "limits", "rate and active max"
        ADMIT = "admit", "admitted manually"
        REMOVE = "remove", "removed from the queue"
        LET_THROUGH = "let in", "given priority"
        LINK = "vip link", "VIP link"
        MESSAGE = "message", "message to waiting visitors"
        DRAW = "draw", "lobby and draw"
        SCREENING = "screening", "proof of work and review"
        REVIEW = "review", "ended a review"

    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField()
    who = models.CharField(max_length=150)
    what = models.CharField(max_length=10, choices=What.choices)
    detail = models.CharField(max_length=200)
    why = models.CharField(max_length=200, blank=True)
    refusal = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="Why nothing was changed; empty: performed."
    )

    class Meta:
        verbose_name = "entry of the waiting-room log"
        verbose_name_plural = "waiting-room log"
        ordering = ["-id"]
        indexes = [models.Index(fields=["event", "at"], name="room_act_recent")]

    def __str__(self) -> str:
        return f"{self.who}: {self.what} {self.detail}"


class RateChange(models.Model):
    """A change of a room's admission rate by rate control, with its reason."""

    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField()
    from_rate = models.FloatField(help_text="Per second.")
    to_rate = models.FloatField(help_text="Per second.")
    reason = models.CharField(max_length=200)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["event", "at"], name="rate_change_recent")]

    def __str__(self) -> str:
        return f"{self.from_rate:g}/s → {self.to_rate:g}/s: {self.reason}"
