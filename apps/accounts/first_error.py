"""Focus on the first field with an error, for every form of accounts."""

from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS


class FocusesFirstError(forms.BaseForm):
    """A mixin of a form: the page opens with the focus on its first field with an error."""

    field_of_refusal = ""
    """The field to enter again after an error of the form as a whole."""

    def full_clean(self) -> None:
        super().full_clean()
        self._focus_first_error()

    def add_error(self, field: str | None, error: Any) -> None:
        super().add_error(field, error)
        self._focus_first_error()

    def _focus_first_error(self) -> None:
        found: Any = self._errors  # type: ignore[attr-defined]  # While `errors` is being computed.
        if not found:
            return
        first = next((name for name in self.fields if name in found), "")
        if not first and NON_FIELD_ERRORS in found:
            first = self.field_of_refusal
        if not first:
            return
        for field in self.fields.values():
            field.widget.attrs.pop("autofocus", None)
        self.fields[first].widget.attrs["autofocus"] = True
