"""Promo codes: what somebody who knows a word pays less, how often it may be used, and the orders that used it."""

from django.db import models
from django.db.models import F, Q

from apps.kernel.codes import code_format
from apps.orders.models.orders import Order

USES_MAX = 1_000_000
AMOUNT_MINOR_MAX = 10**12


class PromoCode(models.Model):
    """A word that lowers the price of an order at one event. It holds no count: uses are counted from their rows under
    its lock, so they cannot drift."""

    class Kind(models.TextChoices):
        PERCENT = "percent", "percent off each ticket"
        PER_TICKET = "per_ticket", "amount off each ticket"
        PER_ORDER = "per_order", "amount off the order"

    id = models.BigAutoField(primary_key=True)
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+")
    code = models.CharField(
        max_length=code_format.LENGTH_MAX,
        help_text="Stored in capital letters, without blanks; buyers may type either.",
    )
    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.PERCENT)
    rate = models.PositiveIntegerField(default=0, help_text="Percent off in basis points: 1,000 is 10 percent.")
    amount_minor = models.PositiveBigIntegerField(
        "amount off", default=0, help_text="In the smallest unit of the event's currency; 0 where it is a percentage."
    )
    categories = models.ManyToManyField(
        "events.Category", blank=True, related_name="+", help_text="Only tickets of these; none chosen: of all."
    )
    places_max = models.PositiveIntegerField(
        "tickets per order", null=True, blank=True, help_text="So many tickets of an order at most, dearest first."
    )
    valid_from = models.DateTimeField(null=True, blank=True)
    valid_until = models.DateTimeField(null=True, blank=True)
    uses_max = models.PositiveIntegerField(
        "uses in all", null=True, blank=True, help_text="Orders that may use it; empty: no limit."
    )
    uses_per_buyer_max = models.PositiveIntegerField(
        "uses per buyer", null=True, blank=True, help_text="By account or browser, and by e-mail address."
    )
    is_active = models.BooleanField("active", default=True, help_text="If not, it is as if there were no such code.")
    note = models.CharField(max_length=200, blank=True, help_text="For staff only.")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["event", "code"]
        constraints = [
            models.UniqueConstraint(fields=["event", "code"], name="promo_code_once_per_event"),
            models.CheckConstraint(condition=~Q(code=""), name="promo_code_not_empty"),
            models.CheckConstraint(
                condition=Q(kind="percent", rate__gte=1, rate__lte=10_000, amount_minor=0)
                | (~Q(kind="percent") & Q(rate=0, amount_minor__gte=1, amount_minor__lte=AMOUNT_MINOR_MAX)),
                name="promo_code_takes_something_off",
                violation_error_message="Give a percentage of 1 to 10,000 basis points and no amount, or an amount of "
                "at least 1 and no percentage, as the kind says.",
            ),
            models.CheckConstraint(
                condition=Q(valid_from=None) | Q(valid_until=None) | Q(valid_from__lt=F("valid_until")),
                name="promo_code_valid_some_time",
                violation_error_message="It must begin before it ends.",
            ),
            models.CheckConstraint(
                condition=(Q(uses_max=None) | Q(uses_max__gte=1, uses_max__lte=USES_MAX))
                & (Q(uses_per_buyer_max=None) | Q(uses_per_buyer_max__gte=1))
                & (Q(places_max=None) | Q(places_max__gte=1)),
                name="promo_code_limits_sane",
                violation_error_message=f"A limit is at least 1, and that of all uses at most {USES_MAX:,}.",
            ),
        ]

    def __str__(self) -> str:
        return self.code

    @property
    def is_limited(self) -> bool:
        """Whether uses must be counted, and so one after the other."""
        return self.uses_max is not None or self.uses_per_buyer_max is not None


class CodeUse(models.Model):
    """One order used one code. Written with the order; afterwards only under that order's lock."""

    id = models.BigAutoField(primary_key=True)
    order = models.OneToOneField(Order, on_delete=models.PROTECT, related_name="code_use")
    code = models.ForeignKey(PromoCode, on_delete=models.PROTECT, related_name="uses", db_index=False)
    buyer = models.CharField(max_length=80, help_text="account:ID or visitor:ID, as the order says.")
    email = models.CharField(max_length=254)
    discount_minor = models.PositiveBigIntegerField(help_text="What came off the order's places, in all.")
    used_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True, blank=True, help_text="The order ended; somebody else may use it.")
    honoured_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="The order came to stand after all: its price was a promise. Beyond the limit, if it was used up.",
    )

    class Meta:
        ordering = ["-used_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(released_at=None) | Q(honoured_at=None), name="code_use_released_or_honoured"
            ),
        ]
        indexes = [
            # What a checkout counts under the code's lock: all, the buyer's, the address's.
            models.Index(fields=["code"], condition=Q(released_at=None), name="code_use_of_code"),
            models.Index(fields=["code", "buyer"], condition=Q(released_at=None), name="code_use_of_buyer"),
            models.Index(fields=["code", "email"], condition=Q(released_at=None), name="code_use_of_email"),
        ]

    def __str__(self) -> str:
        return f"{self.code} by {self.order}"
