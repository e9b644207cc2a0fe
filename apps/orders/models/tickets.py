"""The tickets that an order issues. A seat has at most one valid ticket."""

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
        max_length=120, blank=True, help_text="Who requested the replacement: buyer, or staff:ID."
    )

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
