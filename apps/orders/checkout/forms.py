"""The checkout form's rendering. The page and the API share one validation function."""

from collections.abc import Mapping

from django import forms
from django.forms.boundfield import BoundWidget

COMMON_METHODS = 2
PAGE_ORDER = ("email", "name", "payment_method", "code", "terms")


class CheckoutForm(forms.Form):
    """Renders the fields. `buyer_details.read_details` validates them; `refuse` attaches its errors to the fields."""

    email = forms.CharField(
        label="Email address",
        required=False,
        widget=forms.EmailInput(attrs={"autocomplete": "email", "required": True}),
        help_text="We'll email your tickets here.",
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

    @property
    def first_wrong(self) -> str:
        """The name of the first field with an error, in the order of the page; empty for none."""
        return next((name for name in PAGE_ORDER if name in self.errors), "")

    def add_code_error(self, why: str) -> None:
        """Add the refusal to the code's field, which keeps the code so that it can be corrected."""
        self._add({"code": f"{why} Correct the code, or clear the field to continue without one."})

    def refuse(self, errors: Mapping[str, str]) -> None:
        """Add each error to its field, and focus the first; errors of unknown fields go above the form."""
        self._add(
            {
                field: _SENTENCES.get((field, error))
                or (f"{self.fields[field].label} {error}." if field in self.fields else f"{field}: {error}")
                for field, error in errors.items()
            }
        )

    def _add(self, sentences: Mapping[str, str]) -> None:
        self.is_valid()
        for field, text in sentences.items():
            self.add_error(field if field in self.fields else None, text)
        if self.first_wrong:
            self.fields[self.first_wrong].widget.attrs["autofocus"] = True


_SENTENCES = {
    ("email", "is required"): "Enter your email address.",
    ("email", "is not a valid email address"): "Enter a valid email address.",
    ("name", "is required"): "Enter your name.",
    ("terms", "must be accepted"): "Accept this to place the order.",
}
"""The page's sentence for an error of the API."""
