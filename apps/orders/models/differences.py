"""Differences between a provider's books and ours, and the days that were compared."""

from django.db import models
from django.db.models import Q

from apps.orders.models.orders import Order


class PaymentDifference(models.Model):
    """One difference, stored once however often it is found. It changes no money: staff resolve it and leave a note."""

    class Kind(models.TextChoices):
        UNKNOWN_CAPTURE = "unknown_capture", "captured at the provider, but not a payment of ours"
        UNSETTLED_CAPTURE = "unsettled_capture", "captured at the provider, but our payment has not succeeded"
        CAPTURE_AMOUNT = "capture_amount", "captured at the provider with another amount"
        MISSING_CAPTURE = "missing_capture", "captured in our books, but unknown to the provider"
        UNKNOWN_REFUND = "unknown_refund", "refunded at the provider, but not a refund of ours"
        UNSETTLED_REFUND = "unsettled_refund", "refunded at the provider, but our refund has not succeeded"
        REFUND_AMOUNT = "refund_amount", "refunded at the provider with another amount"
        MISSING_REFUND = "missing_refund", "refunded in our books, but unknown to the provider"
        FAILED_REFUND = "failed_refund", "a refund failed: the buyer is still owed it"
        DISPUTE = "dispute", "disputed by the buyer: respond at the provider"
        DISPUTED_MONEY = "disputed_money", "withdrawn by the bank because of a dispute"

    NOT_COMPARED = (Kind.FAILED_REFUND, Kind.DISPUTE, Kind.DISPUTED_MONEY)
    """Kinds that the daily comparison neither finds nor settles."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    provider = models.CharField(max_length=20)
    reference = models.CharField(max_length=120, help_text="The provider's id of the charge or refund.")
    order = models.ForeignKey(Order, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    ours_minor = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty: not in our books.")
    theirs_minor = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Empty: not in the provider's books."
    )
    currency = models.CharField(max_length=3)
    occurred_at = models.DateTimeField(help_text="As recorded by the side that has it.")
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)
    settled_by = models.CharField(max_length=120, blank=True)
    note = models.CharField(max_length=500, blank=True, help_text="The cause and the solution.")

    class Meta:
        verbose_name_plural = "payment reconciliation"
        ordering = ["-first_seen_at"]
        constraints = [
            models.UniqueConstraint(fields=["provider", "kind", "reference"], name="payment_difference_once"),
            models.CheckConstraint(
                condition=Q(settled_at__isnull=True, settled_by="", note="")
                | (Q(settled_at__isnull=False) & ~Q(settled_by="") & ~Q(note="")),
                name="payment_difference_settled_with_note",
            ),
        ]
        indexes = [
            models.Index(fields=["first_seen_at"], condition=Q(settled_at__isnull=True), name="payment_difference_open")
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.reference}: {self.get_kind_display()}"


class ComparedDay(models.Model):
    """A UTC day whose captures and refunds were compared with a provider's, or will be."""

    id = models.BigAutoField(primary_key=True)
    provider = models.CharField(max_length=20)
    day = models.DateField()
    asked_at = models.DateTimeField(help_text="When a comparison was last scheduled.")
    compared_at = models.DateTimeField(null=True, blank=True, help_text="When the last finished comparison started.")
    captures_count = models.PositiveIntegerField(default=0)
    refunds_count = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-day"]
        constraints = [models.UniqueConstraint(fields=["provider", "day"], name="compared_day_once")]

    def __str__(self) -> str:
        return f"{self.provider} {self.day}"
