"""The sale: orders, the money for them, and the tickets they issue.

The constraints here are the last word on money: a reservation has one order, a payment never gives back more than it
took, a place has one ticket that opens a door.
"""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q

ATTEMPTS_MAX = 3


class Order(models.Model):
    """What one buyer owes for one reservation. Its row is locked before the reservation's (rule 3)."""

    class Status(models.TextChoices):
        PLACED = "placed", "placed"  # no charge is with the provider → paying, confirmed (free), failed, canceled
        PAYING = "paying", "paying"  # one is → confirmed, placed (declined), refunded, failed, canceled
        CONFIRMED = "confirmed", "confirmed"  # → partly_refunded, refunded
        PARTLY_REFUNDED = "partly_refunded", "partly refunded"  # → refunded
        REFUNDED = "refunded", "refunded"
        FAILED = "failed", "failed"  # → confirmed, refunded: money that arrived after we had given up
        CANCELED = "canceled", "canceled"  # → refunded, likewise

    OPEN = (Status.PLACED, Status.PAYING)
    STANDING = (Status.CONFIRMED, Status.PARTLY_REFUNDED)

    class Reason(models.TextChoices):
        """Why an order did not come, or did not stay, to be."""

        DECLINED = "declined", "the payment was declined"
        OUT_OF_TIME = "out_of_time", "no payment was confirmed in time"
        LATE = "late", "the payment arrived too late"
        WRONG_AMOUNT = "wrong_amount", "the amount paid was not the amount owed"
        CANCELED_BY_BUYER = "canceled_by_buyer", "canceled by the buyer"
        CANCELED_BY_STAFF = "canceled_by_staff", "canceled by the organizer"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    number = models.CharField(max_length=16, help_text="To read out; says nothing about how many there are.")
    reservation = models.ForeignKey(
        "reservations.Reservation", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+")
    entry = models.ForeignKey("queue.QueueEntry", on_delete=models.PROTECT, related_name="+")
    account = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    buyer = models.CharField(max_length=80, help_text="account:ID or visitor:ID, as the reservation says.")
    email = models.CharField(max_length=254, help_text="Normalised: lower case, no blanks around it.")
    name = models.CharField(max_length=120)
    status = models.CharField(max_length=16, choices=Status.choices)
    reason = models.CharField(max_length=20, choices=Reason.choices, blank=True)
    total_minor = models.PositiveBigIntegerField(help_text="Frozen when the order is placed.")
    currency = models.CharField(max_length=3)
    pay_deadline = models.DateTimeField(help_text="The reservation's, set once when paying began.")
    placed_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When it failed, was canceled or fully refunded.")
    tickets_sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-placed_at"]
        constraints = [
            models.UniqueConstraint(fields=["reservation"], name="order_one_per_reservation"),
            models.UniqueConstraint(fields=["number"], name="order_number_once"),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="order_currency_is_iso"),
            models.CheckConstraint(condition=Q(total_minor__gte=0), name="order_total_not_negative"),
            models.CheckConstraint(condition=~Q(email="") & ~Q(name=""), name="order_has_buyer"),
            models.CheckConstraint(
                condition=~Q(status__in=["confirmed", "partly_refunded"])
                | Q(confirmed_at__isnull=False, ended_at__isnull=True),
                name="order_standing_has_time",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["refunded", "failed", "canceled"])
                | (Q(ended_at__isnull=False) & ~Q(reason="")),
                name="order_ended_has_time_and_reason",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["placed", "paying"]) | Q(confirmed_at__isnull=True, ended_at__isnull=True),
                name="order_open_has_no_end",
            ),
        ]
        indexes = [
            models.Index(fields=["buyer", "-placed_at"], name="order_by_buyer"),
            models.Index(
                fields=["pay_deadline"], condition=Q(status__in=["placed", "paying"]), name="order_open_by_deadline"
            ),
            models.Index(fields=["event", "status"], name="order_by_event"),
        ]

    def __str__(self) -> str:
        return f"{self.number} {self.status}"


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
    reference = models.CharField(max_length=120, blank=True, help_text="The provider's own id of the charge.")
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.PENDING)
    amount_minor = models.PositiveBigIntegerField()
    captured_minor = models.PositiveBigIntegerField(default=0)
    refunded_minor = models.PositiveBigIntegerField(default=0, help_text="Given back, or on its way back.")
    currency = models.CharField(max_length=3)
    counts_until = models.DateTimeField(help_text="Deadline and grace: money that occurred later goes back.")
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True, help_text="From here on the provider may know of it.")
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
        ]

    def __str__(self) -> str:
        return f"attempt {self.attempt} {self.status}"


