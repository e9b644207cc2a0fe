"""The checkout form as a page draws it. What it accepts is decided by the same function as for the API."""

from collections.abc import Mapping

from django import forms
from django.forms.boundfield import BoundWidget

from apps.kernel.codes import code_format

COMMON_METHODS = 2


class CheckoutForm(forms.Form):
    """Only draws: `buyer_details.read_details` judges, and its refusals are put back on the fields with `refuse`."""

    email = forms.CharField(
        label="E-mail",
        required=False,
        widget=forms.EmailInput(attrs={"autocomplete": "email", "required": True}),
        help_text="The tickets go here.",
    )
    name = forms.CharField(
        label="Name", required=False, widget=forms.TextInput(attrs={"autocomplete": "name", "required": True})
    )
    code = forms.CharField(
        label="Promo code",
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "characters", "spellcheck": "false"}),
    )
    payment_method = forms.ChoiceField(label="Payment", widget=forms.RadioSelect, required=False)

    def __init__(self, *args: object, methods: Mapping[str, str], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.fields["payment_method"].choices = list(methods.items())  # type: ignore[attr-defined]
        # One more than the common ones is not worth a fold.
        self._common_count = COMMON_METHODS if len(methods) > COMMON_METHODS + 1 else len(methods)

    @property
    def common_methods(self) -> list[BoundWidget]:
        """The ways to pay that everybody sees."""
        return self["payment_method"].subwidgets[: self._common_count]

    @property
    def rare_methods(self) -> list[BoundWidget]:
        """Those that are folded away."""
        return self["payment_method"].subwidgets[self._common_count :]

    @property
    def is_rare_chosen(self) -> bool:
        return self["payment_method"].value() in [radio.data["value"] for radio in self.rare_methods]

    def add_code_error(self, code: str, why: str) -> None:
        """Beside the code's field, which is empty again: whoever goes on goes on without it."""
        self.is_valid()
        self.add_error("code", f"“{code.strip()[: code_format.LENGTH_MAX]}”: {why} You can go on without it.")

    def refuse(self, errors: Mapping[str, str]) -> None:
        """These refusals stand beside their fields; those of no field of ours above the form."""
        self.is_valid()
        for field, what in errors.items():
            text = f"{self.fields[field].label} {what}." if field in self.fields else f"{field}: {what}"
            self.add_error(field if field in self.fields else None, text)
