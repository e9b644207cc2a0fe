"""The parts of the OpenAPI document that drf-spectacular cannot derive from the views."""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import PolymorphicProxySerializer

from apps.kernel.http import problems
from apps.kernel.http.openapi import CALLER

SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "visitor": {"type": "apiKey", "in": "cookie", "name": "visitor", "description": "A browser's signed identity."},
    "session": {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": "A browser's login."},
    "recents": {
        "type": "apiKey",
        "in": "cookie",
        "name": "recents",
        "description": "A browser whose searches are saved, or that chose not to have them saved.",
    },
    "order_link": {
        "type": "apiKey",
        "in": "query",
        "name": "key",
        "description": "From the link in the order's email.",
    },
    "feed_key": {"type": "http", "scheme": "bearer", "description": "An organizer's key, from the admin."},
}
PROBLEM_SCHEMA = {
    "type": "object",
    "description": "RFC 9457. `type` is stable: decide by it. docs/api.md lists every type and its further members.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {"type": "object", "description": "`invalid`: what is wrong, by field; `body` for the whole."},
    },
}
_PROBLEM_CONTENT = {problems.CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_ANY = {
    400: "malformed",
    406: "not-acceptable",
    429: "rate-limited",
    431: "headers-too-large",
    503: "busy, ledger-away",
}
_WITH_ID = {404: "not-found"}
_WITH_CALLER = {401: "token-missing, token-invalid, token-expired", 403: "token-wrong-event"}
_WRITE = {403: "cross-origin"}
_WITH_BODY = {408: "request-timeout", 413: "too-large", 415: "unsupported-media-type", 422: "invalid"}


class ApiSchema(AutoSchema):
    """Adds the error responses common to all operations of a kind, so that views name only their own. Error responses
    are problem documents, and request bodies allow only the named members."""

    def get_auth(self) -> Any:
        return CALLER

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        operation = super().get_operation(*args, **kwargs)
        if operation is not None:
            if "requestBody" in operation and isinstance(self.get_request_serializer(), PolymorphicProxySerializer):
                operation["requestBody"]["required"] = True  # drf-spectacular does so only for plain serializers.
            operation["responses"] = self._with_refusals(operation)
        return operation

    def _with_refusals(self, operation: dict[str, Any]) -> dict[str, Any]:
        shared = [_ANY]
        if "{" in self.path:
            shared.append(_WITH_ID)
        if operation.get("security"):
            shared.append(_WITH_CALLER)
            if self.method != "GET":
                shared.append(_WRITE)
        if any(parameter["in"] != "path" for parameter in operation.get("parameters", ())):
            shared.append({422: "invalid"})
        if self.method in ("POST", "PUT", "PATCH"):
            shared.append(_WITH_BODY)
        responses = operation["responses"]
        for refusals in shared:
            for status, types in refusals.items():
                _add_refusal(responses, str(status), types.split(", "))
        for status, response in responses.items():
            if int(status) >= 400:
                response["content"] = _PROBLEM_CONTENT
        return dict(sorted(responses.items()))

    def _map_serializer(self, serializer: Any, direction: str, bypass_extensions: bool = False) -> Any:
        schema = super()._map_serializer(serializer, direction, bypass_extensions)
        if direction == "request" and "properties" in schema:
            schema["additionalProperties"] = False
        return schema


def _add_refusal(responses: dict[str, Any], status: str, types: list[str]) -> None:
    """Append these problem types to the description of the response with this status."""
    response = responses.setdefault(status, {"description": ""})
    missing = [f"`{each}`" for each in types if f"`{each}`" not in response["description"]]
    response["description"] = "; ".join(filter(None, [response["description"], ", ".join(missing)]))


def add_components(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return the document with the schemas that operations refer to by name. A hook of drf-spectacular."""
    components = result["components"]
    components["schemas"]["Problem"] = PROBLEM_SCHEMA
    components["securitySchemes"] = SECURITY_SCHEMES
    return result
