"""The form of "Find my order". `buyer_details.read_email` validates it, as at the checkout."""

from django import forms

from apps.orders.checkout.buyer_details import EMAIL_LENGTH_MAX

_SENTENCES = {"is required": "Enter your email address."}


class FindOrderForm(forms.Form):
    email = forms.CharField(
        label="Email address",
        required=False,
        widget=forms.EmailInput(attrs={"autocomplete": "email", "required": True, "maxlength": EMAIL_LENGTH_MAX}),
        help_text="The one that you entered when you bought the tickets.",
    )

    def refuse(self, error: str) -> None:
        """Show the error at the field, and focus the field."""
        self.is_valid()
        self.add_error("email", _SENTENCES.get(error, "Enter a valid email address."))
        self.fields["email"].widget.attrs["autofocus"] = True
