"""Promo codes for staff: made and limited here, and how often each was used."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, Model, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from apps.orders import codes
from apps.orders.locks import lock_code
from apps.orders.models import CodeUse, PromoCode
from ticketing.kernel import clock
from ticketing.kernel.code_words import Unusable, normal_code
from ticketing.kernel.staff_lists import BoundedPaginator, ReadOnlyAdmin
from ticketing.kernel.templatetags.fairgate import money

TERMS = ("event", "code", "kind", "rate", "amount_minor", "categories", "places_max")
"""What a buyer was promised: fixed once somebody used it."""


class CategoriesField(forms.ModelMultipleChoiceField):
    def label_from_instance(self, category: Model) -> str:
        return f"{category.event}: {category}"  # type: ignore[attr-defined]


class PromoCodeForm(forms.ModelForm):
    categories = CategoriesField(
        PromoCode.categories.field.related_model._default_manager.select_related("event").order_by(
            "event__name", "position"
        ),
        required=False,
        widget=forms.SelectMultiple(attrs={"size": 10}),
        help_text="Only tickets of these; none chosen: of all.",
    )

    class Meta:
        model = PromoCode
        fields = (*TERMS, "valid_from", "valid_until", "uses_max", "uses_per_buyer_max", "is_active", "note")

    def clean_code(self) -> str:
        try:
            return normal_code(self.cleaned_data["code"])
        except Unusable as error:
            raise forms.ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        event, categories = cleaned.get("event"), cleaned.get("categories")
        if event and event.status == "draft":
            self.add_error("event", "Publish it first: until then its categories may be replaced by others.")
        if event and categories and any(category.event_id != event.pk for category in categories):
            self.add_error("categories", "These are not all of the chosen event.")
        if self.instance.pk:
            # The admin's form saves in one transaction: whoever checks out meanwhile waits, and counts against the
            # new limit.
            used = codes.used_count(lock_code(self.instance.pk))
            if cleaned.get("uses_max") is not None and cleaned["uses_max"] < used:
                self.add_error("uses_max", f"It has been used {used} times already. To end it, make it inactive.")
        return cleaned


@admin.register(CodeUse)
class CodeUseAdmin(ReadOnlyAdmin):
    list_display = ["code", "order", "buyer", "email", "discount", "used_at", "released_at", "honoured_at"]
    list_filter = ["code__event", ("released_at", admin.EmptyFieldListFilter), "used_at"]
    list_select_related = ["code", "order"]
    search_fields = ["=code__code", "=order__number", "=email", "=buyer"]
    search_help_text = "A whole code, an order's number, an e-mail address, account:ID or visitor:ID."

    @admin.display(ordering="discount_minor")
    def discount(self, use: CodeUse) -> str:
        return money(use.discount_minor, use.order.currency)


@admin.register(PromoCode)
class PromoCodeAdmin(admin.ModelAdmin):
    form = PromoCodeForm
    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 200
    list_display = ["code", "event", "takes_off", "used", "left", "valid_from", "valid_until", "is_active", "note"]
    list_filter = ["event", "is_active", "kind"]
    list_select_related = ["event"]
    search_fields = ["code", "note"]
    fieldsets = [
        (None, {"fields": ["event", "code", "is_active", "note"]}),
        ("What it takes off", {"fields": ["kind", "rate", "amount_minor", "categories", "places_max"]}),
        ("How often, and when", {"fields": ["uses_max", "uses_per_buyer_max", "valid_from", "valid_until"]}),
        ("So far", {"fields": ["used", "left"]}),
    ]
    actions = ["activate", "deactivate"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[PromoCode]:
        uses = CodeUse.objects.filter(code=OuterRef("pk"), released_at=None).order_by()
        count = uses.values("code").annotate(count=Count("pk")).values("count")
        return super().get_queryset(request).annotate(uses_count=Coalesce(Subquery(count), 0))

    def get_readonly_fields(self, request: HttpRequest, obj: PromoCode | None = None) -> list[str]:
        terms = TERMS if obj is not None and obj.uses.exists() else ()
        return ["used", "left", *terms]

    def has_delete_permission(self, request: HttpRequest, obj: PromoCode | None = None) -> bool:
        return obj is not None and not obj.uses.exists() and super().has_delete_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: PromoCode, form: forms.ModelForm, change: bool) -> None:
        if not change:
            obj.created_at = clock.now()
        super().save_model(request, obj, form, change)

    @admin.display(description="takes off")
    def takes_off(self, code: PromoCode) -> str:
        if code.kind == PromoCode.Kind.PERCENT:
            return f"{code.rate / 100:g}% of each ticket"
        amount = money(code.amount_minor, code.event.currency)
        return f"{amount} of {'each ticket' if code.kind == PromoCode.Kind.PER_TICKET else 'the order'}"

    @admin.display(ordering="uses_count")
    def used(self, code: PromoCode) -> str:
        count = _uses_of(code)
        if not count:
            return "0"
        listed = reverse("admin:orders_codeuse_changelist")
        return format_html('<a href="{}?code__id__exact={}">{}</a>', listed, code.pk, count)

    @admin.display(description="left")
    def left(self, code: PromoCode) -> str:
        return "no limit" if code.uses_max is None else str(max(0, code.uses_max - _uses_of(code)))

    @admin.action(description="Make active", permissions=["change"])
    def activate(self, request: HttpRequest, queryset: QuerySet[PromoCode]) -> None:
        queryset.update(is_active=True)

    @admin.action(description="Make inactive", permissions=["change"])
    def deactivate(self, request: HttpRequest, queryset: QuerySet[PromoCode]) -> None:
        queryset.update(is_active=False)


def _uses_of(code: PromoCode) -> int:
    """Counted by the list's own query; a code that is being added has none."""
    return getattr(code, "uses_count", 0)
