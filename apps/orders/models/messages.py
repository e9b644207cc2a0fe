"""The inbox: what payment providers say."""

from django.db import models
from django.db.models import Q

from apps.orders.models.payments import Payment


class ProviderMessage(models.Model):
    """The inbox: what a provider said, once per its own message id, whichever way it reached us."""

    id = models.BigAutoField(primary_key=True)
    provider = models.CharField(max_length=20)
    message_id = models.CharField(max_length=120, help_text="The provider's.")
    kind = models.CharField(max_length=60)
    payment = models.ForeignKey(
        Payment, on_delete=models.PROTECT, null=True, blank=True, related_name="messages", help_text="Empty: not ours."
    )
    reference = models.CharField(max_length=120, help_text="The charge it speaks of, in the provider's words.")
    amount_minor = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=120)
    occurred_at = models.DateTimeField(help_text="The provider's word for when; it decides.")
    refund_key = models.CharField(max_length=120, blank=True, help_text="Of a refund: our id of it, if it is ours.")
    refund_reference = models.CharField(max_length=120, blank=True, help_text="Of a refund, in the provider's words.")
    failure = models.CharField(
        max_length=200, blank=True, help_text="Why a refund failed, or how a dispute stands, in the provider's words."
    )
    dispute_reference = models.CharField(max_length=120, blank=True, help_text="Of a dispute, in the provider's words.")
    next_action = models.JSONField(null=True, blank=True, help_text="What the buyer must do for a pending charge.")
    raw = models.BinaryField(help_text="The bytes as they came.")
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
