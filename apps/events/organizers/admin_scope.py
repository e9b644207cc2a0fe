"""The base of admin pages whose rows belong to organizers: members see and change only their organizers' rows."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.filters import RelatedFieldListFilter
from django.contrib.auth import get_permission_codename
from django.db.models import Field, Model, Q, QuerySet
from django.http import HttpRequest

from apps.events.models import Event, Organizer
from apps.events.organizers.event_values import EventValuesMixin
from apps.events.organizers.membership_backend import permitted_organizers
from apps.kernel.admin_lists import BoundedActionsMixin, DeclaredFiltersMixin

_DJANGO_ACTS = ("view", "add", "change", "delete")


class OrganizerScopedAdmin(BoundedActionsMixin, EventValuesMixin, DeclaredFiltersMixin, admin.ModelAdmin):
    """Confines lists, rows, form choices, filters and actions to the organizers at which the user has the permission.

    List it before the other bases. Users with site-wide permissions are not confined, and their queries do not change.
    """

    organizer_path: ClassVar[str] = "event__organizer"
    """The lookup from a row to its organizer."""
    action_permissions: ClassVar[Mapping[str, str]] = {}
    """Django's permission for each name in the `permissions` of an action, except view, add, change and delete."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.event_path = cls.organizer_path.removesuffix("organizer").removesuffix("__")

    def scope(self, organizer_ids: frozenset[int]) -> Q:
        """Return the condition of the rows that belong to these organizers."""
        return Q(**{f"{self.organizer_path}__in": organizer_ids})

    # --- permissions, for a row or for any row ---------------------------------------------------------------------

    def _permission(self, act: str) -> str:
        return self.action_permissions.get(act) or (
            f"{self.opts.app_label}.{get_permission_codename(act, self.opts)}" if act in _DJANGO_ACTS else act
        )

    def permits(self, request: HttpRequest, permission: str, obj: Model | None = None) -> bool:
        """Return whether the user has the permission for the stored row; without one, at some organizer."""
        organizer_ids = permitted_organizers(request.user, permission)
        if organizer_ids is None:
            return True
        if obj is None or not organizer_ids:
            return bool(organizer_ids)
        return self.model._default_manager.filter(self.scope(organizer_ids), pk=obj.pk).exists()

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_view_permission(request, obj) and any(
            self.permits(request, self._permission(act), obj) for act in ("view", "change")
        )

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and self.permits(request, self._permission("change"), obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and self.permits(request, self._permission("delete"), obj)

    def get_inline_instances(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        inlines: list[Any] = super().get_inline_instances(request, obj)
        if obj is None:
            return inlines
        return [inline for inline in inlines if self._may_see_inline(request, inline, obj)]

    def _may_see_inline(self, request: HttpRequest, inline: Any, obj: Model) -> bool:
        # Django asks for the inline's permission without a row, which a member may have at another organizer only.
        names = (f"{inline.opts.app_label}.{get_permission_codename(act, inline.opts)}" for act in ("view", "change"))
        return any(self.permits(request, name, obj) for name in names)

    # --- rows ------------------------------------------------------------------------------------------------------

    def _visible(self, request: HttpRequest) -> frozenset[int] | None:
        viewed = permitted_organizers(request.user, self._permission("view"))
        changed = permitted_organizers(request.user, self._permission("change"))
        return None if viewed is None or changed is None else viewed | changed

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows, organizer_ids = super().get_queryset(request), self._visible(request)
        return rows if organizer_ids is None else rows.filter(self.scope(organizer_ids))

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **kwargs: Any) -> Any:
        """Run the action on rows of those organizers only at which the user has the action's permissions."""
        known = self.get_actions(request)
        for name in set(request.POST.getlist("action")) & known.keys():
            action = known[name]
            for act in getattr(action and action[0], "allowed_permissions", ()):
                organizer_ids = permitted_organizers(request.user, self._permission(act))
                if organizer_ids is not None:
                    queryset = queryset.filter(self.scope(organizer_ids))
        return super().response_action(request, queryset, *args, **kwargs)

    # --- choices ---------------------------------------------------------------------------------------------------

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return self.confine_form(request, super().get_form(request, obj, change=change, **kwargs), obj)

    def confine_form(self, request: HttpRequest, form: type[forms.ModelForm], obj: Any = None) -> Any:
        """Return the form for a new row or for `obj`, with choices of those organizers only at which the user has the
        permission to add or to change rows."""
        organizer_ids = permitted_organizers(request.user, self._permission("add" if obj is None else "change"))
        if organizer_ids is None:
            return form
        return type(f"Confined{form.__name__}", (_ConfinedForm, form), {"organizer_ids": organizer_ids})

    # --- the list's column and filters -------------------------------------------------------------------------------

    def _sees_several(self, request: HttpRequest) -> bool:
        organizer_ids = self._visible(request)
        return (Organizer.objects.count() if organizer_ids is None else len(organizer_ids)) > 1

    def get_list_display(self, request: HttpRequest) -> Any:
        shown = super().get_list_display(request)
        return [*shown, "organizer_name"] if self._shows_organizer() and self._sees_several(request) else shown

    def get_list_select_related(self, request: HttpRequest) -> Any:
        related = super().get_list_select_related(request)
        if related is True or not self._shows_organizer() or not self._sees_several(request):
            return related
        # Without a list of its own, Django follows the relations of the columns.
        fields = {field.name for field in self.opts.fields if field.is_relation}
        columns = related or [name for name in self.list_display if name in fields]
        return [*columns, self.organizer_path]

    def get_list_filter(self, request: HttpRequest) -> Any:
        filters = [self._confined_filter(one) for one in super().get_list_filter(request)]
        if self._shows_organizer() and self._sees_several(request):
            filters.insert(0, OrganizerFilter)
        return filters

    def _shows_organizer(self) -> bool:
        return self.organizer_path != "pk"

    def _confined_filter(self, one: Any) -> Any:
        if not isinstance(one, str):
            return one
        field = _field_at(self.model, one)
        return (one, ConfinedRelatedFilter) if field is not None and field.is_relation else one

    @admin.display(description="organizer")
    def organizer_name(self, row: Any) -> str:
        for name in self.organizer_path.split("__"):
            row = getattr(row, name, None)
        return "" if row is None else str(row)


class _ConfinedForm(forms.ModelForm):
    """Offers rows of the given organizers only. Added in front of an admin form for members."""

    organizer_ids: ClassVar[frozenset[int]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            if isinstance(field, forms.ModelChoiceField) and field.queryset is not None:
                condition = scope_of(field.queryset.model, self.organizer_ids)
                if condition is not None:
                    field.queryset = field.queryset.filter(condition)


class OrganizerFilter(admin.SimpleListFilter):
    """Filters a list by the organizers that the user sees."""

    title = parameter_name = "organizer"

    def __init__(self, request: HttpRequest, params: Any, model: type[Model], model_admin: Any) -> None:
        self._scope = model_admin.scope
        super().__init__(request, params, model, model_admin)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows, organizer_ids = Organizer.objects.all(), model_admin._visible(request)
        if organizer_ids is not None:
            rows = rows.filter(pk__in=organizer_ids)
        return [(str(row.pk), row.name) for row in rows]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        if chosen not in {value for value, _ in self.lookup_choices}:
            return queryset
        return queryset.filter(self._scope(frozenset({int(chosen)})))


class ConfinedRelatedFilter(RelatedFieldListFilter):
    """The choices of a list's filter, without rows of organizers that the user does not see, and without those of all
    organizers, such as venues, to which no row of the list refers."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        organizer_ids, model = model_admin._visible(request), field.remote_field.model
        condition = None if organizer_ids is None else scope_of(model, organizer_ids)
        if condition is None and scope_of(model, frozenset()) is None:
            shown = model_admin.get_queryset(request).order_by().values(self.field_path).distinct()
            condition = Q(pk__in=shown)
        ordering = self.field_admin_ordering(field, request, model_admin)
        choices: list[tuple[str, Any]] = field.get_choices(
            include_blank=False, ordering=ordering, limit_choices_to=condition or {}
        )
        return choices


def scope_of(model: type[Model], organizer_ids: frozenset[int]) -> Q | None:
    """Return the condition of the model's rows that belong to these organizers; None if its rows have no organizer."""
    if model is Organizer:
        return Q(pk__in=organizer_ids)
    own = admin.site._registry.get(model)
    if isinstance(own, OrganizerScopedAdmin):
        return own.scope(organizer_ids)
    if any(field.name == "event" and field.related_model is Event for field in model._meta.fields):
        return Q(event__organizer__in=organizer_ids)
    return None


def _field_at(model: type[Model], path: str) -> Field | None:
    field = None
    for name in path.split("__"):
        field = model._meta.get_field(name)
        if field.is_relation and field.related_model is not None:
            model = field.related_model
    return field  # type: ignore[return-value]
