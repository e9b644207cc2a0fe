"""The fields of a form that may require proof of work. Its template includes `includes/work.html`."""

import math
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from apps.kernel.http import client_address
from apps.kernel.http.problems import RateLimited
from apps.kernel.proof_of_work.challenges import PAYLOAD_LENGTH_MAX, WorkRequired
from apps.kernel.proof_of_work.purposes import LOG_IN
from apps.kernel.tokens.jwt import LENGTH_MAX as TOKEN_LENGTH_MAX


class WorkForm(forms.Form):
    """A base class for forms with a `request`. `clean` of the subclass calls `require_work` before anything that is
    expensive."""

    proof = forms.CharField(required=False, max_length=PAYLOAD_LENGTH_MAX, widget=forms.HiddenInput)
    delay = forms.CharField(required=False, max_length=TOKEN_LENGTH_MAX, widget=forms.HiddenInput)
    purpose = LOG_IN

    def require_work(self) -> None:
        """Raise ValidationError if work is required and was not done."""
        if self._address is None:
            return
        proof, delay = self.cleaned_data.get("proof", ""), self.cleaned_data.get("delay", "")
        try:
            self.purpose.check(self._address, proof=proof, delay=delay)
        except WorkRequired:
            left = self.purpose.seconds_left(self._address, delay) if delay else None
            enter = f"Wait {math.ceil(left)} seconds, then enter" if left else "Enter"
            raise ValidationError(
                f"We check that programs do not guess passwords. {enter} your password again, and continue.",
                code="work-required",
            ) from None

    def hidden_fields(self) -> list[forms.BoundField]:
        """Return the other hidden fields: `includes/work.html` has these two, with new values."""
        return [field for field in super().hidden_fields() if field.name not in ("proof", "delay")]

    @property
    def work(self) -> dict[str, Any] | None:
        """The context of `includes/work.html`: a new challenge, and, unless too many of this address wait already, a
        delay for browsers without scripts. None if no work is required now."""
        if self._address is None or not self.purpose.is_required(self._address):
            return None
        delay = self.data.get("delay", "") if self.is_bound else ""
        left = self.purpose.seconds_left(self._address, delay) if delay else None
        if not left:  # None was given, or it has been used.
            try:
                delay = self.purpose.create_delay(self._address)
            except RateLimited:
                delay = ""
            left = self.purpose.seconds_left(self._address, delay)
        challenge = self.purpose.create_challenge(self._address)
        return {"challenge": challenge, "delay": delay, "seconds": math.ceil(left or 0)}

    @property
    def _address(self) -> str | None:
        request = getattr(self, "request", None)
        return None if request is None else client_address.address_from_environ(request.META)
