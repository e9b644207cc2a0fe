"""What was done in and to a room, on record."""

from django.db import models
from django.db.models import Q


class AdmissionBatch(models.Model):
    """One admission of one or more entries: by the tick, by a join into an empty line, by an operator.

    Part of the public proof, which lists all of them: rows are never changed, and go only with the event.
    """

    class Reason(models.TextChoices):
        TICK = "tick", "their turn"
        EMPTY_LINE = "empty line", "nobody was ahead"
        OPERATOR = "operator", "an operator's hand"
        MARKED = "marked", "let through ahead of their turn"

    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField()
    reason = models.CharField(max_length=12, choices=Reason.choices)
    from_number = models.PositiveBigIntegerField()
    to_number = models.PositiveBigIntegerField()
    count = models.PositiveIntegerField()
    active_count = models.PositiveIntegerField(help_text="Slots that are not free, these included.")
    active_max = models.PositiveIntegerField(help_text="The cap in force.")
    epoch = models.PositiveBigIntegerField(help_text="The leader's; of the room as it stood for everybody else.")

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
    """Something done to a room: who, what, when and why. Written with the act, never changed."""

    class What(models.TextChoices):
        STATE = "state", "state"
        LIMITS = "limits", "rate and active max"
        ADMIT = "admit", "admitted by hand"
        REMOVE = "remove", "removed from the line"
        LET_THROUGH = "let in", "let through ahead of the turn"
        LINK = "vip link", "VIP link"
        MESSAGE = "message", "message to everybody waiting"
        DRAW = "draw", "lobby and draw"

    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField()
    who = models.CharField(max_length=150)
    what = models.CharField(max_length=10, choices=What.choices)
    detail = models.CharField(max_length=200)
    why = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["event", "at"], name="room_act_recent")]

    def __str__(self) -> str:
        return f"{self.who}: {self.what} {self.detail}"


class RateChange(models.Model):
    """The admission rate of a room was changed by the shop's health: from what, to what and why."""

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
