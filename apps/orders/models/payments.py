"""The money of an order: attempts to take it, and what goes back. A payment never gives back more than it took."""

import uuid

from django.db import models
from django.db.models import F, Q

from apps.orders.models.orders import Order

ATTEMPTS_MAX = 3


class Payment(models.Model):
    """One attempt to take the order's money: one charge at the provider, whose idempotency key is this row's id."""

    class Status(models.TextChoices):
        PENDING = "pending", "pending"  # → succeeded, declined, abandoned
        SUCCEEDED = "succeeded", "succeeded"
        DECLINED = "declined", "declined"  # → succeeded: providers do change their mind
        ABANDONED = "abandoned", "abandoned"  # never sent, or unanswered when the time was over → succeeded

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="payments", db_index=False)
    attempt = models.PositiveSmallIntegerField(help_text=f"1 to {ATTEMPTS_MAX}.")
    provider = models.CharField(max_length=20)
    method = models.CharField(max_length=40)
    faults_count = models.PositiveSmallIntegerField(default=0, help_text="Calls without an answer; each is a try.")
    reference = models.CharField(max_length=120, blank=True, help_text="The provider's own id of the charge.")
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.PENDING)
    amount_minor = models.PositiveBigIntegerField()
    captured_minor = models.PositiveBigIntegerField(default=0)
    refunded_minor = models.PositiveBigIntegerField(default=0, help_text="Given back, or on its way back.")
    currency = models.CharField(max_length=3)
    next_action = models.JSONField(null=True, blank=True, help_text="What the buyer must do now; only while pending.")
    counts_until = models.DateTimeField(help_text="Deadline and grace: money that occurred later goes back.")
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True, help_text="From here on the provider may know of it.")
    asked_at = models.DateTimeField(null=True, blank=True, help_text="When the reconciler last asked about it.")
    occurred_at = models.DateTimeField(null=True, blank=True, help_text="When it happened, in the provider's words.")
    settled_at = models.DateTimeField(null=True, blank=True, help_text="When we took note.")

    class Meta:
        ordering = ["order", "attempt"]
        constraints = [
            models.UniqueConstraint(fields=["order", "attempt"], name="payment_attempt_once_per_order"),
            models.UniqueConstraint(
                fields=["order"], condition=Q(status="pending"), name="payment_one_pending_per_order"
            ),
            models.UniqueConstraint(
                fields=["provider", "reference"], condition=~Q(reference=""), name="payment_reference_once"
            ),
            models.CheckConstraint(
                condition=Q(attempt__gte=1, attempt__lte=ATTEMPTS_MAX), name="payment_attempts_limited"
            ),
            models.CheckConstraint(
                condition=Q(attempt__lte=ATTEMPTS_MAX + 1 - F("faults_count")), name="payment_faults_limited"
            ),
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="payment_amount_positive"),
            models.CheckConstraint(
                condition=Q(refunded_minor__lte=F("captured_minor")), name="payment_refunded_at_most_captured"
            ),
            models.CheckConstraint(
                condition=Q(status="succeeded", captured_minor__gt=0, occurred_at__isnull=False)
                | (~Q(status="succeeded") & Q(captured_minor=0)),
                name="payment_captured_when_succeeded",
            ),
            models.CheckConstraint(
                condition=Q(status="pending", settled_at__isnull=True)
                | (~Q(status="pending") & Q(settled_at__isnull=False)),
                name="payment_settled_has_time",
            ),
            models.CheckConstraint(
                condition=Q(status="pending") | Q(next_action__isnull=True), name="payment_next_action_while_pending"
            ),
        ]
        indexes = [
            models.Index(fields=["started_at"], condition=Q(status="pending"), name="payment_pending"),
            models.Index(
                fields=["provider", "occurred_at"], condition=Q(status="succeeded"), name="payment_captured_by_time"
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.attempt} {self.status}"

    @property
    def tries(self) -> int:
        """Which try of its order this payment is at, from 1: calls that brought no answer count."""
        return self.attempt + self.faults_count


class Refund(models.Model):
    """Money on its way back; its id is the provider's idempotency key."""

    class Status(models.TextChoices):
        REQUESTED = "requested", "requested"  # the provider may not know of it → pending, succeeded, failed
        PENDING = "pending", "pending"  # the provider has it, and settles it later → succeeded, failed
        SUCCEEDED = "succeeded", "succeeded"  # → failed: a bank may send it back days later
        FAILED = "failed", "failed"  # the buyer is still owed it: a person decides → paid_out
        PAID_OUT = "paid_out", "paid out by other means"  # cash, a transfer: staff says so, and no provider has it

    OPEN = (Status.REQUESTED, Status.PENDING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="refunds")
    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="refunds")
    amount_minor = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.REQUESTED)
    replaces = models.OneToOneField(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="replaced_by",
        help_text="The failed one that this one sends again, under a key of its own.",
    )  # fmt: skip
    reason = models.CharField(max_length=200)
    requested_by = models.CharField(max_length=120)
    reference = models.CharField(max_length=120, blank=True, help_text="The provider's own id of the refund.")
    failure = models.CharField(max_length=200, blank=True, help_text="Why it failed, in the provider's words.")
    requested_at = models.DateTimeField()
    asked_at = models.DateTimeField(null=True, blank=True, help_text="When the reconciler last asked about it.")
    settled_at = models.DateTimeField(null=True, blank=True)
    paid_out_by = models.CharField(max_length=120, blank=True)
    paid_out_note = models.CharField(max_length=200, blank=True, help_text="How it was paid out by other means.")

    class Meta:
        ordering = ["-requested_at"]
        constraints = [
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="refund_amount_positive"),
            models.CheckConstraint(
                condition=Q(status__in=["requested", "pending"], settled_at__isnull=True)
                | Q(status__in=["succeeded", "failed", "paid_out"], settled_at__isnull=False),
                name="refund_settled_has_time",
            ),
            models.CheckConstraint(
                condition=(Q(status="paid_out") & ~Q(paid_out_by="") & ~Q(paid_out_note=""))
                | (~Q(status="paid_out") & Q(paid_out_by="", paid_out_note="")),
                name="refund_paid_out_says_how",
            ),
            models.UniqueConstraint(
                fields=["payment", "reference"], condition=~Q(reference=""), name="refund_reference_once"
            ),
        ]
        indexes = [
            models.Index(fields=["requested_at"], condition=Q(status__in=["requested", "pending"]), name="refund_open"),
            models.Index(fields=["settled_at"], condition=Q(status="succeeded"), name="refund_settled_by_time"),
            models.Index(fields=["settled_at"], condition=Q(status="failed"), name="refund_failed"),
        ]

    def __str__(self) -> str:
        return f"{self.amount_minor} {self.currency} {self.status}"
