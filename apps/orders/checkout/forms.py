"""The checkout form's rendering. The page and the API share one validation function."""

from collections.abc import Mapping

from django import forms
from django.forms.boundfield import BoundWidget

from apps.kernel.codes import code_format

COMMON_METHODS = 2


class CheckoutForm(forms.Form):
    """Renders the fields. `buyer_details.read_details` validates them; `refuse` attaches its errors to the fields."""

    email = forms.CharField(
        label="Email address",
        required=False,
        widget=forms.EmailInput(attrs={"autocomplete": "email", "required": True}),
        help_text="We'll send your tickets here.",
    )
    name = forms.CharField(
        label="Name", required=False, widget=forms.TextInput(attrs={"autocomplete": "name", "required": True})
    )
    code = forms.CharField(
        label="Promo code",
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "characters", "spellcheck": "false"}),
    )
    terms = forms.CharField(label="Terms", required=False)
    payment_method = forms.ChoiceField(label="Payment", widget=forms.RadioSelect, required=False)

    def __init__(self, *args: object, methods: Mapping[str, str], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.fields["payment_method"].choices = list(methods.items())  # type: ignore[attr-defined]
        # A single extra method is not folded away.
        self._common_count = COMMON_METHODS if len(methods) > COMMON_METHODS + 1 else len(methods)

    @property
    def common_methods(self) -> list[BoundWidget]:
        """The payment methods that are always shown."""
        return self["payment_method"].subwidgets[: self._common_count]

    @property
    def rare_methods(self) -> list[BoundWidget]:
        """The payment methods that are folded away."""
        return self["payment_method"].subwidgets[self._common_count :]

    @property
    def is_rare_chosen(self) -> bool:
        return self["payment_method"].value() in [radio.data["value"] for radio in self.rare_methods]

    def add_code_error(self, code: str, why: str) -> None:
        """Add the refusal to the code's field. The caller has cleared the field, so a resubmitted form uses no code."""
        self.is_valid()
        self.add_error("code", f"“{code.strip()[: code_format.LENGTH_MAX]}”: {why} You can continue without a code.")

    def refuse(self, errors: Mapping[str, str]) -> None:
        """Add each error to its field; errors of unknown fields go above the form."""
        self.is_valid()
        for field, error in errors.items():
            text = f"{self.fields[field].label} {error}." if field in self.fields else f"{field}: {error}"
            self.add_error(field if field in self.fields else None, text)
