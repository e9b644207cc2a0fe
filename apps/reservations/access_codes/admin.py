"""Access codes in the admin: creation, limits and usage."""

from collections.abc import Callable, Iterator

from django.contrib import admin
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from apps.events.facade import OrganizerScopedAdmin
from apps.kernel.codes.admin_base import LIMITS, CodeAdmin, CodeForm, PartsField
from apps.kernel.form_fields.event_form import EventSelect
from apps.reservations.access_codes import generation
from apps.reservations.models import AccessCode, Reservation

FIXED = ("event", "code")


class SectionsField(PartsField):
    def label_from_instance(self, section: Model) -> str:
        needs = "" if section.needs_access else " (open to all buyers now)"  # type: ignore[attr-defined]
        return f"{super().label_from_instance(section)}{needs}"


class AccessCodeForm(CodeForm):
    PARTS = "sections"
    WHY_PUBLISH_FIRST = "its sections may still change"
    sections = SectionsField(
        AccessCode.sections,
        "The sections that the code opens; if none is selected, every section of the event. The event's stock page "
        "shows which sections need a code.",
    )

    class Meta:
        model = AccessCode
        fields = (*FIXED, "sections", *LIMITS)
        widgets = {"event": EventSelect}

    def used(self) -> Iterator[tuple[str, Callable[[], int], str]]:
        (locked,) = generation.lock_codes([self.instance.pk])
        yield "uses_max", lambda: generation.used_count(locked), "It has been used"
        yield "uses_per_buyer_max", lambda: generation.most_of_one_buyer(locked), "One buyer has used it"


@admin.register(AccessCode)
class AccessCodeAdmin(OrganizerScopedAdmin, CodeAdmin):
    form = AccessCodeForm
    fixed = FIXED
    uses_name = "reservations"
    standing = Q(status__in=Reservation.LIVE_OR_CONFIRMED)
    usage_fields = ("used", "left", "link")
    list_display = ["code", "event", "opens", "used", "left", "valid_from", "valid_until", "is_active", "note"]
    fieldsets = [
        (None, {"fields": [*FIXED, "is_active", "note"]}),
        ("Sections", {"fields": ["sections"]}),
        CodeAdmin.limits_shown,
        ("Usage", {"fields": usage_fields}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AccessCode]:
        return super().get_queryset(request).prefetch_related("sections")

    def set_active(self, queryset: QuerySet[AccessCode], *, is_active: bool) -> None:
        generation.set_active(queryset.values_list("pk", flat=True), is_active=is_active)

    @admin.display(description="opens")
    def opens(self, code: AccessCode) -> str:
        return ", ".join(section.name for section in code.sections.all()) or "every section"

    @admin.display(description="link")
    def link(self, code: AccessCode) -> str:
        return generation.link_of(code.event.slug, code.code) if code.pk else "shown after saving"
