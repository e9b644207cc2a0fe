"""VIP links."""

import uuid

from django.db import models


class VipLink(models.Model):
    """A signed link, valid once: the first visitor who redeems it is admitted with priority."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    event = models.ForeignKey("events.Event", on_delete=models.CASCADE, related_name="+")
    note = models.CharField(max_length=200, blank=True, help_text="For example its recipient.")
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)
    entry = models.ForeignKey(
        "queue.QueueEntry",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The entry that redeemed it.",
    )

    class Meta:
        verbose_name = "VIP link"
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(used_at__isnull=True, entry__isnull=True)
                | models.Q(used_at__isnull=False, entry__isnull=False),
                name="vip_link_used_by_somebody",
            ),
        ]

    def __str__(self) -> str:
        return self.note or str(self.id)
