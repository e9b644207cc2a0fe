"""The common admin of promo codes and access codes."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Count, Model, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from apps.kernel import clock
from apps.kernel.admin_lists import BoundedAdmin
from apps.kernel.codes.code_format import InvalidCode, normal_code
from apps.kernel.form_fields.event_form import EventForm
from apps.kernel.form_fields.local_time_field import LocalTimeField

LIMITS = ("valid_from", "valid_until", "uses_max", "uses_per_buyer_max", "is_active", "note")
"""The fields that can always be changed."""


class PartsField(forms.ModelMultipleChoiceField):
    """Selects the parts of an event for which a code is valid, each labeled with its event."""

    def __init__(self, of: Any, help_text: str) -> None:
        super().__init__(
            of.field.related_model._default_manager.select_related("event").order_by("event__name", "position"),
            required=False,
            widget=forms.SelectMultiple(attrs={"size": 10}),
            help_text=help_text,
        )

    def label_from_instance(self, part: Model) -> str:
        return f"{part.event}: {part}"  # type: ignore[attr-defined]


class CodeForm(EventForm):
    valid_from = LocalTimeField(required=False, help_text="On the clock of the event's venue.")
    valid_until = LocalTimeField(required=False, help_text="On the clock of the event's venue.")

    PARTS: ClassVar[str]
    """The field with the parts for which the code is valid."""
    WHY_PUBLISH_FIRST: ClassVar[str]

    def used(self) -> Iterator[tuple[str, Callable[[], int], str]]:
        """Lock the code as its uses do. For each limit, yield its field, a count function and how its error begins."""
        raise NotImplementedError

    def clean_code(self) -> str:
        try:
            return normal_code(self.cleaned_data["code"])
        except InvalidCode as error:
            raise forms.ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        event, parts = cleaned.get("event"), cleaned.get(self.PARTS)
        if event is None and self.instance.pk:
            event = self.instance.event
        if event and event.status == "draft":
            self.add_error("event", f"Publish it first: until then {self.WHY_PUBLISH_FIRST}.")
        if event and parts and any(part.event_id != event.pk for part in parts):
            self.add_error(self.PARTS, "Some of these do not belong to the chosen event.")
        if self.instance.pk:
            # The form is saved in one transaction, so concurrent uses wait and then count against the new limits.
            for field, count_uses, words in self.used():
                limit = cleaned.get(field)
                if limit is not None and limit < (count := count_uses()):
                    self.add_error(field, f"{words} {count} times already. To end the code, make it inactive.")
        return cleaned


class CodeAdmin(BoundedAdmin):
    list_filter: ClassVar[Any] = ["event", "is_active"]
    list_select_related: ClassVar[Any] = ["event"]
    search_fields = ["code", "note"]
    actions = ["activate", "deactivate"]
    one_statement_actions = ("activate", "deactivate")
    limits_shown: ClassVar[Any] = (
        "Limits and validity",
        {"fields": ("uses_max", "uses_per_buyer_max", "valid_from", "valid_until")},
    )
    fixed: tuple[str, ...]
    """The fields that cannot be changed after the first use."""
    uses_name: str
    """The reverse relation to its uses."""
    standing: Q
    """The condition of the uses that count against the limits."""
    usage_fields: tuple[str, ...] = ("used", "left")

    @property
    def _uses(self) -> Any:
        return self.model._meta.get_field(self.uses_name)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        by_code = self._uses.field.name
        uses = self._uses.related_model._default_manager.filter(self.standing, **{by_code: OuterRef("pk")}).order_by()
        count = uses.values(by_code).annotate(count=Count("pk")).values("count")
        return super().get_queryset(request).annotate(uses_count=Coalesce(Subquery(count), 0))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*self.usage_fields, *(self.fixed if self._is_used(obj) else ())]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is not None and not self._is_used(obj) and super().has_delete_permission(request, obj)

    def _is_used(self, code: Any) -> bool:
        return code is not None and getattr(code, self.uses_name).exists()

    def save_model(self, request: HttpRequest, obj: Any, form: forms.ModelForm, change: bool) -> None:
        if not change:
            obj.created_at = clock.now()
        super().save_model(request, obj, form, change)

    @admin.display(ordering="uses_count")
    def used(self, code: Any) -> str:
        count = _uses_of(code)
        if not count:
            return "0"
        uses = self._uses.related_model._meta
        listed = reverse(f"admin:{uses.app_label}_{uses.model_name}_changelist")
        return format_html('<a href="{}?{}__id__exact={}">{}</a>', listed, self._uses.field.name, code.pk, count)

    @admin.display(description="left")
    def left(self, code: Any) -> str:
        return "no limit" if code.uses_max is None else str(max(0, code.uses_max - _uses_of(code)))

    def set_active(self, queryset: QuerySet[Any], *, is_active: bool) -> None:
        queryset.update(is_active=is_active)

    @admin.action(description="Make active", permissions=["change"])
    def activate(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self.set_active(queryset, is_active=True)

    @admin.action(description="Make inactive", permissions=["change"])
    def deactivate(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self.set_active(queryset, is_active=False)


def _uses_of(code: Any) -> int:
    """Return the count from the list's query; 0 for a code that is being added."""
    return getattr(code, "uses_count", 0)
