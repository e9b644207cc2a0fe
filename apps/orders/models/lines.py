"""The lines of an order: one per ticket and per fee of the order, fixed when the order is placed."""

from django.db import models
from django.db.models import F, Q

from apps.orders.models.orders import Order


class OrderLine(models.Model):
    """One ticket or one fee, with its price. Only `canceled_at` may change later: a trigger refuses other changes. A
    retry of a declined payment with another promo code replaces all lines of its order.

    An order owes the sum of its uncanceled lines; a partial refund cancels some of them.
    """

    class Kind(models.TextChoices):
        PLACE = "place", "place"  # one ticket, for a seat or for general admission
        FEE = "fee", "fee"  # a fee for the whole order; a ticket's fee is part of the ticket's line

    id = models.BigAutoField(primary_key=True)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="lines")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    reservation_line = models.ForeignKey(
        "reservations.ReservationLine", on_delete=models.PROTECT, null=True, blank=True, related_name="+",
        db_index=False, help_text="Empty: a fee.",
    )  # fmt: skip
    place = models.PositiveIntegerField(
        null=True, blank=True, help_text="Number within the reservation's line, from 1; always 1 for a seat."
    )
    description = models.CharField(max_length=300)
    category = models.CharField(max_length=120, blank=True)
    price_minor = models.PositiveBigIntegerField(help_text="Face price, before discount, fee and added tax.")
    discount_minor = models.PositiveBigIntegerField(default=0)
    fee_minor = models.PositiveBigIntegerField(default=0, help_text="Fee charged in addition to the price.")
    tax_rate = models.PositiveIntegerField(default=0, help_text="In basis points: 1,900 is 19 percent.")
    tax_included = models.BooleanField(default=True, help_text="Whether price and fee include the tax.")
    tax_minor = models.PositiveBigIntegerField(default=0)
    total_minor = models.PositiveBigIntegerField(help_text="Total including tax.")
    canceled_at = models.DateTimeField(null=True, blank=True, help_text="Empty: not canceled, and owed.")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["reservation_line", "place"], name="order_line_place_once"),
            models.CheckConstraint(
                condition=Q(kind="place", reservation_line__isnull=False, place__gte=1)
                | Q(kind="fee", reservation_line__isnull=True, place__isnull=True),
                name="order_line_place_or_fee",
            ),
            models.CheckConstraint(
                condition=Q(discount_minor__lte=F("price_minor")), name="order_line_discount_at_most_price"
            ),
            models.CheckConstraint(
                condition=Q(tax_included=True, total_minor=F("price_minor") - F("discount_minor") + F("fee_minor"))
                | Q(
                    tax_included=False,
                    total_minor=F("price_minor") - F("discount_minor") + F("fee_minor") + F("tax_minor"),
                ),
                name="order_line_total_is_sum",
            ),
            models.CheckConstraint(
                condition=Q(tax_rate__lte=10_000, tax_minor__lte=F("total_minor")), name="order_line_tax_sane"
            ),
        ]

    def __str__(self) -> str:
        return self.description
