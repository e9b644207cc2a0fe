"""A form for what belongs to an event that is chosen in it."""

from typing import Any

from django import forms

from apps.kernel.form_fields.fields import set_currency
from apps.kernel.form_fields.local_time_field import set_zone
from apps.kernel.formatting import currency_sign


class EventSelect(forms.Select):
    """A choice of events. Each option has the sign of its currency and its time zone, which scripts put beside the
    form's amounts and times."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option: dict[str, Any] = super().create_option(name, value, *args, **kwargs)
        event = getattr(value, "instance", None)
        if event is not None:
            option["attrs"] |= {"data-sign": currency_sign(event.currency), "data-zone": event.venue.timezone}
        return option


class EventForm(forms.ModelForm):
    """Its amounts are in the currency of the chosen event, its times on the clock of that event's venue."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.chosen_event = event = self._find_chosen_event()
        set_currency(self.fields.values(), event.currency if event is not None else "")
        set_zone(self.fields.values(), event.venue.timezone if event is not None else "")

    def _find_chosen_event(self) -> Any:
        """Return the event that is chosen in the same form, by which amounts and times are read; None without one."""
        field = self.fields.get("event")
        if field is None:
            return self.instance.event if self.instance.pk else None
        assert isinstance(field, forms.ModelChoiceField)
        assert field.queryset is not None
        field.queryset = field.queryset.select_related("venue")
        chosen = self["event"].value()
        try:
            return field.clean(chosen) if chosen else None
        except forms.ValidationError:
            return None  # The field itself has the error.
