"""Queue entries."""

import secrets
import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q


def new_nonce() -> bytes:
    """Return the random bytes that make an entry's leaf unguessable."""
    return secrets.token_bytes(16)


class QueueEntry(models.Model):
    """A position in an event's queue, of one account or one browser."""

    class Status(models.TextChoices):
        WAITING = "waiting", "waiting"  # → ready, left
        REVIEW = "review", "in review"  # → waiting, left; keeps its number, and is not admitted
        READY = "ready", "ready"  # → completed, expired, left; if unclaimed: away, or waiting by a late poll
        AWAY = "away", "away"  # → waiting, expired
        COMPLETED = "completed", "completed"
        EXPIRED = "expired", "expired"
        LEFT = "left", "left"

    class Mark(models.TextChoices):
        OPERATOR = "operator", "by an operator"
        VIP = "vip", "by a VIP link"

    LIVE = (Status.WAITING, Status.REVIEW, Status.READY, Status.AWAY)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    event = models.ForeignKey(
        # No index of its own: the unique constraint on event and number serves these look-ups.
        "events.Event",
        on_delete=models.CASCADE,
        related_name="queue_entries",
        db_index=False,
    )
    number = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty in the lobby until the draw.")
    in_lobby = models.BooleanField(default=False, help_text="Joined before the opening; its number is drawn.")
    nonce = models.BinaryField(
        max_length=16, default=new_nonce, help_text="Random; with the id it makes the leaf in the published proof."
    )
    marked = models.CharField(
        max_length=10,
        choices=Mark.choices,
        blank=True,
        default="",
        help_text="Admitted with priority: counts toward the caps, and is listed separately in the proof.",
    )
    account = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True)
    visitor_id = models.CharField(
        max_length=64, blank=True, help_text="The HMAC of the browser's secret; empty for accounts."
    )
    status = models.CharField(max_length=10, choices=Status.choices)
    joined_at = models.DateTimeField()
    ready_at = models.DateTimeField(null=True, blank=True)
    claim_expires_at = models.DateTimeField(
        null=True, blank=True, help_text="Admitted; loses its slot unless the visitor arrives before."
    )
    admission_expires_at = models.DateTimeField(
        null=True, blank=True, help_text="A reservation must be started before."
    )
    busy_until = models.DateTimeField(
        null=True, blank=True, help_text="A reservation occupies the slot until then; set by holds."
    )
    ended_at = models.DateTimeField(null=True, blank=True)
    score = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Points by which the join looked like a program; see the reasons."
    )
    reasons = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="Each reason for the score, with its points."
    )
    work = models.BinaryField(
        max_length=16, null=True, help_text="The id of the challenge or delay that the join used up."
    )
    network = models.BinaryField(
        max_length=12,
        null=True,
        help_text="Kind and keyed digest of the network that it joined from, until the report of the sale; empty: not "
        "recorded.",
    )
    presale_key = models.BinaryField(
        max_length=16, null=True, help_text="The key of the code that opened it in a presale; empty: none."
    )

    class Meta:
        verbose_name_plural = "queue entries"
        ordering = ["event", "number"]
        constraints = [
            models.UniqueConstraint(fields=["event", "number"], name="queue_entry_number_once_per_event"),
            models.UniqueConstraint(
                fields=["event", "account"],
                condition=Q(status__in=["waiting", "review", "ready", "away"], account__isnull=False),
                name="queue_entry_one_place_per_account",
            ),
            models.UniqueConstraint(
                fields=["event", "visitor_id"],
                condition=Q(status__in=["waiting", "review", "ready", "away"], account__isnull=True),
                name="queue_entry_one_place_per_visitor",
            ),
            models.UniqueConstraint(
                fields=["event", "work"], condition=Q(work__isnull=False), name="queue_entry_work_once"
            ),
            # Written without a bare comparison: a check of NULL is not false, so it passes.
            models.CheckConstraint(
                condition=Q(number__isnull=False, number__gte=1) | Q(number__isnull=True, in_lobby=True),
                name="queue_entry_has_number",
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
            models.Index(
                fields=["claim_expires_at"],
                name="queue_entry_unclaimed",
                condition=Q(status="ready", admission_expires_at__isnull=True),
            ),
            models.Index(fields=["claim_expires_at"], condition=Q(status="away"), name="queue_entry_away_expiry"),
            models.Index(fields=["event", "number"], condition=Q(status="waiting"), name="queue_entry_waiting_order"),
            models.Index(fields=["event"], condition=Q(status="ready"), name="queue_entry_ready_slots"),
            models.Index(fields=["event", "ended_at"], condition=Q(ended_at__isnull=False), name="queue_entry_endings"),
            models.Index(fields=["event"], condition=~Q(marked=""), name="queue_entry_marked"),
            models.Index(fields=["event"], condition=Q(status="review"), name="queue_entry_in_review"),
            models.Index(
                fields=["presale_key"],
                condition=Q(presale_key__isnull=False, status__in=["waiting", "review", "ready", "away"]),
                name="queue_entry_by_presale_key",
            ),
            # For polls about ended entries. Waiting entries are not in it, so joins do not maintain it.
            models.Index(
                fields=["event", "visitor_id"],
                condition=Q(ended_at__isnull=False, account__isnull=True),
                name="queue_entry_ended_visitor",
            ),
        ]

    def __str__(self) -> str:
        return f"number {self.number} for {self.event_id}"
