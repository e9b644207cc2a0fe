"""Payments and refunds of an order, and the circuit of each provider. A payment never refunds more than it captured."""

import uuid

from django.db import models
from django.db.models import F, Q

from apps.orders.models.orders import Order

ATTEMPTS_MAX = 3


class Payment(models.Model):
    """One attempt to charge the order: one charge at the provider. The charge's idempotency key is this row's id."""

    class Status(models.TextChoices):
        # An arrow precedes the statuses that may follow.
        PENDING = "pending", "pending"  # → succeeded, declined, abandoned
        SUCCEEDED = "succeeded", "succeeded"
        DECLINED = "declined", "declined"  # → succeeded: a provider may revise a decline
        ABANDONED = "abandoned", "abandoned"  # never sent, or sent and never charged → succeeded

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="payments", db_index=False)
    attempt = models.PositiveSmallIntegerField(help_text=f"1 to {ATTEMPTS_MAX}.")
    provider = models.CharField(max_length=20)
    method = models.CharField(max_length=40)
    faults_count = models.PositiveSmallIntegerField(
        default=0, help_text="Calls without a response; each counts as a try."
    )
    reference = models.CharField(max_length=120, blank=True, help_text="The provider's id of the charge.")
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.PENDING)
    amount_minor = models.PositiveBigIntegerField()
    captured_minor = models.PositiveBigIntegerField(default=0)
    refunded_minor = models.PositiveBigIntegerField(default=0, help_text="Refunded or being refunded.")
    currency = models.CharField(max_length=3)
    next_action = models.JSONField(null=True, blank=True, help_text="What the buyer must do, while pending.")
    counts_until = models.DateTimeField(help_text="Deadline plus grace: a payment that occurred later is refunded.")
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(
        null=True, blank=True, help_text="The first call; the provider may know it from then on."
    )
    asked_at = models.DateTimeField(null=True, blank=True, help_text="The reconciler's last inquiry.")
    occurred_at = models.DateTimeField(null=True, blank=True, help_text="The provider's time of the result.")
    settled_at = models.DateTimeField(null=True, blank=True, help_text="When we recorded the result.")

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
        """The number of the order's current try, from 1. A call without a response counts as a try."""
        return self.attempt + self.faults_count


class Refund(models.Model):
    """A refund. Its id is the idempotency key of the request to the provider."""

    class Status(models.TextChoices):
        REQUESTED = "requested", "requested"  # the provider may not know it yet → pending, succeeded, failed
        PENDING = "pending", "pending"  # the provider has accepted it and decides later → succeeded, failed
        SUCCEEDED = "succeeded", "succeeded"  # → failed: a bank may return the money days later
        FAILED = "failed", "failed"  # staff decide how the buyer gets the money → paid_out
        PAID_OUT = "paid_out", "paid out by other means"  # staff paid the buyer without the provider

    OPEN = (Status.REQUESTED, Status.PENDING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="refunds")
    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="refunds")
    amount_minor = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.REQUESTED)
    replaces = models.OneToOneField(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="replaced_by",
        help_text="The failed refund that this one repeats, with a key of its own.",
    )  # fmt: skip
    reason = models.CharField(max_length=200)
    requested_by = models.CharField(max_length=120)
    reference = models.CharField(max_length=120, blank=True, help_text="The provider's id of the refund.")
    failure = models.CharField(max_length=200, blank=True, help_text="The provider's reason for the failure.")
    requested_at = models.DateTimeField()
    asked_at = models.DateTimeField(null=True, blank=True, help_text="The reconciler's last inquiry.")
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


class ProviderStanding(models.Model):
    """A provider's circuit: closed (no `rests_until`), open until `rests_until`, then half-open while one caller tries.

    All processes share the row. A provider that never failed has none. Only payments/circuit_breaker.py writes it.
    """

    provider = models.CharField(max_length=20, primary_key=True)
    faults_count = models.PositiveSmallIntegerField(default=0, help_text="Consecutive faults.")
    rests_until = models.DateTimeField(null=True, blank=True, help_text="Not called before then; empty: available.")
    tried_until = models.DateTimeField(null=True, blank=True, help_text="The end of the trial call after a rest.")
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.provider}: {self.faults_count} consecutive faults"
