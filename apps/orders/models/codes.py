"""Promo codes: their discounts and limits, and the orders that used them."""

from django.db import models
from django.db.models import Q

from apps.kernel.codes.abstract_code import AbstractCode, code_constraints
from apps.orders.models.orders import Order

AMOUNT_MINOR_MAX = 10**12


class PromoCode(AbstractCode):
    """A code that lowers the price of orders at one event."""

    class Kind(models.TextChoices):
        PERCENT = "percent", "percent off each ticket"
        PER_TICKET = "per_ticket", "amount off each ticket"
        PER_ORDER = "per_order", "amount off the order"

    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.PERCENT)
    rate = models.PositiveIntegerField("percent off", default=0, help_text="Off the price of each ticket.")
    amount_minor = models.PositiveBigIntegerField(
        "amount off", default=0, help_text="In the event's currency; 0 for a percentage."
    )
    categories = models.ManyToManyField(
        "events.Category",
        blank=True,
        related_name="+",
        help_text="Applies only to tickets of these categories. None selected: all.",
    )
    places_max = models.PositiveIntegerField(
        "tickets per order",
        null=True,
        blank=True,
        help_text="At most this many tickets of an order, the most expensive first.",
    )
    uses_max = models.PositiveIntegerField(
        "total uses", null=True, blank=True, help_text="How many orders may use it; empty: no limit."
    )
    uses_per_buyer_max = models.PositiveIntegerField(
        "uses per buyer", null=True, blank=True, help_text="Counted by account or browser, and by email address."
    )

    class Meta(AbstractCode.Meta):
        constraints = [
            *code_constraints("promo_code", limits=Q(places_max=None) | Q(places_max__gte=1)),
            models.CheckConstraint(
                condition=Q(kind="percent", rate__gte=1, rate__lte=10_000, amount_minor=0)
                | (~Q(kind="percent") & Q(rate=0, amount_minor__gte=1, amount_minor__lte=AMOUNT_MINOR_MAX)),
                name="promo_code_takes_something_off",
                violation_error_message="Depending on the kind, enter either a percentage up to 100 or an amount.",
            ),
        ]


class CodeUse(models.Model):
    """One order's use of one code. Written with the order, or with a retry of its payment that names another code;
    later changed only under the order's lock."""

    id = models.BigAutoField(primary_key=True)
    order = models.OneToOneField(Order, on_delete=models.PROTECT, related_name="code_use")
    code = models.ForeignKey(PromoCode, on_delete=models.PROTECT, related_name="uses", db_index=False)
    buyer = models.CharField(max_length=80, help_text="account:ID or visitor:ID, as in the order.")
    email = models.CharField(max_length=254)
    discount_minor = models.PositiveBigIntegerField(help_text="The order's total discount.")
    used_at = models.DateTimeField()
    released_at = models.DateTimeField(
        null=True, blank=True, help_text="The order ended, and the use no longer counts."
    )
    honoured_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="The order was confirmed after it had ended, and keeps its price, even beyond the limit.",
    )

    class Meta:
        verbose_name = "promo code use"
        ordering = ["-used_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(released_at=None) | Q(honoured_at=None), name="code_use_released_or_honoured"
            ),
        ]
        indexes = [
            # A checkout counts the code's uses under its lock: in total, by buyer and by email address.
            models.Index(fields=["code"], condition=Q(released_at=None), name="code_use_of_code"),
            models.Index(fields=["code", "buyer"], condition=Q(released_at=None), name="code_use_of_buyer"),
            models.Index(fields=["code", "email"], condition=Q(released_at=None), name="code_use_of_email"),
        ]

    def __str__(self) -> str:
        return f"{self.code} by {self.order}"
