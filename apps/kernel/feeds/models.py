"""Feeds and their messages."""

from django.db import models
from django.db.models import F, Q

NAME_LENGTH_MAX = 80
NAME_PATTERN = f"^[a-z0-9][a-z0-9-]{{0,{NAME_LENGTH_MAX - 1}}}$"
ID_LENGTH_MAX = 128
BODY_BYTES_MAX = 64 * 1024


class Feed(models.Model):
    """A named queue of one organizer. Its row is locked by everything that changes the counts or a key's order."""

    organizer_id = models.BigIntegerField(help_text="A plain id: the kernel knows no organizers.")
    name = models.CharField(max_length=NAME_LENGTH_MAX)
    retention_seconds = models.PositiveIntegerField(help_text="Messages are deleted this long after they were sent.")
    receives_max = models.PositiveIntegerField(help_text="After so many receives a message becomes a dead letter.")
    next_sequence = models.BigIntegerField(default=1)
    message_count = models.BigIntegerField(default=0, help_text="Messages that are not deleted, with dead letters.")
    byte_count = models.BigIntegerField(default=0, help_text="The size of their bodies.")
    dead_count = models.BigIntegerField(default=0)
    deleted_count = models.BigIntegerField(default=0, help_text="Rows of deleted messages, kept for repetitions.")
    created_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True, help_text="Its messages and then its row are deleted.")

    class Meta:
        ordering = ["organizer_id", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["organizer_id", "name"], condition=Q(deleted_at__isnull=True), name="feed_name_once"
            ),
            models.CheckConstraint(
                condition=Q(dead_count__gte=0, message_count__gte=F("dead_count"), byte_count__gte=0)
                & Q(deleted_count__gte=0, next_sequence__gte=1),
                name="feed_has_counts",
            ),
            models.CheckConstraint(condition=Q(retention_seconds__gte=1, receives_max__gte=1), name="feed_has_limits"),
        ]

    def __str__(self) -> str:
        return self.name


class Message(models.Model):
    """A message in a feed. While it is in flight, it is ready with a `visible_at` in the future."""

    class State(models.TextChoices):
        BEHIND = "behind", "behind an earlier message of its key"  # → ready
        READY = "ready", "ready or in flight"  # → deleted, dead
        DEAD = "dead", "dead letter"  # → ready or behind (redriven), deleted
        DELETED = "deleted", "deleted"

    id = models.BigAutoField(primary_key=True)
    feed = models.ForeignKey(Feed, on_delete=models.PROTECT, related_name="+", db_index=False)
    sequence = models.BigIntegerField(help_text="Its position in the feed; a redriven message gets a new one.")
    message_id = models.CharField(max_length=ID_LENGTH_MAX, help_text="Given by its sender.")
    key = models.CharField(max_length=ID_LENGTH_MAX, null=True, help_text="Messages of one key are received in order.")  # noqa: DJ001 - no key is not an empty key
    body = models.TextField(help_text="JSON; empty once the message is deleted.")
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of key and body, to recognize repetitions.")
    state = models.CharField(max_length=8, choices=State.choices)
    sent_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    visible_at = models.DateTimeField(help_text="When it can be received next, if it is ready.")
    receives = models.PositiveIntegerField(default=0)
    receives_left = models.PositiveIntegerField()
    receipt = models.UUIDField(null=True, help_text="The latest receive; only its holder may delete or extend.")
    received_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, help_text="When it was deleted, or became a dead letter.")

    class Meta:
        ordering = ["feed", "sequence"]
        constraints = [
            models.UniqueConstraint(fields=["feed", "sequence"], name="feeds_message_sequence_once"),
            models.UniqueConstraint(fields=["feed", "message_id"], name="feeds_message_id_once"),
            models.CheckConstraint(
                condition=Q(state__in=["behind", "ready"], ended_at__isnull=True)
                | Q(state__in=["dead", "deleted"], ended_at__isnull=False),
                name="feeds_message_has_state",
            ),
            models.CheckConstraint(
                condition=~Q(state="behind") | (Q(key__isnull=False) & Q(receives=0)), name="feeds_message_behind_a_key"
            ),
            models.CheckConstraint(
                condition=Q(receives=0) | Q(receipt__isnull=False, received_at__isnull=False),
                name="feeds_message_has_receipt",
            ),
            models.CheckConstraint(condition=~Q(state="deleted") | Q(body=""), name="feeds_message_keeps_no_body"),
        ]
        indexes = [
            models.Index(
                fields=["feed", "visible_at", "sequence"],
                condition=Q(state="ready", receives_left__gt=0),
                name="feeds_message_due",
            ),
            models.Index(
                fields=["feed", "visible_at"],
                condition=Q(state="ready", receives_left=0),
                name="feeds_message_exhausted",
            ),
            models.Index(
                fields=["feed", "key", "sequence"],
                condition=Q(state__in=["ready", "behind"], key__isnull=False),
                name="feeds_message_key",
            ),
            models.Index(fields=["feed", "sequence"], condition=Q(state="dead"), name="feeds_message_dead"),
            models.Index(fields=["feed", "ended_at"], condition=Q(state="deleted"), name="feeds_message_deleted"),
            models.Index(fields=["feed", "expires_at"], condition=~Q(state="deleted"), name="feeds_message_expiry"),
        ]

    def __str__(self) -> str:
        return self.message_id
