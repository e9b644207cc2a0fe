"""The inbox of provider messages."""

from django.db import models
from django.db.models import Q

from apps.orders.models.payments import Payment


class ProviderMessage(models.Model):
    """A payment provider's message, stored once per message id, whether it came by webhook or as a response."""

    id = models.BigAutoField(primary_key=True)
    provider = models.CharField(max_length=20)
    message_id = models.CharField(max_length=120, help_text="The provider's.")
    kind = models.CharField(max_length=60)
    payment = models.ForeignKey(
        Payment, on_delete=models.PROTECT, null=True, blank=True, related_name="messages", help_text="Empty: not ours."
    )
    reference = models.CharField(max_length=120, help_text="The provider's id of the charge.")
    amount_minor = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=120)
    occurred_at = models.DateTimeField(help_text="The provider's time of the event, which decides.")
    refund_key = models.CharField(max_length=120, blank=True, help_text="Our refund's id, if we requested it.")
    refund_reference = models.CharField(max_length=120, blank=True, help_text="The provider's id of the refund.")
    failure = models.CharField(
        max_length=200, blank=True, help_text="The provider's text: why a refund failed, or the state of a dispute."
    )
    dispute_reference = models.CharField(max_length=120, blank=True, help_text="The provider's id of the dispute.")
    next_action = models.JSONField(
        null=True, blank=True, help_text="What the buyer must do; empty once it is processed."
    )
    raw = models.BinaryField(help_text="The bytes as received, without client secrets.")
    received_at = models.DateTimeField()
    processed_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=200, blank=True, help_text="What it changed.")

    class Meta:
        ordering = ["-received_at"]
        constraints = [
            models.UniqueConstraint(fields=["provider", "message_id"], name="provider_message_once"),
            models.CheckConstraint(
                condition=Q(processed_at__isnull=False) | Q(outcome=""), name="provider_message_outcome_has_time"
            ),
        ]
        indexes = [
            models.Index(
                fields=["received_at"], condition=Q(processed_at__isnull=True), name="provider_message_unprocessed"
            ),
            models.Index(
                fields=["provider", "dispute_reference"],
                condition=~Q(dispute_reference=""),
                name="provider_message_of_dispute",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.message_id}"
