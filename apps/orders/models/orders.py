"""The order of one reservation."""

import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models import Q

ERASED_DOMAIN = "@erased.invalid"
"""The domain of the placeholder addresses of erased orders; no mail can be sent to `.invalid` (RFC 2606)."""


def is_erased_address(email: str) -> bool:
    return email.endswith(ERASED_DOMAIN)


class Order(models.Model):
    """A buyer's order of one reservation; a reservation has at most one. Its row is locked before the reservation's."""

    class Status(models.TextChoices):
        # An arrow precedes the statuses that may follow.
        PLACED = "placed", "placed"  # no charge at the provider → paying, confirmed (free), failed, canceled
        PAYING = "paying", "paying"  # a charge started → confirmed, placed (declined), refunded, failed, canceled
        CONFIRMED = "confirmed", "confirmed"  # → partly_refunded, refunded
        PARTLY_REFUNDED = "partly_refunded", "partly refunded"  # → refunded
        REFUNDED = "refunded", "refunded"
        FAILED = "failed", "failed"  # → confirmed, refunded: the payment succeeded later
        CANCELED = "canceled", "canceled"  # → refunded: the payment succeeded later

    LOST_OWNER = Q(is_handed_over=True) | Q(email__endswith=ERASED_DOMAIN)
    """The account, browser and queue entry that placed the order grant no access any more: staff gave it to another
    person, or it was erased, and may have kept its buyer key."""

    OPEN = (Status.PLACED, Status.PAYING)
    STANDING = (Status.CONFIRMED, Status.PARTLY_REFUNDED)

    class Reason(models.TextChoices):
        """Why an order failed, was canceled or was refunded."""

        DECLINED = "declined", "the payment was declined"
        OUT_OF_TIME = "out_of_time", "no payment was confirmed in time"
        PROVIDER_AWAY = "provider_away", "the payment provider did not respond"
        LATE = "late", "the payment arrived too late"
        WRONG_AMOUNT = "wrong_amount", "the amount paid did not match the order total"
        OVER_LIMIT = "over_limit", "the email address had as many tickets as one buyer may have"
        CANCELED_BY_BUYER = "canceled_by_buyer", "canceled by the buyer"
        CANCELED_BY_STAFF = "canceled_by_staff", "canceled by the organizer"
        RETURNED = "returned", "returned by the buyer"
        EVENT_CANCELED = "event_canceled", "the event was canceled"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    number = models.CharField(max_length=16, help_text="Random, easy to read aloud.")
    reservation = models.ForeignKey(
        "reservations.Reservation", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+")
    entry = models.ForeignKey("queue.QueueEntry", on_delete=models.PROTECT, related_name="+")
    account = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    buyer = models.CharField(max_length=80, help_text="account:ID or visitor:ID, as in the reservation.")
    email = models.CharField(max_length=254, help_text="Normalized: lower case, no surrounding blanks.")
    name = models.CharField(max_length=120)
    status = models.CharField(max_length=16, choices=Status.choices)
    reason = models.CharField(max_length=20, choices=Reason.choices, blank=True)
    total_minor = models.PositiveBigIntegerField(help_text="Fixed when the order is placed.")
    currency = models.CharField(max_length=3)
    pay_deadline = models.DateTimeField(help_text="The reservation's, set once when the payment began.")
    placed_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When it failed, was canceled or fully refunded.")
    terms_version = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="The versions of the organizer's terms and privacy notice that the buyer accepted; empty: none.",
    )
    terms_accepted_at = models.DateTimeField(null=True, blank=True)
    tickets_sent_at = models.DateTimeField(null=True, blank=True)
    link_version = models.PositiveSmallIntegerField(
        default=0,
        db_default=0,
        help_text="Raised when the address is corrected: links mailed before then no longer grant access.",
    )
    is_handed_over = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Staff have given it to another person: it has no account, and only its mailed links grant access.",
    )
    handed_over_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When they last gave it, or changed its address: what is older is about a former owner.",
    )
    origin = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        help_text="Keyed digest of the network that checked out, for turns of mails; blank once paid or ended.",
    )

    class Meta:
        ordering = ["-placed_at"]
        constraints = [
            models.UniqueConstraint(fields=["reservation"], name="order_one_per_reservation"),
            models.UniqueConstraint(fields=["number"], name="order_number_once"),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="order_currency_is_iso"),
            models.CheckConstraint(condition=Q(total_minor__gte=0), name="order_total_not_negative"),
            models.CheckConstraint(condition=~Q(email="") & ~Q(name=""), name="order_has_buyer"),
            models.CheckConstraint(
                condition=Q(terms_version="", terms_accepted_at__isnull=True)
                | (~Q(terms_version="") & Q(terms_accepted_at__isnull=False)),
                name="order_terms_have_time",
            ),
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
            models.Index(fields=["email"], name="order_by_email"),
            models.Index(
                fields=["event", "confirmed_at"],
                condition=Q(confirmed_at__isnull=False),
                name="order_confirmed_by_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.number} {self.status}"

    @property
    def is_erased(self) -> bool:
        return is_erased_address(self.email)

    @property
    def erased_email(self) -> str:
        return f"{self.number.lower()}{ERASED_DOMAIN}"

    def is_of_former_owner(self, moment: datetime) -> bool:
        """Return whether staff gave the order to another person after this moment."""
        return self.handed_over_at is not None and moment < self.handed_over_at

    def has_time_for_attempt(self, now: datetime) -> bool:
        """Return whether a call to the provider can take its whole timeout and still end before the payment
        deadline."""
        return self.pay_deadline - now >= timedelta(seconds=settings.PAYMENT_TIMEOUT_SECONDS)
