"""Strict parser of scans from devices, run before anything is locked."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from apps.kernel.http import problems
from apps.orders.checkin.check_in import DOOR_LENGTH_MAX, SCAN_ID_LENGTH_MAX, Scan
from apps.orders.checkin.ticket_codes import INPUT_LENGTH_MAX

FIELDS = ("scan_id", "code", "undo", "door", "anyway")
_SCAN_ID = re.compile(rf"[A-Za-z0-9_-]{{8,{SCAN_ID_LENGTH_MAX}}}")


def read_scan(payload: Any, *, door: str = "") -> Scan:
    """Return the scan in this object. `door`, if given, overrides the scan's. Raises Invalid with errors by field."""
    if not isinstance(payload, Mapping):
        raise problems.Invalid("must be a JSON object")
    errors: dict[str, str] = {str(field)[:80]: "unknown field" for field in payload if field not in FIELDS}
    values: dict[str, str] = {}
    for field, length_max in (("scan_id", 0), ("code", INPUT_LENGTH_MAX), ("undo", 0), ("door", DOOR_LENGTH_MAX)):
        value = payload.get(field, "")
        if not isinstance(value, str):
            errors[field] = "must be a string"
        elif any(unicodedata.category(character) in ("Cc", "Cs") for character in value.strip()):
            errors[field] = "contains unprintable characters"
        elif length_max and len(value) > length_max:
            errors[field] = f"must be at most {length_max} characters"
        elif not length_max and (value or field == "scan_id") and not _SCAN_ID.fullmatch(value):
            errors[field] = f"must be 8 to {SCAN_ID_LENGTH_MAX} letters, digits, - or _, unique for each scan"
        values[field] = value.strip() if isinstance(value, str) else ""
    anyway = payload.get("anyway", False)
    if not isinstance(anyway, bool):
        errors["anyway"] = "must be true or false"
    elif anyway and values["undo"]:
        errors["anyway"] = "cannot be sent with `undo`"
    if not errors and bool(values["code"]) == bool(values["undo"]):
        errors["code"] = "send either `code`, or `undo` to undo a check-in"
    if errors:
        raise problems.Invalid(errors)
    return Scan(values["scan_id"], values["code"], values["undo"], door or values["door"], anyway=bool(anyway))
