"""The tickets that an order issues, and their transfers to other people. A seat has at most one valid ticket."""

import uuid

from django.db import models
from django.db.models import F, Q

from apps.orders.models.lines import OrderLine
from apps.orders.models.orders import Order


class Ticket(models.Model):
    """A ticket, which admits one person. Its code is a bearer token."""

    id = models.BigAutoField(primary_key=True)
    code = models.CharField(max_length=40, help_text="140 random bits in base 32.")
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="tickets")
    order_line = models.ForeignKey(
        OrderLine, on_delete=models.PROTECT, related_name="tickets", help_text="The line with its price."
    )
    line = models.ForeignKey("reservations.ReservationLine", on_delete=models.PROTECT, related_name="+", db_index=False)
    place = models.PositiveIntegerField(default=1, help_text="Number within the line, from 1; always 1 for a seat.")
    # The foreign key's check takes KEY SHARE on the inventory row, so no statement may lock that row with plain
    # FOR UPDATE (docs/locking.md, rule 1).
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
    voided_at = models.DateTimeField(null=True, blank=True, help_text="Not valid from then on.")
    successor = models.OneToOneField(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="predecessor",
        help_text="The ticket with the new code, if this one was replaced.",
    )  # fmt: skip
    replaced_by = models.CharField(
        max_length=120, blank=True, help_text="Who requested the replacement: buyer, staff:ID, or transfer."
    )
    transfer = models.ForeignKey(
        "TicketTransfer", on_delete=models.PROTECT, null=True, blank=True, related_name="+",
        help_text="The transfer by which its holder has it. Empty: it is the buyer's.",
    )  # fmt: skip

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
            models.CheckConstraint(
                condition=Q(successor__isnull=True, replaced_by="")
                | (Q(successor__isnull=False, voided_at__isnull=False) & ~Q(replaced_by="")),
                name="ticket_replaced_is_void",
            ),
        ]

    def __str__(self) -> str:
        return self.label


class TransferPolicy(models.Model):
    """The terms under which an event's tickets may be passed to other people. Without a row they may not."""

    event = models.OneToOneField("events.Event", on_delete=models.CASCADE, primary_key=True, related_name="+")
    until_hours = models.PositiveIntegerField(
        "until hours before the start",
        default=24,
        help_text="Tickets may be transferred until this many hours before the event starts.",
    )
    per_ticket_max = models.PositiveSmallIntegerField(
        "transfers per ticket", default=1, help_text="How many times one ticket may be transferred at most."
    )
    per_recipient_max = models.PositiveIntegerField(
        "tickets per recipient",
        default=4,
        help_text="How many transferred tickets one address may have at most. The event's limit per buyer also counts.",
    )

    class Meta:
        verbose_name_plural = "transfer policies"
        constraints = [
            models.CheckConstraint(
                condition=Q(until_hours__lte=8_760),
                name="transfer_policy_hours_sane",
                violation_error_message="At most a year before the start.",
            ),
            models.CheckConstraint(
                condition=Q(per_ticket_max__gte=1, per_recipient_max__gte=1),
                name="transfer_policy_limits_positive",
                violation_error_message="Both limits must be at least 1. To allow no transfers, delete the policy.",
            ),
        ]

    def __str__(self) -> str:
        return f"until {self.until_hours} h before the start"


class TicketTransfer(models.Model):
    """An offer of one ticket to an email address, and whether it was accepted. Written only under the order's lock."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    ticket = models.ForeignKey(
        Ticket, on_delete=models.PROTECT, related_name="transfers", help_text="The ticket that was offered."
    )
    sequence = models.PositiveSmallIntegerField(help_text="1: from the buyer; 2: from the first recipient, and so on.")
    email = models.CharField(max_length=254, help_text="The recipient's, normalized like an order's.")
    offered_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was withdrawn, or after it expired a new offer took its place."
    )

    class Meta:
        ordering = ["offered_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["ticket"],
                condition=Q(accepted_at__isnull=True, ended_at__isnull=True),
                name="ticket_transfer_one_open",
            ),
            models.UniqueConstraint(
                fields=["ticket"], condition=Q(accepted_at__isnull=False), name="ticket_transfer_accepted_once"
            ),
            models.CheckConstraint(
                condition=Q(accepted_at__isnull=True)
                | Q(ended_at__isnull=True, accepted_at__gte=F("offered_at"), accepted_at__lt=F("expires_at")),
                name="ticket_transfer_accepted_in_time",
            ),
            models.CheckConstraint(condition=Q(sequence__gte=1) & ~Q(email=""), name="ticket_transfer_has_recipient"),
        ]
        indexes = [models.Index(fields=["email"], name="ticket_transfer_by_email")]

    def __str__(self) -> str:
        return f"{self.ticket} to {self.email}"
