"""Who may come in: the waiting room of an event and the entries in its line."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q


class WaitingRoom(models.Model):
    """One per event. Its row is the first lock of the whole system: numbers are handed out under it, never by a
    sequence (a number committed late would be passed by the head and wait for ever)."""

    class State(models.TextChoices):
        OFF = "off", "off: everyone is ready at once"
        CLOSED = "closed", "closed"
        LOBBY = "lobby", "lobby"
        OPEN = "open", "open"
        PAUSED = "paused", "paused"
        DRAINED = "drained", "drained"

    event = models.OneToOneField(
        "events.Event", on_delete=models.CASCADE, primary_key=True, related_name="waiting_room"
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.OFF)
    rate_per_second = models.PositiveIntegerField(default=50)
    active_max = models.PositiveIntegerField(default=500, help_text="People shopping at once.")
    claim_seconds = models.PositiveIntegerField(default=120, help_text="Time to come when it is your turn.")
    admission_seconds = models.PositiveIntegerField(default=300, help_text="Time to start a reservation once in.")
    next_number = models.PositiveBigIntegerField(default=1)
    head = models.PositiveBigIntegerField(default=0, help_text="Numbers up to this one have been reached.")
    epoch = models.PositiveBigIntegerField(default=0, help_text="The leader that ticked last; an older one is fenced.")
    ticked_at = models.DateTimeField(null=True, blank=True, help_text="Up to then the rate has been counted out.")
    budget = models.FloatField(
        default=0, help_text="Admissions the rate allows now, fractions carried; below zero after an operator's hand."
    )
    supply_available = models.PositiveIntegerField(null=True, blank=True, help_text="What is free; empty: not known.")
    supply_held = models.PositiveIntegerField(null=True, blank=True, help_text="Held, so it may come back.")
    supply_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(head__lt=models.F("next_number")), name="waiting_room_head_below_next"),
            models.CheckConstraint(condition=Q(rate_per_second__gte=1), name="waiting_room_rate_positive"),
            models.CheckConstraint(
                condition=Q(admission_seconds__gte=1, claim_seconds__gte=1), name="waiting_room_windows_positive"
            ),
        ]

    def __str__(self) -> str:
        return f"waiting room of {self.event}"


class QueueEntry(models.Model):
    """One place of one account or one browser."""

    class Status(models.TextChoices):
        WAITING = "waiting", "waiting"  # → ready, left
        READY = "ready", "ready"  # → completed, expired, left; while unclaimed: away, or waiting by a poll that is late
        AWAY = "away", "away"  # → waiting, expired
        COMPLETED = "completed", "completed"
        EXPIRED = "expired", "expired"
        LEFT = "left", "left"

    LIVE = (Status.WAITING, Status.READY, Status.AWAY)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="queue_entries")
    number = models.PositiveBigIntegerField()
    account = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True)
    visitor_id = models.CharField(max_length=64, blank=True, help_text="The browser's random id; empty for accounts.")
    status = models.CharField(max_length=10, choices=Status.choices)
    joined_at = models.DateTimeField()
    ready_at = models.DateTimeField(null=True, blank=True)
    claim_expires_at = models.DateTimeField(
        null=True, blank=True, help_text="Admitted by its number: until then it must come, or it loses the slot."
    )
    admission_expires_at = models.DateTimeField(
        null=True, blank=True, help_text="Until then a reservation may be started."
    )
    busy_until = models.DateTimeField(
        null=True, blank=True, help_text="A live reservation keeps the slot until then; set by the hold."
    )
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "queue entries"
        ordering = ["event", "number"]
        constraints = [
            models.UniqueConstraint(fields=["event", "number"], name="queue_entry_number_once_per_event"),
            models.UniqueConstraint(
                fields=["event", "account"],
                condition=Q(status__in=["waiting", "ready", "away"], account__isnull=False),
                name="queue_entry_one_place_per_account",
            ),
            models.UniqueConstraint(
                fields=["event", "visitor_id"],
                condition=Q(status__in=["waiting", "ready", "away"], account__isnull=True),
                name="queue_entry_one_place_per_visitor",
            ),
            models.CheckConstraint(
                condition=Q(account__isnull=False, visitor_id="") | (Q(account__isnull=True) & ~Q(visitor_id="")),
                name="queue_entry_has_one_identity",
            ),
            models.CheckConstraint(
                condition=~Q(status="ready")
                | (
                    Q(ready_at__isnull=False)
                    & (Q(admission_expires_at__isnull=False) | Q(claim_expires_at__isnull=False))
                ),
                name="queue_entry_ready_has_deadline",
            ),
        ]
        indexes = [
            models.Index(fields=["admission_expires_at"], condition=Q(status="ready"), name="queue_entry_ready_expiry"),
            models.Index(fields=["claim_expires_at"], condition=Q(status="away"), name="queue_entry_away_expiry"),
            models.Index(fields=["event", "number"], condition=Q(status="waiting"), name="queue_entry_waiting_order"),
            models.Index(fields=["event"], condition=Q(status="ready"), name="queue_entry_ready_slots"),
        ]

    def __str__(self) -> str:
        return f"number {self.number} for {self.event_id}"


class AdmissionBatch(models.Model):
    """One admission of one or more entries: by the tick, by a join into an empty line, by an operator."""

    class Reason(models.TextChoices):
        TICK = "tick", "their turn"
        EMPTY_LINE = "empty line", "nobody was ahead"
        OPERATOR = "operator", "an operator's hand"

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


class Leadership(models.Model):
    """One row: which gatekeeper leads. The epoch rises with every election and fences the one before."""

    name = models.CharField(max_length=20, primary_key=True)
    epoch = models.PositiveBigIntegerField(default=0)
    leader = models.CharField(max_length=120, blank=True)
    elected_at = models.DateTimeField(null=True, blank=True)
