"""Return policies of events, and adjustments of an order's balance by returns and goodwill refunds."""

from django.db import models
from django.db.models import Q

from apps.orders.models.lines import OrderLine
from apps.orders.models.orders import Order

HOURS_MAX = 8_760


class ReturnPolicy(models.Model):
    """The terms under which an event's buyers may return tickets. Without a row they may not."""

    event = models.OneToOneField("events.Event", on_delete=models.CASCADE, primary_key=True, related_name="+")
    until_hours = models.PositiveIntegerField(
        "hours before the start",
        help_text="Buyers may return tickets until this many hours before the event starts.",
    )
    keeps_fees = models.BooleanField(
        "fees are not refunded", default=True, help_text="The organizer keeps the fees of returned tickets."
    )

    class Meta:
        verbose_name_plural = "return policies"
        constraints = [
            models.CheckConstraint(
                condition=Q(until_hours__lte=HOURS_MAX),
                name="return_policy_hours_sane",
                violation_error_message="At most a year before the start.",
            ),
        ]

    def __str__(self) -> str:
        return f"until {self.until_hours} h before the start"


class OrderAdjustment(models.Model):
    """A change of an order's balance beyond its lines, from a return or a goodwill refund. A trigger keeps the table
    append-only. Captured less refunded always equals the uncanceled lines plus the adjustments (I4)."""

    class Kind(models.TextChoices):
        KEPT_FEE = "kept_fee", "fee kept"  # of a returned ticket; positive
        GOODWILL = "goodwill", "goodwill"  # a refund while the tickets stay valid; negative
        SETTLED = "settled", "settled"  # offsets earlier adjustments that a return or full refund has included

    id = models.BigAutoField(primary_key=True)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="adjustments")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    line = models.ForeignKey(
        OrderLine, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False,
        help_text="The line whose fee was kept.",
    )  # fmt: skip
    amount_minor = models.BigIntegerField(help_text="Positive: the order owes more; negative: less.")
    who = models.CharField(max_length=120)
    why = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="kept_fee", amount_minor__gt=0, line__isnull=False)
                | Q(kind="goodwill", amount_minor__lt=0, line__isnull=True)
                | (Q(kind="settled", line__isnull=True) & ~Q(amount_minor=0)),
                name="order_adjustment_says_what",
            ),
            models.UniqueConstraint(fields=["line"], name="order_adjustment_fee_kept_once"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.amount_minor}"
