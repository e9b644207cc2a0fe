"""Waiting rooms, and the leadership of the gatekeepers."""

from django.db import models
from django.db.models import Q


class WaitingRoom(models.Model):
    """The waiting room of one event. Its row is the first lock of the lock order.

    Numbers are assigned under this lock. With a sequence, the head could pass a number that commits late, and its entry
    would wait forever.
    """

    class State(models.TextChoices):
        OFF = "off", "off: every visitor is admitted at once"
        CLOSED = "closed", "closed"
        LOBBY = "lobby", "lobby"
        OPEN = "open", "open"
        PAUSED = "paused", "paused"
        DRAINED = "drained", "drained"

    class Screening(models.TextChoices):
        OFF = "off", "off"
        PRESSURE = "pressure", "under pressure: many joins at once, or many from one address"
        ON = "on", "on: every join needs proof of work"

    event = models.OneToOneField(
        "events.Event", on_delete=models.CASCADE, primary_key=True, related_name="waiting_room"
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.OFF)
    rate_per_second = models.PositiveIntegerField("rate", default=50, help_text="Visitors admitted per second.")
    active_max = models.PositiveIntegerField("cap", default=500, help_text="Visitors who may shop at the same time.")
    claim_seconds = models.PositiveIntegerField(
        "time to claim, seconds", default=120, help_text="How long an admitted visitor may take to come."
    )
    admission_seconds = models.PositiveIntegerField(
        "time to choose, seconds", default=300, help_text="How long a visitor may take to reserve tickets."
    )
    next_number = models.PositiveBigIntegerField(default=1)
    head = models.PositiveBigIntegerField(
        "number reached", default=0, help_text="The highest number whose turn has come."
    )
    epoch = models.PositiveBigIntegerField(
        default=0, help_text="The epoch of the latest leader; earlier leaders are refused."
    )
    ticked_at = models.DateTimeField(null=True, blank=True, help_text="The budget is calculated up to this time.")
    budget = models.FloatField(
        default=0, help_text="Admissions that the rate allows now, with fractions; negative after manual admissions."
    )
    supply_available = models.PositiveIntegerField(null=True, blank=True, help_text="Free tickets; empty: unknown.")
    supply_held = models.PositiveIntegerField(null=True, blank=True, help_text="Held tickets, which may become free.")
    supply_at = models.DateTimeField(null=True, blank=True)
    rate_floor = models.PositiveIntegerField(
        "lowest rate", null=True, blank=True, help_text="Rate control never goes below it; empty: a tenth of the rate."
    )
    rate_now = models.FloatField(
        "current rate",
        null=True,
        blank=True,
        help_text="The rate allowed by rate control, between floor and rate; empty: the rate.",
    )
    message = models.CharField(max_length=280, blank=True, help_text="Shown to waiting visitors.")
    message_at = models.DateTimeField(null=True, blank=True)
    chain_head = models.BinaryField(
        default=bytes, help_text="Head of the first-come hash chain; empty before its first link."
    )
    erased_at = models.DateTimeField(
        null=True, blank=True, help_text="When the identities in its ended queue were erased."
    )
    lobby_opens_at = models.DateTimeField(null=True, blank=True, help_text="Empty: the room has no lobby.")
    lobby_count = models.PositiveBigIntegerField(
        default=0, help_text="Entries of the lobby; the draw assigns the numbers up to it."
    )
    numbered_through = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="While drawn numbers are being written: no higher number is admitted yet."
    )
    network_key = models.BinaryField(
        max_length=32,
        null=True,
        default=bytes,
        db_default=b"",
        help_text="The key of the digests of networks; empty before the first one, NULL once it was deleted.",
    )
    networks_erased_at = models.DateTimeField(
        null=True, blank=True, help_text="When the last digest was blanked, after the key was deleted."
    )
    screening = models.CharField(
        "proof of work",
        max_length=10,
        choices=Screening.choices,
        default=Screening.OFF,
        db_default=Screening.OFF,
        help_text="When a join needs proof of work.",
    )
    review_score = models.PositiveSmallIntegerField(
        "review from score",
        null=True,
        blank=True,
        help_text="Joins with this score or more wait for your review, with the reasons beside them; empty: none do.",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(review_score__isnull=True) | Q(review_score__gte=1), name="waiting_room_review_score_sane"
            ),
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
    """The leading gatekeeper, one row. Each election raises the epoch, so that earlier leaders are refused."""

    name = models.CharField(max_length=20, primary_key=True)
    epoch = models.PositiveBigIntegerField(default=0)
    leader = models.CharField(max_length=120, blank=True)
    elected_at = models.DateTimeField(null=True, blank=True)
