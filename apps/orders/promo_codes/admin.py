"""Admin of promo codes: create and limit them, and see how often each was used."""

from collections.abc import Callable, Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Q

from apps.events.facade import RATE_MAX, OrganizerScopedAdmin
from apps.kernel.admin_lists import ReadOnlyAdmin
from apps.kernel.codes.admin_base import LIMITS, CodeAdmin, CodeForm, PartsField
from apps.kernel.form_fields.amounts import write_percent
from apps.kernel.form_fields.event_form import EventSelect
from apps.kernel.form_fields.fields import MoneyField, PercentField
from apps.kernel.formatting import format_money
from apps.orders.locks import lock_code
from apps.orders.models import CodeUse, PromoCode
from apps.orders.models.codes import AMOUNT_MINOR_MAX
from apps.orders.promo_codes import promo_codes

TERMS = ("event", "code", "kind", "rate", "amount_minor", "categories", "places_max")
"""The fields that define the discount: fixed after the code's first use."""


class PromoCodeForm(CodeForm):
    PARTS = "categories"
    WHY_PUBLISH_FIRST = "its categories may still be replaced"
    categories = PartsField(PromoCode.categories, "Applies only to tickets of these categories. None selected: all.")
    rate = PercentField(rate_max=RATE_MAX, label="Percent off", required=False, empty_value=0)
    amount_minor = MoneyField(
        minor_max=AMOUNT_MINOR_MAX, label="Amount off", required=False, empty_value=0,
        help_text="In the currency of the event. Empty for a percentage.",
    )  # fmt: skip

    class Meta:
        model = PromoCode
        fields = (*TERMS, *LIMITS)
        widgets = {"event": EventSelect}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.is_bound and not self.instance.pk:
            self.initial.update({"rate": None, "amount_minor": None})

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if "kind" in cleaned and {"rate", "amount_minor"} <= cleaned.keys():
            wanted, other = ("rate", "amount_minor") if cleaned["kind"] == "percent" else ("amount_minor", "rate")
            if not cleaned[wanted]:
                self.add_error(wanted, "Enter what this kind of discount takes off.")
            if cleaned[other]:
                self.add_error(other, "Leave this empty, or choose the other kind of discount.")
        return cleaned

    def used(self) -> Iterator[tuple[str, Callable[[], int], str]]:
        locked = lock_code(self.instance.pk)
        yield "uses_max", lambda: promo_codes.count_uses(locked), "It has been used"


@admin.register(CodeUse)
class CodeUseAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "code__event__organizer"
    list_display = ["code", "order", "buyer", "email", "discount", "used_at", "released_at", "honoured_at"]
    list_filter = ["code__event", ("released_at", admin.EmptyFieldListFilter), "used_at"]
    list_select_related = ["code", "order"]
    search_fields = ["=code__code", "=order__number", "=email", "=buyer"]
    search_help_text = "A complete code, order number or email address, account:ID or visitor:ID."

    @admin.display(ordering="discount_minor")
    def discount(self, use: CodeUse) -> str:
        return format_money(use.discount_minor, use.order.currency)


@admin.register(PromoCode)
class PromoCodeAdmin(OrganizerScopedAdmin, CodeAdmin):
    form = PromoCodeForm
    fixed = TERMS
    uses_name = "uses"
    standing = Q(released_at=None)
    list_display = ["code", "event", "takes_off", "used", "left", "valid_from", "valid_until", "is_active", "note"]
    list_filter = ["event", "is_active", "kind"]
    fieldsets = [
        (None, {"fields": ["event", "code", "is_active", "note"]}),
        ("Discount", {"fields": ["kind", "rate", "amount_minor", "categories", "places_max"]}),
        CodeAdmin.limits_shown,
        ("So far", {"fields": CodeAdmin.usage_fields}),
    ]

    @admin.display(description="takes off")
    def takes_off(self, code: PromoCode) -> str:
        if code.kind == PromoCode.Kind.PERCENT:
            return f"{write_percent(code.rate)}% of each ticket"
        amount = format_money(code.amount_minor, code.event.currency)
        return f"{amount} of {'each ticket' if code.kind == PromoCode.Kind.PER_TICKET else 'the order'}"
