"""How the staff's lists of large tables behave: read only, never counted to the last row, and asking before an action
that cannot be taken back."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

COUNTED_MAX = 10_000
CONFIRMED_MAX = 200


class BoundedPaginator(Paginator):
    """Counts up to COUNTED_MAX and shows that many; who looks for more searches or filters."""

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        return rows.order_by()[:COUNTED_MAX].count() if isinstance(rows, QuerySet) else len(rows)


class ReasonForm(ActionForm):
    """Beside the choice of an action: the reason, kept with what is done."""

    why = forms.CharField(required=False, max_length=200, label="Why")


class NonAtomicFormMixin:
    """A form that saves by services, each of which is a transaction of its own and refuses to be part of another."""

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Django's own without the transaction that it puts around a POST. The admin site checks the CSRF token."""
        assert isinstance(self, admin.ModelAdmin)
        return self._changeform_view(request, object_id, form_url, extra_context)  # type: ignore[attr-defined]


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows that services write and people only read: nothing here adds, changes or deletes them."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 200

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnlyInline(admin.TabularInline):
    """Rows shown with the one they belong to."""

    extra = 0
    max_num = 0
    can_delete = False
    show_change_link = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def format_count(count: int, thing: str) -> str:
    """`1 order`, `2 orders`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def confirm_action(
    desk: admin.ModelAdmin,
    request: HttpRequest,
    chosen: QuerySet[Any],
    *,
    title: str,
    button: str,
    effect: Callable[[Any], tuple[str, str]],
    carry: Mapping[str, str] | None = None,
) -> HttpResponse | None:
    """The page that says what the action is about to do to each chosen row, or None once that was confirmed.

    `effect` names a row and says what becomes of it; `carry` is what else the form said, by name. More rows than one
    can read are refused.
    """
    if request.POST.get("confirmed") == "yes":
        return None
    rows = list(chosen[: CONFIRMED_MAX + 1])
    if len(rows) > CONFIRMED_MAX:
        messages.error(request, f"Choose at most {CONFIRMED_MAX} at a time.")
        return HttpResponseRedirect(request.get_full_path())
    context = {
        **desk.admin_site.each_context(request),
        "title": title,
        "button": button,
        "action": request.POST.get("action", ""),
        "effects": [dict(zip(("what", "then"), effect(row), strict=True)) for row in rows],
        "keys": [row.pk for row in rows],
        "carry": carry or {},
        "opts": desk.model._meta,
    }
    return TemplateResponse(request, "admin/confirm_action.html", context)
