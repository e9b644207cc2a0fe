"""API of the fairness proof: its pages, the caller's receipt, and the keys that sign receipts."""

import hashlib
import json
from typing import Any, NamedTuple

from django.http import HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response, patch_cache_control
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.events import facade as events
from apps.kernel.fastpath.cache import RefreshingCache
from apps.kernel.http import problems
from apps.kernel.http.openapi import NO_STORE_HEADERS, NOT_MODIFIED, whole_number
from apps.queue.entries.positions import find_entry
from apps.queue.errors import EntryNotFound
from apps.queue.fairness import published, receipts, serializers
from apps.queue.identity.caller import authenticate

MOVING_MAX_AGE_SECONDS = 2
DOCUMENTS_MAX = 50
FINAL_MAX_AGE_SECONDS = 86_400
KEYS_MAX_AGE_SECONDS = 60


class ProofView(APIView):
    @extend_schema(
        operation_id="queue_proof",
        tags=["queue"],
        summary="Get the public data that proves the order of the queue, without personal data",
        auth=[],
        parameters=[
            OpenApiParameter(
                "part", str, enum=published.PARTS, description="The part to continue; `places` by default."
            ),
            OpenApiParameter(
                "after",
                whole_number(0, published.AFTER_MAX - 1),
                description="The `next` of the previous page. Without both parameters: the document.",
            ),
        ],
        responses={200: serializers.PROOF_OR_PAGE, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, event: str) -> HttpResponseBase:
        found = events.get_event(event)
        wanted = _parse_page_query(request)
        if wanted is None:
            return _respond(request, _documents.read(found.slug), MOVING_MAX_AGE_SECONDS)
        page = published.page(found, *wanted)
        return _cacheable(request, page.body, FINAL_MAX_AGE_SECONDS if page.is_final else MOVING_MAX_AGE_SECONDS)


class ReceiptView(APIView):
    @extend_schema(
        operation_id="queue_receipt",
        tags=["queue"],
        summary="Get a signed receipt of your queue entry",
        responses={200: serializers.Receipt},
    )
    def get(self, request: Request, event: str) -> Response:
        found = events.get_event(event)
        caller = authenticate(request, found.slug)
        if not caller.is_known:
            raise problems.TokenMissing
        # Fetching a receipt is not an arrival: it claims no admission.
        entry = find_entry(found.id, caller)
        if entry is None:
            raise EntryNotFound
        name = f'attachment; filename="receipt-{found.slug}.json"'
        return Response(receipts.issue(found, entry), headers={**NO_STORE_HEADERS, "Content-Disposition": name})


class ReceiptKeysView(APIView):
    @extend_schema(
        operation_id="receipt_keys",
        tags=["queue"],
        summary="List all public keys that have signed receipts",
        auth=[],
        responses={200: serializers.ReceiptKeys},
    )
    def get(self, request: Request) -> HttpResponseBase:
        return _cacheable(request, {"keys": receipts.published_keys()}, KEYS_MAX_AGE_SECONDS)


def _parse_page_query(request: Request) -> tuple[str, int] | None:
    """Return part and cursor of the requested page; None for the document. Raises Invalid."""
    part, after = request.query_params.get("part"), request.query_params.get("after")
    wrong = {name[:80]: "unknown parameter" for name in request.query_params if name not in ("part", "after", "format")}
    if part is not None and part not in published.PARTS:
        wrong["part"] = f"must be one of {', '.join(published.PARTS)}"
    if after is not None and not (after.isascii() and after.isdigit() and len(after) <= 15):
        wrong["after"] = "must be a whole number from 0, with at most 15 digits"
    if wrong:
        raise problems.Invalid(wrong)
    if part is None and after is None:
        return None
    return part or "places", int(after or 0)


def _cacheable(request: Request, body: dict[str, Any], seconds: int) -> HttpResponseBase:
    return _respond(request, _encode(body), seconds)


class _Encoded(NamedTuple):
    text: str
    etag: str


def _encode(body: dict[str, Any]) -> _Encoded:
    # The ETag ignores the time of generation.
    stable = json.dumps({name: value for name, value in body.items() if name != "generated_at"}, separators=(",", ":"))
    etag = f'"{hashlib.sha256(stable.encode()).hexdigest()[:24]}"'
    return _Encoded(json.dumps(body, separators=(",", ":")) if "generated_at" in body else stable, etag)


def _respond(request: Request, encoded: _Encoded, seconds: int) -> HttpResponseBase:
    text, etag = encoded
    response = HttpResponse(text, content_type="application/json", headers={"ETag": etag})
    patch_cache_control(response, public=True, max_age=seconds, **({"immutable": True} if seconds > 3600 else {}))
    return get_conditional_response(request._request, etag=etag, response=response) or response


_documents: RefreshingCache[str, _Encoded] = RefreshingCache(
    lambda slug: _encode(published.document(events.get_event(slug))),
    fresh_seconds=1.0, stale_seconds=0, most=DOCUMENTS_MAX,
)  # fmt: skip
"""The documents of long lines are large, and any client may ask for them."""
