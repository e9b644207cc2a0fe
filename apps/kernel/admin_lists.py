"""Admin lists of large tables: read only, counted up to a limit, with a confirmation before irreversible actions."""

from collections.abc import Callable, Collection, Mapping
from functools import cached_property, wraps
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

COUNTED_MAX = 10_000
ACTION_ROWS_MAX = 100
"""Rows of one action. It runs in a thread of the site, often with a transaction for each row."""
INLINE_ROWS_MAX = 200
_COMPARISONS = ("exact", "in", "isnull", "isempty", "gt", "gte", "lt", "lte", "year", "month", "day")


class BoundedPaginator(Paginator):
    """Counts and shows at most COUNTED_MAX rows; searches and filters reach the others."""

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        return rows.order_by()[:COUNTED_MAX].count() if isinstance(rows, QuerySet) else len(rows)


class ReasonForm(ActionForm):
    """Adds a reason to the action form; it is recorded with the action."""

    why = forms.CharField(required=False, max_length=200, label="Why")


class NonAtomicFormMixin:
    """For forms that save through services, which own their transactions and refuse to join another."""

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Run Django's view without its transaction around a POST. The admin site checks the CSRF token."""
        assert isinstance(self, admin.ModelAdmin)
        return self._changeform_view(request, object_id, form_url, extra_context)  # type: ignore[attr-defined]


class ReadOnlyMixin:
    """For rows that only services write: the admin cannot add, change or delete them."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class BoundedActionsMixin:
    """Refuses actions on more than ACTION_ROWS_MAX rows, also on "all" of a list."""

    one_statement_actions: ClassVar[Collection[str]] = ()
    """Those for which the number of rows does not matter."""

    def get_actions(self, request: HttpRequest) -> Any:
        found = super().get_actions(request)  # type: ignore[misc]
        return {
            name: known and (known[0] if name in self.one_statement_actions else _bounded(known[0]), *known[1:])
            for name, known in found.items()
        }


def _bounded(action: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(action)
    def bounded_action(model_admin: admin.ModelAdmin, request: HttpRequest, chosen: QuerySet[Any]) -> Any:
        if chosen.order_by()[: ACTION_ROWS_MAX + 1].count() > ACTION_ROWS_MAX:
            messages.error(request, f"Nothing was done. Choose at most {ACTION_ROWS_MAX} at a time.")
            return None
        return action(model_admin, request, chosen)

    return bounded_action


class DeclaredFiltersMixin:
    """Confines the lookups in a list's address to the primary key, relations and the declared filters.

    Django permits every field of the model there. A lookup such as `code__startswith` on a masked field would let staff
    find the secret out, character by character.
    """

    model: type[Model]
    opts: Any
    date_hierarchy: ClassVar[Any]
    get_list_filter: Callable[[HttpRequest], Any]

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        path = lookup.split(LOOKUP_SEP)
        # "event__id__exact" and "event__in" are lookups on "event".
        if len(path) > 1 and path[-1] in _COMPARISONS:
            path.pop()
        if len(path) > 1 and path[-1] in ("id", "pk"):
            path.pop()
        name = LOOKUP_SEP.join(path)
        if name in ("pk", self.opts.pk.name, self.date_hierarchy):
            return True
        if any(name == _name_of_filter(one) for one in self.get_list_filter(request)):
            return True
        try:
            field = self.opts.get_field(path[0])
        except FieldDoesNotExist:
            return len(path) == 1  # Django ignores it.
        return bool(len(path) == 1 and field.concrete and field.is_relation)


def _name_of_filter(one: Any) -> str:
    if isinstance(one, list | tuple):
        one = one[0]
    return str(getattr(one, "parameter_name", one))


class WholeTextSearchMixin:
    """Searches for the whole text: it is the value of a field named "=field", or part of another field.

    Django's search compares every word with every field in capitals, which no index serves, and joins the comparisons
    with OR: PostgreSQL then reads the whole table, once or more for each word. Here each field has a query of its own.
    """

    get_search_fields: Callable[[HttpRequest], Any]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        text = search_term.strip()
        if not text:
            return queryset, False
        found = []
        for name in self.get_search_fields(request):
            path = name.removeprefix("=")
            # Addresses are stored in small letters, order numbers in capitals.
            condition = {f"{path}__icontains": text} if path == name else {f"{path}__in": spellings_of(text)}
            try:
                rows = queryset.filter(**condition)
            except (ValidationError, ValueError):
                continue  # The text is no id.
            # As many as a list shows. Without a limit, a text in every row costs several passes over all of them.
            found.append(rows.order_by().values("pk")[:COUNTED_MAX])
        return (queryset.filter(pk__in=found[0].union(*found[1:])) if found else queryset.none()), False


def spellings_of(text: str) -> tuple[str, ...]:
    """Return the text as typed, in small letters and in capitals."""
    return tuple(dict.fromkeys((text, text.lower(), text.upper())))


class BoundedAdmin(WholeTextSearchMixin, BoundedActionsMixin, DeclaredFiltersMixin, admin.ModelAdmin):
    """The list of a large table."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = ACTION_ROWS_MAX

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _SortableList


