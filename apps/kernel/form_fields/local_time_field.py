"""A form field for a moment, typed on the clock of a time zone, which the form names beside it."""

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.kernel.form_fields.local_time import (
    EARLIEST,
    LATEST,
    AmbiguousLocalTime,
    InvalidLocalTime,
    resolve_local_time,
)

_MINUTES, _SECONDS = "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"
_HAS_OFFSET = re.compile(r"(Z|[+-][0-9]{2}:[0-9]{2})\s*$", re.ASCII)
_CHARACTERS_MAX = 40


class LocalTimeInput(forms.TextInput):
    """The browser's input for a date and time, with the name of its zone. A time with an offset, which that input
    cannot hold, is a text: it is needed where clocks are set back."""

    class Media:
        css = {"all": ("css/form-fields.css",)}
        js = ("js/local-time-fields.js",)

    zone = ""

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context(name, value, attrs)
        shown = context["widget"]
        text = shown["value"] or ""
        shown["type"] = "text" if _HAS_OFFSET.search(text) else "datetime-local"
        if shown["type"] == "datetime-local" and len(text) > len("2027-05-01T20:00"):
            shown["attrs"]["step"] = 1  # Otherwise browsers refuse a value with seconds.
        return context

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        given = super().render(name, value, attrs, renderer)
        return format_html(
            '<span class="amount__line">{}<span class="amount__unit" data-zone-label>{}</span></span>', given, self.zone
        )


class LocalTimeField(forms.Field):
    """A moment, typed on the clock of `zone`. The form sets the zone before it is used."""

    widget: Any = LocalTimeInput

    def __init__(self, zone: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.zone = zone

    @property
    def zone(self) -> str:
        return self._zone

    @zone.setter
    def zone(self, zone: str) -> None:
        self._zone = zone
        self.widget.zone = zone

    def prepare_value(self, value: Any) -> Any:
        return self._write(value) if isinstance(value, datetime) else value

    def _write(self, moment: datetime) -> str:
        local = moment.replace(microsecond=0).astimezone(ZoneInfo(self._zone or "UTC"))
        if not self._zone or local.replace(fold=1 - local.fold).utcoffset() != local.utcoffset():
            return local.isoformat(timespec="minutes")
        return local.strftime(_SECONDS if local.second else _MINUTES)

    def to_python(self, value: Any) -> datetime | None:
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        text = str(value or "").strip()
        if not text:
            return None
        try:
            moment = datetime.fromisoformat(text) if len(text) <= _CHARACTERS_MAX else None
        except ValueError:
            moment = None
        if moment is None:
            raise forms.ValidationError("Enter a date and time.", code="invalid")
        if moment.tzinfo is None and not self._zone:
            raise forms.ValidationError("Choose the venue first: this time is on its clock.", code="no_zone")
        if not EARLIEST.year <= moment.year < LATEST.year:
            years = f"{EARLIEST.year} to {LATEST.year - 1}"
            raise forms.ValidationError(f"Enter a date and time in the years {years}.", code="invalid")
        try:
            return resolve_local_time(moment, self._zone)
        except InvalidLocalTime as error:
            raise forms.ValidationError(str(error), code="invalid") from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return the text as it was typed; an ambiguous one with an offset, which the user may change."""
        try:
            moment = datetime.fromisoformat(str(data).strip()[:_CHARACTERS_MAX])
            if self._zone:
                resolve_local_time(moment, self._zone)
        except AmbiguousLocalTime as error:
            return error.first.isoformat(timespec="minutes")
        except (ValueError, OverflowError):
            return data
        return data

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            typed = self.to_python(data)
        except forms.ValidationError:
            return True
        before = initial.replace(microsecond=0) if isinstance(initial, datetime) else initial
        return bool(typed != before)


def set_zone(fields: Any, zone: str) -> None:
    """Set the zone of all local times among the fields."""
    for field in fields:
        if isinstance(field, LocalTimeField):
            field.zone = zone
