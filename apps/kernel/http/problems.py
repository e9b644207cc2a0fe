"""Refusals as RFC 9457 problem documents, each with one stable `type`. Pages, API and commands raise the same ones."""

import math
import random
from itertools import islice
from typing import Any, ClassVar

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpResponse, JsonResponse, UnreadablePostError
from rest_framework import exceptions

from apps.kernel.http.request_types import AnyRequest

CONTENT_TYPE = "application/problem+json"
ERRORS_MAX = 20
_IDLE_IN_TRANSACTION = "25P03"
"""The SQLSTATE of a transaction that PostgreSQL has ended because its process was too slow."""


class Problem(Exception):
    """A refusal that the client can understand and act on. A subclass's name says what happened."""

    type: ClassVar[str] = "invalid"
    status: ClassVar[int] = 422
    title: ClassVar[str] = "The request could not be completed."
    retry_after_seconds: int | None = None
    retry_spread_seconds: ClassVar[int] = 0
    """Retry-After is longer by a random number of seconds up to this, so that clients refused together retry apart."""
    page_texts: ClassVar[tuple[str, str] | None] = None
    """Title and text on a page, where those for API clients would mean nothing to a visitor. A problem's own detail
    replaces the text."""

    def __init__(self, detail: str = "", *, retry_after_seconds: int | None = None, **extra: Any) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        self.extra = extra
        if retry_after_seconds is not None:
            self.retry_after_seconds = retry_after_seconds

    @property
    def is_plain(self) -> bool:
        """Whether its document is the same for every problem of its class."""
        return self.detail == self.title and not self.extra and self.retry_after_seconds is None

    def document(self) -> dict[str, Any]:
        return {"type": self.type, "title": self.title, "status": self.status, "detail": self.detail, **self.extra}

    def headers(self) -> dict[str, str]:
        """Return the response's headers. No cache may store a problem, since the next request may succeed."""
        headers = {"Cache-Control": "no-store"}
        if self.retry_after_seconds is not None:
            spread = random.randint(0, self.retry_spread_seconds)  # noqa: S311 - nothing secret
            headers["Retry-After"] = str(self.retry_after_seconds + spread)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


class StaffProblem(Problem):
    """Problems that only staff pages and commands show; not part of the API."""


class Invalid(Problem):
    """Input that can never succeed as sent. `errors` maps each invalid field to its error, up to ERRORS_MAX fields."""

    type, status, title = "invalid", 422, "The request is not valid."

    def __init__(self, errors: dict[str, Any] | str) -> None:
        found = {"body": errors} if isinstance(errors, str) else errors
        if len(found) > ERRORS_MAX:
            others = len(found) - ERRORS_MAX
            found = dict(islice(found.items(), ERRORS_MAX)) | {"body": f"{others} more errors"}
        super().__init__("; ".join(f"{field}: {_flat(what)}" for field, what in found.items()), errors=found)


def _flat(what: Any) -> str:
    if isinstance(what, dict):
        return ", ".join(f"{field}: {_flat(inner)}" for field, inner in what.items())
    return ", ".join(_flat(inner) for inner in what) if isinstance(what, (list, tuple)) else str(what)


class NotFound(Problem):
    type, status, title = "not-found", 404, "Not found."


class MethodNotAllowed(Problem):
    type, status, title = "method-not-allowed", 405, "This URL does not support the request method."


class TooLarge(Problem):
    type, status, title = "too-large", 413, "The request is too large."


class TimedOut(Problem):
    type, status, title = "request-timeout", 408, "The request took too long to arrive."


class WrongContentType(Problem):
    type, status, title = "unsupported-media-type", 415, "Send the body as application/json."


class NotAcceptable(Problem):
    type, status, title = "not-acceptable", 406, "This URL returns only JSON."


class Malformed(Problem):
    type, status, title = "malformed", 400, "The request is malformed."
    page_texts = "Something went wrong.", "Nothing was changed. Refresh the page and try again."


class MalformedBody(Malformed):
    title = "The body is not valid JSON."


class Fault(Problem):
    type, status, title = "fault", 500, "Something went wrong on our side."


class TokenMissing(Problem):
    type, status, title = "token-missing", 401, "Join the line or log in first."


class TokenInvalid(Problem):
    type, status, title = "token-invalid", 401, "This token is not valid."


class TokenExpired(Problem):
    type, status, title = "token-expired", 401, "This token has expired."


class TokenWrongEvent(Problem):
    type, status, title = "token-wrong-event", 403, "This token is for another event."


class NotOwner(Problem):
    type, status, title = "not-owner", 403, "This belongs to another visitor or account."


