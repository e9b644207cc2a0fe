"""Parse and validate the buyer's details in a checkout, before anything is locked."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError

from apps.kernel.codes.code_format import InvalidCode, normal_code
from apps.kernel.form_fields.invisible_characters import first_visible, remove_invisible
from apps.kernel.http import problems
from apps.kernel.mail.addresses import check_address

EMAIL_LENGTH_MAX = 254
NAME_LENGTH_MAX = 120
FIELDS = ("email", "name", "payment_method", "code", "terms")
_REFUSED_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
"""Control characters, lone surrogates, separators of lines and paragraphs."""


@dataclass(frozen=True, slots=True)
class CheckoutDetails:
    """Validated details of a checkout. `email` is normalized; `email_given` is false if `email` is the default, not in
    the body. `code` is a promo code in canonical form, empty for none; `code_given` is false if the body has no code,
    not even an empty one: a retry then keeps its order's code."""

    email: str
    name: str
    payment_method: str
    email_given: bool
    code: str = ""
    code_given: bool = False
    terms: str = ""
    """The version of the terms and the privacy notice that the buyer has accepted; empty for none."""


def read_details(
    payload: Mapping[str, Any], *, methods: Mapping[str, str], email: str = "", name: str = ""
) -> CheckoutDetails:
    """Return the details in a checkout's body. `email` and `name` are defaults for fields that it omits.

    Raises Invalid with one entry per invalid or unknown field: a misspelled field must not count as omitted.
    """
    errors: dict[str, str] = {str(field)[:80]: "unknown field" for field in payload if field not in FIELDS}

    address = read_email(payload, errors, default=email)
    full_name = _take(payload, "name", name, NAME_LENGTH_MAX, errors)
    method = payload.get("payment_method")
    if method is None or method == "":
        method = next(iter(methods))
    if not isinstance(method, str) or method not in methods:
        errors["payment_method"] = f"must be one of {', '.join(methods)}"
    code = ""
    try:
        code = read_code(payload)
    except problems.Invalid as error:
        errors |= error.extra["errors"]
    terms = payload.get("terms")
    if terms is not None and not isinstance(terms, str):
        errors["terms"] = "must be a string: the version of the accepted terms"
    if errors:
        raise problems.Invalid(errors)
    return CheckoutDetails(
        address,
        full_name,
        str(method),
        email_given=bool(payload.get("email")),
        code=code,
        code_given=payload.get("code") is not None,
        terms=str(terms or ""),
    )


def read_email(payload: Mapping[str, Any], errors: dict[str, str], *, default: str = "") -> str:
    """Return the body's email address, normalized. An invalid one adds to `errors`."""
    address = _take(payload, "email", default, EMAIL_LENGTH_MAX, errors)
    if "email" not in errors:
        try:
            check_address(address)
        except ValidationError:
            errors["email"] = "is not a valid email address"
    return normalize_email(address)


def read_name(payload: Mapping[str, Any]) -> str:
    """Return the body's name. Raises Invalid."""
    errors: dict[str, str] = {}
    name = _take(payload, "name", "", NAME_LENGTH_MAX, errors)
    if errors:
        raise problems.Invalid(errors)
    return name


def _take(payload: Mapping[str, Any], field: str, default: str, length_max: int, errors: dict[str, str]) -> str:
    value = payload.get(field)
    if value is None or (isinstance(value, str) and not value.strip()):
        value = default
    if not isinstance(value, str):
        errors[field] = "must be a string"
        return ""
    if len(value) > 4 * length_max:
        # Not read: each character takes time, and a run of combining marks quadratic time.
        errors[field] = f"must be at most {length_max} characters"
        return ""
    value = unicodedata.normalize("NFC", remove_invisible(value).strip())
    # JSON accepts control characters and lone surrogates; PostgreSQL refuses some of them, and a line break could
    # start another header line in a mail.
    if any(unicodedata.category(character) in _REFUSED_CATEGORIES for character in value):
        errors[field] = "contains unprintable characters"
    elif not first_visible(value):
        errors[field] = "is required"
    elif len(value) > length_max:
        errors[field] = f"must be at most {length_max} characters"
    return value


def read_code(payload: Mapping[str, Any]) -> str:
    """Return the body's promo code in canonical form, empty for none. Raises Invalid."""
    value = payload.get("code")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise problems.Invalid({"code": "must be a string"})
    try:
        return normal_code(value)
    except InvalidCode as error:
        raise problems.Invalid({"code": str(error)}) from error


def normalize_email(address: str) -> str:
    """Return the canonical spelling of an address, so that purchase caps count it once."""
    return address.strip().lower()
