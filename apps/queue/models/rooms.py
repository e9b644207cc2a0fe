"""Who may come in, and how fast: the waiting room of an event, and who leads the gatekeepers."""

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
    rate_floor = models.PositiveIntegerField(
        null=True, blank=True, help_text="The rate never falls below it by itself; empty: a tenth of the rate."
    )
    rate_now = models.FloatField(
        null=True, blank=True, help_text="What the shop's health allows now, between floor and rate; empty: the rate."
    )
    message = models.CharField(max_length=280, blank=True, help_text="What everybody waiting reads now.")
    message_at = models.DateTimeField(null=True, blank=True)
    chain_head = models.BinaryField(
        default=bytes, help_text="Of the first-come hash chain; empty before its first link."
    )
    lobby_opens_at = models.DateTimeField(null=True, blank=True, help_text="Empty: this room has no lobby.")
    lobby_count = models.PositiveBigIntegerField(
        default=0, help_text="Entries the lobby has had; the numbers up to it are the draw's."
    )
    numbered_through = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="While drawn numbers are being written: nobody above it is let in yet."
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(head__lt=models.F("next_number")), name="waiting_room_head_below_next"),
            models.CheckConstraint(condition=Q(rate_per_second__gte=1), name="waiting_room_rate_positive"),
            models.CheckConstraint(
                condition=Q(admission_seconds__gte=1, claim_seconds__gte=1), name="waiting_room_windows_positive"
            ),
            models.CheckConstraint(
                condition=Q(rate_now__isnull=True) | Q(rate_now__gt=0, rate_now__lte=models.F("rate_per_second")),
                name="waiting_room_rate_now_within_rate",
            ),
            models.CheckConstraint(
                condition=Q(next_number__gt=models.F("lobby_count")), name="waiting_room_next_number_after_lobby"
            ),
        ]

    def __str__(self) -> str:
        return f"waiting room of {self.event}"


class Leadership(models.Model):
    """One row: which gatekeeper leads. The epoch rises with every election and fences the one before."""

    name = models.CharField(max_length=20, primary_key=True)
    epoch = models.PositiveBigIntegerField(default=0)
    leader = models.CharField(max_length=120, blank=True)
    elected_at = models.DateTimeField(null=True, blank=True)
