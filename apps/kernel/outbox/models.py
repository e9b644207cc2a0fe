"""Outbox messages: written with their change, delivered after its commit, at least once."""

from django.db import models
from django.db.models import Q


class OutboxMessage(models.Model):
    """pending (claimed_until empty or passed) → claimed → done | pending again | dead.

    Messages of one topic and key are delivered in the order of their ids; different keys run in parallel. Concurrent
    writers of one key must hold a common lock (the order's row, for example): otherwise ids may not follow commits.
    """

    id = models.BigAutoField(primary_key=True)
    topic = models.CharField(max_length=80)
    key = models.CharField(max_length=254, help_text="Messages of one key are delivered in order.")
    body = models.JSONField()
    partition = models.SmallIntegerField(
        db_default=0, help_text="Messages of one topic are claimed from its partitions in turn."
    )
    created_at = models.DateTimeField()
    available_at = models.DateTimeField(help_text="Not delivered before.")
    is_behind = models.BooleanField(
        default=False, help_text="Put aside until an earlier message of its key has been settled."
    )
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="Time of the latest claim.")
    claimed_until = models.DateTimeField(null=True, blank=True, help_text="No other worker may claim it before.")
    receipt = models.UUIDField(
        null=True, blank=True, help_text="Identifies the claim; only its holder may settle the message."
    )
    attempts = models.PositiveSmallIntegerField(default=0)
    done_at = models.DateTimeField(null=True, blank=True)
    dead_at = models.DateTimeField(
        null=True, blank=True, help_text="Given up after the last attempt, until an operator retries it."
    )
    last_error = models.TextField(blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(done_at__isnull=True) | Q(dead_at__isnull=True), name="outbox_message_settled_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["topic", "partition", "available_at", "id"],
                condition=Q(done_at__isnull=True, dead_at__isnull=True, is_behind=False),
                name="outbox_message_due",
            ),
            models.Index(fields=["dead_at"], condition=Q(dead_at__isnull=False), name="outbox_message_dead"),
            models.Index(
                fields=["topic", "key", "id"],
                condition=Q(done_at__isnull=True, dead_at__isnull=True),
                name="outbox_message_pending_key",
            ),
            models.Index(fields=["done_at"], condition=Q(done_at__isnull=False), name="outbox_message_done"),
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.key}"
