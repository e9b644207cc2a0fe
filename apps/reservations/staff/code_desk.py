"""Access codes for staff: made and limited here, and how often each is used."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, Model, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from apps.reservations.models import AccessCode, Reservation
from apps.reservations.staff import codes
from ticketing.kernel import clock
from ticketing.kernel.code_words import Unusable, normal_code
from ticketing.kernel.staff_lists import BoundedPaginator

FIXED = ("event", "code")
"""Once somebody held by it."""


class SectionsField(forms.ModelMultipleChoiceField):
    def label_from_instance(self, section: Model) -> str:
        needs = "" if section.needs_access else " (open to everybody now)"  # type: ignore[attr-defined]
        return f"{section.event}: {section}{needs}"  # type: ignore[attr-defined]


class AccessCodeForm(forms.ModelForm):
    sections = SectionsField(
        AccessCode.sections.field.related_model._default_manager.select_related("event").order_by(
            "event__name", "position"
        ),
        required=False,
        widget=forms.SelectMultiple(attrs={"size": 10}),
        help_text="What it opens; none chosen: every section of the event. Which sections need a code, the event's "
        "stock desk says.",
    )

    class Meta:
        model = AccessCode
        fields = (
            *FIXED,
            "sections",
            "valid_from",
            "valid_until",
            "uses_max",
            "uses_per_buyer_max",
            "is_active",
            "note",
        )

    def clean_code(self) -> str:
        try:
            return normal_code(self.cleaned_data["code"])
        except Unusable as error:
            raise forms.ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        event, sections = cleaned.get("event"), cleaned.get("sections")
        if event is None and self.instance.pk:
            event = self.instance.event
        if event and event.status == "draft":
            self.add_error("event", "Publish it first: until then it has not got all its sections.")
        if event and sections and any(section.event_id != event.pk for section in sections):
            self.add_error("sections", "These are not all of the chosen event.")
        if self.instance.pk:
            self._refuse_less_than_used(cleaned)
        return cleaned

    def _refuse_less_than_used(self, cleaned: dict[str, Any]) -> None:
        # The admin's form saves in one transaction: whoever holds by it meanwhile waits, and counts against the new
        # limits.
        (locked,) = codes.lock_codes([self.instance.pk])
        for field, used, whose in (
            ("uses_max", codes.used_count, "It is used"),
            ("uses_per_buyer_max", codes.most_of_one_buyer, "Somebody uses it"),
        ):
            limit = cleaned.get(field)
            if limit is not None and limit < (count := used(locked)):
                self.add_error(field, f"{whose} {count} times already. To end it, make it inactive.")


@admin.register(AccessCode)
class AccessCodeAdmin(admin.ModelAdmin):
    form = AccessCodeForm
    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 200
    list_display = ["code", "event", "opens", "used", "left", "valid_from", "valid_until", "is_active", "note"]
    list_filter = ["event", "is_active"]
    list_select_related = ["event"]
    search_fields = ["code", "note"]
    fieldsets = [
        (None, {"fields": [*FIXED, "is_active", "note"]}),
        ("What it opens", {"fields": ["sections"]}),
        ("How often, and when", {"fields": ["uses_max", "uses_per_buyer_max", "valid_from", "valid_until"]}),
        ("So far", {"fields": ["used", "left", "link"]}),
    ]
    actions = ["activate", "deactivate"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AccessCode]:
        standing = Reservation.objects.filter(access_code=OuterRef("pk"), status__in=codes.STANDING).order_by()
        count = standing.values("access_code").annotate(count=Count("pk")).values("count")
        found = super().get_queryset(request).annotate(uses_count=Coalesce(Subquery(count), 0))
        return found.prefetch_related("sections")

    def get_readonly_fields(self, request: HttpRequest, obj: AccessCode | None = None) -> list[str]:
        fixed = FIXED if obj is not None and obj.reservations.exists() else ()
        return ["used", "left", "link", *fixed]

    def has_delete_permission(self, request: HttpRequest, obj: AccessCode | None = None) -> bool:
        return obj is not None and not obj.reservations.exists() and super().has_delete_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: AccessCode, form: forms.ModelForm, change: bool) -> None:
        if not change:
            obj.created_at = clock.now()
        super().save_model(request, obj, form, change)

    @admin.display(description="opens")
    def opens(self, code: AccessCode) -> str:
        return ", ".join(section.name for section in code.sections.all()) or "every section"

    @admin.display(ordering="uses_count")
    def used(self, code: AccessCode) -> str:
        count = _uses_of(code)
        if not count:
            return "0"
        listed = reverse("admin:reservations_reservation_changelist")
        return format_html('<a href="{}?access_code__id__exact={}">{}</a>', listed, code.pk, count)

    @admin.display(description="left")
    def left(self, code: AccessCode) -> str:
        return "no limit" if code.uses_max is None else str(max(0, code.uses_max - _uses_of(code)))

    @admin.display(description="link")
    def link(self, code: AccessCode) -> str:
        return codes.link_of(code.event.slug, code.code) if code.pk else "once it is saved"

    @admin.action(description="Make active", permissions=["change"])
    def activate(self, request: HttpRequest, queryset: QuerySet[AccessCode]) -> None:
        codes.set_active(queryset.values_list("pk", flat=True), is_active=True)

    @admin.action(description="Make inactive", permissions=["change"])
    def deactivate(self, request: HttpRequest, queryset: QuerySet[AccessCode]) -> None:
        codes.set_active(queryset.values_list("pk", flat=True), is_active=False)


def _uses_of(code: AccessCode) -> int:
    """Counted by the list's own query; a code that is being added has none."""
    return getattr(code, "uses_count", 0)
