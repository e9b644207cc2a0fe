"""Shows the values of an event's rows in the admin as people read them: money in the event's currency, rates as
percentages, durations in minutes."""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.http import HttpRequest

from apps.events.pricing import percent
from apps.kernel.formatting import format_money, format_short_duration

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
        if name.endswith("_minor") or name in (*RATES, *DURATIONS):
            return _column(self.model, name, self.event_path)
        return name


@cache
def _column(model: type[models.Model], name: str, event_path: str) -> Callable[[Any], str]:
    field = model._meta.get_field(name)

    @admin.display(description=getattr(field, "verbose_name", name).removesuffix(" minor"), ordering=name)
    def column(row: Any) -> str:
        value = getattr(row, name)
        if value is None:
            return EMPTY
        if name in DURATIONS:
            return format_short_duration(value)
        return percent(value) if name in RATES else format_money(value, _currency_of(row, event_path))

    column.__name__ = name
    return column


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