class _SortableList(ChangeList):
    """Sorts only by the columns of `sortable_by`, also if the list's address names another one."""

    def get_ordering_field(self, field_name: Any) -> Any:
        return super().get_ordering_field(field_name) if field_name in (self.sortable_by or ()) else None


class ReadOnlyAdmin(ReadOnlyMixin, BoundedAdmin):
    """The read-only list of a large table."""


class _BoundedFormSet(BaseInlineFormSet):
    def get_queryset(self) -> QuerySet[Any]:
        if not hasattr(self, "_bounded"):
            self._bounded = super().get_queryset()[:INLINE_ROWS_MAX]
        return self._bounded


class ReadOnlyInline(ReadOnlyMixin, admin.TabularInline):
    """Read-only related rows: the first INLINE_ROWS_MAX in their order."""

    extra = 0
    formset = _BoundedFormSet

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ConditionFilter(admin.SimpleListFilter):
    """A list filter by named conditions."""

    conditions: ClassVar[Mapping[str, tuple[str, Q]]]
    """The label and the condition of each value of the parameter."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, label) for value, (label, _) in self.conditions.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.conditions.get(self.value() or "")
        return queryset if chosen is None else queryset.filter(chosen[1])


def mask(secret: str, shown: int = 4) -> str:
    """Return the first characters of a secret, enough to recognize it."""
    return f"{secret[:shown]}…" if secret else "–"


def masked(field: str, label: str = "", shown: int = 4) -> Callable[[admin.ModelAdmin, Any], str]:
    """Return an admin column that shows the beginning of a secret field. The field itself belongs into `exclude`."""

    @admin.display(description=label or field)
    def column(self: admin.ModelAdmin, row: Any) -> str:
        return mask(getattr(row, field), shown)

    return column


def format_count(count: int, thing: str) -> str:
    """Return the count with its noun, as in "1 order" and "2 orders"."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def confirm_action(
    model_admin: admin.ModelAdmin,
    request: HttpRequest,
    chosen: QuerySet[Any],
    *,
    title: str,
    button: str,
    effect: Callable[[Any], tuple[str, str]],
    carry: Mapping[str, str] | None = None,
) -> HttpResponse | None:
    """Return a page that lists the action's effect on each chosen row, or None once the user has confirmed it.

    `effect` returns a row's name and the effect on it; `carry` contains the form's other fields.
    """
    if request.POST.get("confirmed") == "yes":
        return None
    rows = list(chosen)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "button": button,
        "action": request.POST.get("action", ""),
        "effects": [dict(zip(("what", "then"), effect(row), strict=True)) for row in rows],
        "keys": [row.pk for row in rows],
        "carry": carry or {},
        "opts": model_admin.model._meta,
    }
    return TemplateResponse(request, "admin/confirm_action.html", context)
