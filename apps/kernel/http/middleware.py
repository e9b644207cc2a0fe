"""Middleware of every request: sets request ids and default headers, applies rate limits and renders problems."""

import time
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template import loader
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import url_has_allowed_host_and_scheme

from apps.kernel import rate_limits
from apps.kernel.http import client_address, problems
from apps.kernel.observability import access_log, log_context, request_metrics
from apps.kernel.rate_limits import kinds


class ForwardedHeadersMiddleware(MiddlewareMixin):
    """Accepts `X-Forwarded-Proto` only from our fast path. Comes first, because later middleware checks whether the
    connection is secure."""

    def process_request(self, request: HttpRequest) -> None:
        client_address.strip_untrusted_headers(request.META)


class DefaultCacheControlMiddleware(MiddlewareMixin):
    """Forbids storing responses without a Cache-Control header: a shared cache would otherwise apply a rule of its own
    and could serve one user's error page, with the user's name, to another. Removes cookies from public responses."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Cache-Control", "no-store")
        if response.cookies and "public" in response.headers["Cache-Control"]:
            # Django deletes an invalid session cookie. A cache that served the deletion would log out every user.
            response.cookies.clear()
            others = [word for word in response.headers.get("Vary", "").split(", ") if word not in ("", "Cookie")]
            del response.headers["Vary"]
            if others:
                response.headers["Vary"] = ", ".join(others)
        return response


class PermissionsPolicyMiddleware(MiddlewareMixin):
    """Denies pages, and any script injected into them, access to camera, microphone and location, unless the page's
    view allows one of them."""

    POLICY = "camera=(), microphone=(), geolocation=()"

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if response.headers.get("Content-Type", "").startswith("text/html"):
            response.headers.setdefault("Permissions-Policy", self.POLICY)
        return response


class RateLimits(MiddlewareMixin):
    """Refuses requests beyond the rate limit with 429, before any query. The fast path has already checked the requests
    that it forwards."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        kind = kinds.kind_of(request.method or "GET", request.path_info)
        if kind is None or client_address.is_forwarded_by_fastpath(request.META):
            return None
        token = kinds.token_of(request.headers.get("Authorization", ""), request.headers.get("Cookie", ""))
        wait = rate_limits.check_request(kind, client_address.address_from_environ(request.META), token)
        if wait is None:
            return None
        problem = problems.RateLimited(wait)
        if problems.is_api(request) or "text/html" not in request.headers.get("Accept", ""):
            return problems.respond(problem)
        # Self-contained, because the site's own page for problems queries the session.
        return HttpResponse(problem.page(), status=problem.status, headers=problem.headers())


class RequestContext:
    """Sets `X-Request-Id` on every response (the proxy's id or a new one), and records the response in the metrics and
    the access log."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if log_context.REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        log_context.request_id.set(request_id)
        begun = time.perf_counter()
        request_metrics.request_started()
        try:
            response = self.get_response(request)
        finally:
            request_metrics.request_finished()
        response.headers["X-Request-Id"] = request_id
        _note(request, response, time.perf_counter() - begun, request_id)
        return response


def _note(request: HttpRequest, response: HttpResponse, seconds: float, request_id: str) -> None:
    match = request.resolver_match
    # The name of the view, never the path that the client sent.
    route = (match.view_name if match is not None else "") or "unknown"
    method, size = request.method or "", 0 if response.streaming else len(response.content)
    request_metrics.record_response(route, method, response.status_code, seconds)
    event = match.kwargs.get("slug", match.kwargs.get("event", "")) if match is not None else ""
    address = client_address.address_from_environ(request.META)
    access_log.log(method, route, response.status_code, seconds, size, request_id, address, event)


def problem_response(request: HttpRequest, problem: problems.Problem) -> HttpResponse:
    """Return the problem as a document for the API, as a page otherwise."""
    if problems.is_api(request):
        return problems.respond(problem)
    title, detail = problem.page_texts or (problem.title, "")
    context = {"title": title, "detail": detail if problem.detail == problem.title else problem.detail}
    if problem.status == 503:
        context |= _way_back(request)
    match problem:
        case problems.NotFound():
            page = "404.html"
        case problems.NotOwner() | problems.TokenMissing():
            page = "403.html"
        case _:
            page = "problem.html"
    response = render(request, page, context, status=problem.status)
    for name, value in problem.headers().items():
        response.headers[name] = value
    return response


def _way_back(request: HttpRequest) -> dict[str, str]:
    """Return the action of a page that says "try again": the same page, or the one whose form was sent."""
    if request.method in ("GET", "HEAD"):
        return {"action_url": request.get_full_path(), "action_label": "Try again"}
    sender = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(sender, {request.get_host()}, require_https=request.is_secure()):
        return {}
    return {"action_url": sender, "action_label": "Go back and try again"}


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Respond to requests that Django refuses: with an unknown host, or a form with thousands of fields."""
    return problem_response(request, problems.Malformed())


def server_error(request: HttpRequest) -> HttpResponse:
    """Respond to an unexpected error, without revealing its cause."""
    if problems.is_api(request):
        return problems.respond(problems.Fault())
    # Self-contained: a page that needs the session or the database could fail the same way.
    return HttpResponse(loader.get_template("500.html").render(), status=500)


class ProblemResponses(MiddlewareMixin):
    """Responds with a page to a Problem that a page raised, and with a problem document to an unknown API URL."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        is_problem = response.headers.get("Content-Type", "").startswith(problems.CONTENT_TYPE)
        if response.status_code == 404 and problems.is_api(request) and not is_problem:
            return problems.respond(problems.NotFound())
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        problem = problems.from_exception(error)
        # Django itself renders 404 and 403 for pages, from the same templates.
        if problem is None or not (isinstance(error, problems.Problem) or problem.status in (413, 503)):
            return None
        return problem_response(request, problem)
