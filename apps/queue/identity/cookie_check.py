"""Gives a new browser its identity by a redirect that repeats the form."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.queue.identity.caller import new_visitor_secret, set_visitor_cookie


def repeat_with_cookie(request: HttpRequest, slug: str, form_url: str) -> HttpResponse:
    """Set a visitor cookie and redirect the browser so that it posts the same form again. If it returns without the
    cookie, show a page that asks to allow cookies."""
    if "again" in request.GET:
        context = {
            "title": "Cookies are blocked",
            "detail": "We need a cookie to save your place in line. Allow cookies for this site, or log in,"
            " and try again.",
            "action_url": reverse("events:event", args=[slug]),
            "action_label": "Back to the event",
        }
        return render(request, "problem.html", context, status=400)
    # 307: the browser sends the form again, now with the cookie.
    response = redirect(f"{form_url}?again=1", preserve_request=True)
    response.headers["Cache-Control"] = "no-store"
    set_visitor_cookie(request, response, new_visitor_secret())
    return response
