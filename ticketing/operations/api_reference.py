"""/api/docs: the OpenAPI document as a page for people, rendered once by each process. It needs no script."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

from ticketing.operations.api_description import generate_document

_METHODS = ("get", "post", "put", "patch", "delete")
_REFERENCE = "#/components/schemas/"
_LIMITS = {
    "minimum": "at least {}", "maximum": "at most {}", "minLength": "at least {} characters",
    "maxLength": "at most {} characters", "minItems": "at least {} items", "maxItems": "at most {} items",
    "default": "by default {}",
}  # fmt: skip
_CREDENTIALS = {
    "bearer": "a bearer token",
    "visitor": "a browser's cookie",
    "session": "a log-in",
    "order_link": "the key of an order's link, as ?key=",
    "feed_key": "an organizer's key, as a bearer token",
}
_CODE = re.compile(r"`([^`]+)`")
_ENUMERATION = re.compile(r"\n*(?:^\* `[^`]*` - .*\n?)+", re.MULTILINE)


@require_safe
def api_reference(request: HttpRequest) -> HttpResponse:
    return render(request, "api_docs.html", _reference())


@lru_cache
def _reference() -> dict[str, Any]:
    """Return the context of api_docs.html: `groups` of operations by tag, in the document's order, and `schemas`."""
    document = json.loads(json.dumps(generate_document(), default=str))
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                operation = item[method]
                groups.setdefault(operation.get("tags", ["other"])[0], []).append(_operation(method, path, operation))
    schemas = document["components"]["schemas"]
    return {
        "groups": [{"name": name, "operations": operations} for name, operations in groups.items()],
        "schemas": [
            {"name": name, "description": _prose(schema), "type": _type(schema), "fields": list(_fields(schema))}
            for name, schema in schemas.items()
        ],
    }


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    body = _content(operation.get("requestBody", {}))
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": _code(operation.get("summary", "")),
        "description": _prose(operation),
        "credentials": _credentials(operation.get("security", [])),
        "parameters": [
            {
                "name": each["name"],
                "where": each["in"],
                "type": _type(each.get("schema", {})),
                "is_required": each.get("required", False),
                "description": _prose(each),
            }
            for each in operation.get("parameters", [])
        ],
        "body": None if body is None else _type(body),
        "answers": [
            {"status": status, "type": _answer_type(answer), "description": _prose(answer)}
            for status, answer in operation.get("responses", {}).items()
        ],
        "example": _example(method, path, operation),
    }


def _content(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of a request or an answer; None without a body."""
    for content in part.get("content", {}).values():
        schema: Mapping[str, Any] = content.get("schema", {})
        return schema
    return None


def _answer_type(answer: Mapping[str, Any]) -> SafeString | str:
    schema = _content(answer)
    return "" if schema is None else _type(schema)


def _credentials(security: list[Mapping[str, Any]]) -> str:
    names = [_CREDENTIALS.get(name, name) for option in security for name in option]
    is_optional = any(not option for option in security) or not security
    if not names:
        return "none"
    return ("none, or " if is_optional else "") + ", or ".join(names)


def _fields(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        yield {"name": name, "type": _type(each), "is_required": name in required, "description": _prose(each)}
    for part in schema.get("allOf", ()):
        yield from _fields(part)


def _type(schema: Mapping[str, Any]) -> SafeString:
    """Return the type in words, with links to the schemas that it names."""
    limits = [text.format(json.dumps(schema[name])) for name, text in _LIMITS.items() if name in schema]
    words = ", ".join([_base_type(schema), *(escape(limit) for limit in limits)])
    return mark_safe(words)  # noqa: S308 - every part is escaped.


def _base_type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_REFERENCE))
        return f'<a href="#schema-{name}">{name}</a>'
    for several, joint in (("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")):
        if several in schema:
            return joint.join(_base_type(each) for each in schema[several])
    if "enum" in schema:
        return "one of " + ", ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    kinds = schema.get("type", "any value")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    words = []
    for kind in kinds:
        if kind == "array":
            words.append(f"list of {_base_type(schema.get('items', {}))}")
        elif kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
            words.append(f"object with values: {_base_type(schema['additionalProperties'])}")
        else:
            form = f" ({schema['format']})" if "format" in schema and kind != "null" else ""
            words.append(escape(f"{kind}{form}"))
    if schema.get("nullable"):
        words.append("null")
    return " or ".join(words)


def _prose(part: Mapping[str, Any]) -> SafeString:
    """Return the description without the list of values, which the type has."""
    return _code(_ENUMERATION.sub("", part.get("description", "") or "").strip())


def _code(text: str) -> SafeString:
    return mark_safe(_CODE.sub(r"<code>\1</code>", escape(text)))  # noqa: S308 - escaped before the elements are added.


def _example(method: str, path: str, operation: Mapping[str, Any]) -> str:
    """Return a command that makes the call, with the placeholders of its path in capitals."""
    shown = re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), path)
    parts = ["curl" if method == "get" else f"curl -X {method.upper()}", f"$SITE{shown}"]
    schemes = {name for option in operation.get("security", []) for name in option}
    if schemes & {"bearer", "feed_key"}:
        parts.append("-H 'Authorization: Bearer TOKEN'")
    headers = (each["name"] for each in operation.get("parameters", []) if each["in"] == "header")
    parts += [f"-H '{name}: {'KEY' if name == 'Idempotency-Key' else 'VALUE'}'" for name in headers]
    if "requestBody" in operation:
        parts.append("--json '{…}'")
    return " \\\n  ".join(parts)
