"""The common model of promo codes and access codes."""

from django.db import models
from django.db.models import F, Q

from apps.kernel.codes import code_format

USES_MAX = 1_000_000


class AbstractCode(models.Model):
    """A code of one event that buyers type. It stores no count of its uses, because a stored count could drift: the
    rows of its uses are counted under its lock. A use that ends becomes available again."""

    id = models.BigAutoField(primary_key=True)
    event = models.ForeignKey("events.Event", on_delete=models.PROTECT, related_name="+")
    code = models.CharField(
        max_length=code_format.LENGTH_MAX,
        help_text="Stored in capital letters, without blanks; buyers may type either.",
    )
    valid_from = models.DateTimeField(null=True, blank=True)
    valid_until = models.DateTimeField(null=True, blank=True)
    uses_max = models.PositiveIntegerField("uses in all", null=True, blank=True)
    uses_per_buyer_max = models.PositiveIntegerField("uses per buyer", null=True, blank=True)
    is_active = models.BooleanField("active", default=True, help_text="If not, it is as if there were no such code.")
    note = models.CharField(max_length=200, blank=True, help_text="For staff only.")
    created_at = models.DateTimeField()

    class Meta:
        abstract = True
        ordering = ["event", "code"]

    def __str__(self) -> str:
        return self.code

    @property
    def is_limited(self) -> bool:
        """Whether the number of uses is limited, so that the code's lock must serialize them."""
        return self.uses_max is not None or self.uses_per_buyer_max is not None


def code_constraints(prefix: str, limits: Q | None = None) -> list[models.BaseConstraint]:
    """Return the constraints of a code's model; their names begin with `prefix`. `limits` is a further condition."""
    return [
        models.UniqueConstraint(fields=["event", "code"], name=f"{prefix}_once_per_event"),
        models.CheckConstraint(condition=~Q(code=""), name=f"{prefix}_not_empty"),
        models.CheckConstraint(
            condition=Q(valid_from=None) | Q(valid_until=None) | Q(valid_from__lt=F("valid_until")),
            name=f"{prefix}_valid_some_time",
            violation_error_message="It must begin before it ends.",
        ),
        models.CheckConstraint(
            condition=(Q(uses_max=None) | Q(uses_max__gte=1, uses_max__lte=USES_MAX))
            & (Q(uses_per_buyer_max=None) | Q(uses_per_buyer_max__gte=1))
            & (limits or Q()),
            name=f"{prefix}_limits_sane",
            violation_error_message=f"A limit is at least 1, and that of all uses at most {USES_MAX:,}.",
        ),
    ]