class Refund(models.Model):
    """Money on its way back; its id is the provider's idempotency key."""

    class Status(models.TextChoices):
        REQUESTED = "requested", "requested"  # → succeeded
        SUCCEEDED = "succeeded", "succeeded"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="refunds")
    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="refunds")
    amount_minor = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.REQUESTED)
    reason = models.CharField(max_length=200)
    requested_by = models.CharField(max_length=120)
    reference = models.CharField(max_length=120, blank=True)
    requested_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-requested_at"]
        constraints = [
            models.CheckConstraint(condition=Q(amount_minor__gt=0), name="refund_amount_positive"),
            models.CheckConstraint(
                condition=Q(status="requested", settled_at__isnull=True)
                | Q(status="succeeded", settled_at__isnull=False),
                name="refund_settled_has_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount_minor} {self.currency} {self.status}"


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
            )
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.message_id}"


class Ticket(models.Model):
    """What opens the door for one person. Whoever knows the code has the ticket."""

    id = models.BigAutoField(primary_key=True)
    code = models.CharField(max_length=40, help_text="140 random bits in base 32.")
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="tickets")
    line = models.ForeignKey("reservations.ReservationLine", on_delete=models.PROTECT, related_name="+", db_index=False)
    place = models.PositiveIntegerField(default=1, help_text="Within the line, from 1; a seat's line has one.")
    # A real foreign key: its check at commit takes KEY SHARE on the inventory row, which is why nobody may lock that
    # row with plain FOR UPDATE (rule 1).
    seat = models.ForeignKey(
        "reservations.SeatInventory", on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False,
        help_text="Empty: general admission.",
    )  # fmt: skip
    label = models.CharField(max_length=300)
    section = models.CharField(max_length=200)
    row = models.CharField(max_length=40, blank=True)
    number = models.CharField(max_length=40, blank=True)
    category = models.CharField(max_length=120)
    price_minor = models.PositiveBigIntegerField()
    holder = models.CharField(max_length=120)
    issued_at = models.DateTimeField()
    checked_in_at = models.DateTimeField(null=True, blank=True)
    voided_at = models.DateTimeField(null=True, blank=True, help_text="From then on it opens no door.")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["code"], name="ticket_code_once"),
            models.UniqueConstraint(
                fields=["seat"], condition=Q(voided_at__isnull=True), name="ticket_one_live_per_seat"
            ),
            models.UniqueConstraint(
                fields=["line", "place"], condition=Q(voided_at__isnull=True), name="ticket_one_live_per_place"
            ),
            models.CheckConstraint(condition=Q(place__gte=1), name="ticket_place_from_one"),
            models.CheckConstraint(
                condition=Q(checked_in_at__isnull=True) | Q(checked_in_at__gte=F("issued_at")),
                name="ticket_checked_in_after_issue",
            ),
        ]

    def __str__(self) -> str:
        return self.label


class SandboxCharge(models.Model):
    """A row in the sandbox provider's own books. It plays the outside world: nothing of ours refers to it, and it is
    written in transactions of its own, never in the ledger's."""

    id = models.BigAutoField(primary_key=True)
    idempotency_key = models.CharField(max_length=120, unique=True)
    method = models.CharField(max_length=40)
    amount_minor = models.PositiveBigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.CharField(max_length=12, help_text="pending, succeeded or declined.")
    occurred_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.amount_minor} {self.currency} {self.status}"


class SandboxRefund(models.Model):
    """A refund in the sandbox provider's own books."""

    id = models.BigAutoField(primary_key=True)
    idempotency_key = models.CharField(max_length=120, unique=True)
    charge = models.ForeignKey(SandboxCharge, on_delete=models.CASCADE, related_name="refunds")
    amount_minor = models.PositiveBigIntegerField()
    occurred_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.amount_minor} given back"