class CrossOrigin(Problem):
    type, status, title = "cross-origin", 403, "The request did not come from this site."


class IdempotencyKeyRequired(Problem):
    type, status, title = "idempotency-key-required", 400, "Send an Idempotency-Key header."
    page_texts = "This page is out of date.", "Nothing was changed. Refresh the page and try again."


class IdempotencyMismatch(Problem):
    type, status, title = "idempotency-mismatch", 422, "This idempotency key was used for a different request."
    page_texts = IdempotencyKeyRequired.page_texts


class IdempotencyInProgress(Problem):
    type, status, title = "idempotency-in-progress", 409, "The same request is still in progress."
    page_texts = "We are still working on your last request.", "Wait a few seconds, then refresh the page."
    retry_after_seconds = 1


class RateLimited(Problem):
    """The request may be retried after `Retry-After`; the refusal changes nothing."""

    type, status, title = "rate-limited", 429, "Too many requests. Try again later."

    def __init__(self, wait_seconds: float) -> None:
        super().__init__(
            "Too many requests came from your connection. Wait, then try again. You keep your place in line and any"
            " reserved tickets.",
            retry_after_seconds=math.ceil(wait_seconds),
        )

    def page(self) -> bytes:
        """Return a self-contained page that explains what the visitor can do."""
        return _TOO_MANY_REQUESTS % (self.retry_after_seconds or 1)


_TOO_MANY_REQUESTS = b"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>One moment</title><link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/css/fairgate.css">
<header class="site-header"><div class="site-header__inner"><a class="brand" href="/"><span class="brand__word">Fairgate
</span></a></div></header>
<main class="page page--narrow"><section class="problem"><p class="problem__figure" aria-hidden="true">429</p>
<h1>One moment</h1><p class="lead">Too many requests came from your internet connection, perhaps from other people who
share it. You keep your place in line and any reserved tickets. Try again in %d seconds.</p></section></main>
"""


class Busy(Problem):
    type, status, title = "busy", 503, "We are very busy right now. Try again in a moment."
    retry_after_seconds = 1
    retry_spread_seconds = 2


class DatabaseUnavailable(Problem):
    type, status, title = "ledger-away", 503, "The database cannot be reached. Nothing was changed. Try again."
    page_texts = "We cannot sell tickets right now.", "Nothing was changed. Try again in a moment."
    retry_after_seconds = 2
    retry_spread_seconds = 3


def from_exception(error: BaseException) -> Problem | None:
    """Return the problem that represents an exception; None for a fault of our own code."""
    match error:
        case Problem():
            return error
        case Http404() | exceptions.NotFound():
            return NotFound()
        case RequestDataTooBig():
            return TooLarge()
        case SuspiciousOperation():  # For example, too many parameters.
            return Malformed()
        case exceptions.ParseError() | UnreadablePostError():
            return MalformedBody()
        case exceptions.UnsupportedMediaType():
            return WrongContentType()
        case exceptions.NotAcceptable():
            return NotAcceptable()
        case exceptions.MethodNotAllowed():
            return MethodNotAllowed()
        case exceptions.ValidationError():
            return Invalid(error.detail if isinstance(error.detail, dict) else {"body": error.detail})
        case exceptions.AuthenticationFailed():
            return TokenInvalid(_flat(error.detail))
        case exceptions.NotAuthenticated():
            return TokenMissing()
        case exceptions.PermissionDenied() | PermissionDenied():
            return NotOwner()
        case DatabaseError() if getattr(error.__cause__, "sqlstate", None) == _IDLE_IN_TRANSACTION:
            return Busy()
        case OperationalError() | InterfaceError():
            # An error with an SQLSTATE comes from the server, as after a lock or statement timeout: it is busy.
            return Busy() if getattr(error.__cause__, "sqlstate", None) else DatabaseUnavailable()
    return None


def respond(problem: Problem) -> JsonResponse:
    """Return the problem as a response."""
    response = JsonResponse(
        problem.document(), status=problem.status, content_type=CONTENT_TYPE, headers=problem.headers()
    )
    if isinstance(problem, Busy):
        # Busy is normal under overload, like a 4xx, but Django would log each 503 as an error.
        response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def exception_handler(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """DRF's exception handler: responds to a refusal with a problem document. Other errors become a 500."""
    problem = from_exception(error)
    # DRF's own response is not used: the negotiated renderer would write it, for example as YAML.
    return None if problem is None else respond(problem)


def is_api(request: AnyRequest) -> bool:
    return request.path.startswith("/api/")
