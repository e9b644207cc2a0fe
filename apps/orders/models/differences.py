"""Where a provider's books and ours differ, until a person has settled it; and which days have been compared."""

from django.db import models
from django.db.models import Q

from apps.orders.models.orders import Order


class PaymentDifference(models.Model):
    """One difference, once however often it is found. It changes no money: a person does, and says what was done."""

    class Kind(models.TextChoices):
        UNKNOWN_CAPTURE = "unknown_capture", "captured there, and no payment of ours"
        UNSETTLED_CAPTURE = "unsettled_capture", "captured there, and our payment does not say so"
        CAPTURE_AMOUNT = "capture_amount", "captured there is another amount"
        MISSING_CAPTURE = "missing_capture", "captured by us, and not known there"
        UNKNOWN_REFUND = "unknown_refund", "refunded there, and no refund of ours"
        UNSETTLED_REFUND = "unsettled_refund", "refunded there, and our refund does not say so"
        REFUND_AMOUNT = "refund_amount", "refunded there is another amount"
        MISSING_REFUND = "missing_refund", "refunded by us, and not known there"
        FAILED_REFUND = "failed_refund", "a refund failed: its buyer is still owed it"
        DISPUTE = "dispute", "disputed by the buyer: answer it at the provider"
        DISPUTED_MONEY = "disputed_money", "withdrawn by the bank over a dispute"

    NOT_COMPARED = (Kind.FAILED_REFUND, Kind.DISPUTE, Kind.DISPUTED_MONEY)
    """What no comparison of a day tells, and none settles."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    provider = models.CharField(max_length=20)
    reference = models.CharField(max_length=120, help_text="Of the charge or refund, in the provider's words.")
    order = models.ForeignKey(Order, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    ours_minor = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty: we have none.")
    theirs_minor = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty: they have none.")
    currency = models.CharField(max_length=3)
    occurred_at = models.DateTimeField(help_text="In the words of whoever has it.")
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)
    settled_by = models.CharField(max_length=120, blank=True)
    note = models.CharField(max_length=500, blank=True, help_text="What it was and what was done about it.")

    class Meta:
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
    """A day in UTC whose captures and refunds were, or are to be, compared with a provider's."""

    id = models.BigAutoField(primary_key=True)
    provider = models.CharField(max_length=20)
    day = models.DateField()
    asked_at = models.DateTimeField(help_text="When its comparison was last asked for.")
    compared_at = models.DateTimeField(null=True, blank=True, help_text="When one last came to its end.")
    captures_count = models.PositiveIntegerField(default=0)
    refunds_count = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-day"]
        constraints = [models.UniqueConstraint(fields=["provider", "day"], name="compared_day_once")]

    def __str__(self) -> str:
        return f"{self.provider} {self.day}"
