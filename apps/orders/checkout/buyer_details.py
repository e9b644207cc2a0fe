"""Who buys and how: what a checkout may say, checked before anything is locked."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator

from apps.kernel.codes.code_format import InvalidCode, normal_code
from apps.kernel.http import problems

EMAIL_LENGTH_MAX = 254
NAME_LENGTH_MAX = 120
FIELDS = ("email", "name", "payment_method", "code")
_check_email = EmailValidator()


@dataclass(frozen=True, slots=True)
class CheckoutDetails:
    """`email` normalised; `email_given` says whether the buyer typed it or the account lent it. `code` is a promo code
    in its one spelling, empty for none."""

    email: str
    name: str
    payment_method: str
    email_given: bool
    code: str = ""


def read_details(
    payload: Mapping[str, Any], *, methods: Mapping[str, str], email: str = "", name: str = ""
) -> CheckoutDetails:
    """The details in a checkout's body; `email` and `name` stand in for what it leaves out.

    Raises Invalid with one entry per field that is wrong or that we do not know: a misspelled one must not be taken
    for one that was left out.
    """
    errors: dict[str, str] = {str(field)[:80]: "unknown field" for field in payload if field not in FIELDS}

    def take(field: str, default: str, length_max: int) -> str:
        value = payload.get(field)
        if value is None or (isinstance(value, str) and not value.strip()):
            value = default
        if not isinstance(value, str):
            errors[field] = "must be a text"
            return ""
        value = unicodedata.normalize("NFC", value.strip())
        # Control characters and lone surrogates pass JSON and fail in PostgreSQL, or start a header line in a mail.
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
            errors[field] = "has characters that cannot be printed"
        elif not value:
            errors[field] = "is required"
        elif len(value) > length_max:
            errors[field] = f"at most {length_max} characters"
        return value

    address = normalise_email(take("email", email, EMAIL_LENGTH_MAX))
    if "email" not in errors:
        try:
            _check_email(address)
        except ValidationError:
            errors["email"] = "is not an e-mail address"
    person = take("name", name, NAME_LENGTH_MAX)
    method = payload.get("payment_method")
    if method is None or method == "":
        method = next(iter(methods))
    if not isinstance(method, str) or method not in methods:
        errors["payment_method"] = f"one of {', '.join(methods)}"
    code = ""
    try:
        code = read_code(payload)
    except problems.Invalid as wrong:
        errors |= wrong.extra["errors"]
    if errors:
        raise problems.Invalid(errors)
    return CheckoutDetails(address, person, str(method), email_given=bool(payload.get("email")), code=code)


def read_code(payload: Mapping[str, Any]) -> str:
    """The body's promo code in its one spelling; empty for none. Raises Invalid."""
    value = payload.get("code")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise problems.Invalid({"code": "must be a text"})
    try:
        return normal_code(value)
    except InvalidCode as wrong:
        raise problems.Invalid({"code": str(wrong)}) from wrong


def normalise_email(address: str) -> str:
    """One spelling for one address, so that caps count it once."""
    return address.strip().lower()
