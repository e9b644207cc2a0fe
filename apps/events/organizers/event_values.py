"""Shows the values of an event's rows in the admin as people read them: money in the event's currency, rates as
percentages, durations in minutes, and times on the clock of the venue."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import FieldDoesNotExist, ObjectDoesNotExist, ValidationError
from django.db import models
from django.http import HttpRequest
from django.template.response import SimpleTemplateResponse
from django.utils import timezone

from apps.events.pricing import percent
from apps.kernel.formatting import SHORT_DATE_TIME, format_datetime, format_money, format_short_duration

RATES = ("tax_rate", "ticket_fee_rate", "rate")
"""Fields in basis points."""
DURATIONS = ("hold_seconds", "payment_seconds", "grace_seconds")
EMPTY = "–"


class EventValuesMixin:
    """Replaces amounts and rates by their text in lists and on pages that only show them. For a ModelAdmin or an
    inline, before its other bases."""

    model: type[models.Model]
    has_change_permission: Callable[..., bool]
    event_path: ClassVar[str] = "event"
    """The lookup from a row to its event, or to another row with a currency; "" for an event."""

    def get_list_display(self, request: HttpRequest) -> Any:
        return [self._shown(name) for name in super().get_list_display(request)]  # type: ignore[misc]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed = [self._shown(name) for name in super().get_readonly_fields(request, obj)]  # type: ignore[misc]
        if obj is not None and not self.has_change_permission(request, obj):
            fields = (self._shown(field.name) for field in self.model._meta.fields)
            fixed += [shown for shown in fields if callable(shown) and shown not in fixed]
        return fixed

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed = self.get_readonly_fields(request, obj)
        return [
            (title, {**options, "fields": list(dict.fromkeys(self._shown_if_in(fixed, options["fields"])))})
            for title, options in super().get_fieldsets(request, obj)  # type: ignore[misc]
        ]

    def _shown_if_in(self, fixed: Any, fields: Any) -> list[Any]:
        shown = []
        for name in fields:
            text = self._shown(name) if isinstance(name, str) else name
            shown.append(text if text in fixed else name)
        return shown

    def _shown(self, name: Any) -> Any:
        """Return a column with the field's text, or the name itself if the admin already shows it well."""
        if not isinstance(name, str) or hasattr(self, name):
            return name
        if name.endswith("_minor") or name in (*RATES, *DURATIONS) or self._is_time(name):
            return _column(self.model, name, self.event_path)
        return name

    def _is_time(self, name: str) -> bool:
        try:
            return self.zone_path is not None and isinstance(self.model._meta.get_field(name), models.DateTimeField)
        except FieldDoesNotExist:
            return False

    @property
    def zone_path(self) -> str | None:
        """The lookup from a row to the zone of its event's venue; None for rows without an event."""
        return _zone_path(self.model, self.event_path)

    def get_list_select_related(self, request: HttpRequest) -> Any:
        related = super().get_list_select_related(request)  # type: ignore[misc]
        listed: list[Any] = list(self.list_display)  # type: ignore[attr-defined]
        if (
            related is True
            or self.zone_path is None
            or not any(isinstance(n, str) and self._is_time(n) for n in listed)
        ):
            return related
        # Without a list of its own, Django follows the relations of the columns.
        fields = {field.name for field in self.model._meta.fields if field.is_relation}
        columns = related or [name for name in listed if name in fields]
        return [*columns, self.zone_path.removesuffix("__timezone")]

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, *args: Any, **kwargs: Any) -> Any:
        """Show the other times of the row's page, such as those of related rows, on the clock of the venue, too."""
        zone = self._zone_of(object_id)
        if zone is None:
            return super().changeform_view(request, object_id, *args, **kwargs)  # type: ignore[misc]
        with timezone.override(ZoneInfo(zone)):
            response = super().changeform_view(request, object_id, *args, **kwargs)  # type: ignore[misc]
            # Templates are rendered later otherwise, in the zone of the site.
            return response.render() if isinstance(response, SimpleTemplateResponse) else response

    def _zone_of(self, object_id: str | None) -> str | None:
        if object_id is None or self.zone_path is None:
            return None
        key: Any = self.model._meta.pk
        while isinstance(key, models.ForeignKey):
            key = key.target_field
        try:
            found = self.model._default_manager.filter(pk=key.to_python(unquote(object_id)))
            zone: str | None = found.values_list(self.zone_path, flat=True).first()
        except (ValidationError, ValueError, OverflowError):
            return None
        return zone


@cache
def _zone_path(model: type[models.Model], event_path: str) -> str | None:
    reached: Any = model
    for name in filter(None, event_path.split("__")):
        try:
            reached = reached._meta.get_field(name).related_model
        except (FieldDoesNotExist, AttributeError):
            return None
    if reached is None or reached._meta.label != "events.Event":
        return None
    return f"{event_path}__venue__timezone".removeprefix("__")


@cache
def _column(model: type[models.Model], name: str, event_path: str) -> Callable[[Any], str]:
    field = model._meta.get_field(name)

    @admin.display(description=getattr(field, "verbose_name", name).removesuffix(" minor"), ordering=name)
    def column(row: Any) -> str:
        value = getattr(row, name)
        if value is None:
            return EMPTY
        if isinstance(value, datetime):
            return _at_venue(row, value, event_path)
        if name in DURATIONS:
            return format_short_duration(value)
        return percent(value) if name in RATES else format_money(value, _currency_of(row, event_path))

    column.__name__ = name
    return column


def _at_venue(row: Any, moment: datetime, event_path: str) -> str:
    event = _row_at(row, event_path)
    zone = UTC if event is None else event.venue.timezone
    return format_datetime(moment, zone, SHORT_DATE_TIME, with_zone_name=True)


def _currency_of(row: Any, event_path: str) -> str:
    """Return the currency of the row itself, else of the row at its path, which is its event."""
    own = getattr(row, "currency", None) or getattr(_row_at(row, event_path), "currency", None)
    return str(own or "")


def _row_at(row: Any, path: str) -> Any:
    for name in filter(None, path.split("__")):
        try:
            row = getattr(row, name, None)
        except ObjectDoesNotExist:
            return None
    return row
