"""Parameters, headers, responses and security requirements shared by the descriptions of API operations."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from apps.kernel.http.idempotency import KEY_LENGTH_MAX

NO_STORE_HEADERS = {"Cache-Control": "no-store"}
"""Headers of a response that no cache may store."""
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH_MAX, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    OpenApiParameter.HEADER,
    required=True,
    description="Printable ASCII, unique among the buyer's requests. The same key returns the same response.",
)
NOT_YOURS = OpenApiResponse(description="`not-owner`, `token-wrong-event`")
NOT_CHANGEABLE = OpenApiResponse(description="`not-owner`, `token-wrong-event`, `mailbox-not-confirmed`")
NOT_MODIFIED = OpenApiResponse(description="Unchanged since that ETag")
# Security requirements. Typed as Any, because drf-spectacular accepts these dicts but declares strings only.
CALLER: Any = [{"bearer": []}, {"visitor": []}, {"session": []}]
"""Each of these identifies the caller: a token, or one of a browser's two cookies."""
OPTIONAL_CALLER: Any = [*CALLER, {}]
ORDER_CALLER: Any = [*CALLER, {"order_link": []}]
FEED_KEY: Any = [{"feed_key": []}]

_INNER = r"[^\x00-\x1f\x7f-\x9f]"
_OUTER = r"[^\s\x00-\x1f\x7f-\x9f]"
ONE_LINE = rf"^\s*{_OUTER}({_INNER}*{_OUTER})?\s*$"
"""Text without control characters that is not blank. White space around it is dropped."""
ONE_LINE_OR_BLANK = rf"^\s*({_OUTER}({_INNER}*{_OUTER})?)?\s*$"


def unique_texts(**more: Any) -> dict[str, Any]:
    """Return the schema of a list of distinct texts."""
    return {"type": "array", "uniqueItems": True, "items": {"type": "string", "minLength": 1}, **more}


def whole_number(minimum: int, maximum: int, **more: Any) -> dict[str, Any]:
    """Return the schema of a whole number within these limits."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **more}
