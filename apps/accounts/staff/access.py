"""Access to the staff's site: a second factor, an idle time-out, and the page that asks for a recent authentication."""

from urllib.parse import urlencode

from allauth.account.adapter import get_adapter
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin

from apps.accounts.models import User
from apps.accounts.second_factor import codes
from apps.kernel import clock

_SEEN_AT = "staff_seen_at"
_SEEN_EVERY_SECONDS = 30
"""Shortest interval between two writes of the session."""
_ALWAYS_OPEN = ("admin:login", "admin:logout", "admin:jsi18n")


class AccountSecurity(MiddlewareMixin):
    """Comes after allauth's middleware, so that its exceptions arrive here first."""

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: object) -> HttpResponse | None:
        match = request.resolver_match
        if match is None or "admin" not in match.app_names or match.view_name in _ALWAYS_OPEN:
            return None
        user = request.user
        if not isinstance(user, User) or not user.is_staff:
            return None  # The admin site refuses the request.
        if _has_idled(request):
            logout(request)
            messages.info(request, "You were logged out because the staff's site was not used for a while.")
            return redirect_to_login(request.get_full_path())
        if codes.lacks_required_factor(user):
            messages.warning(request, "Staff accounts need a second factor: add an authenticator app or a passkey.")
            return redirect("account")
        return None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Redirect to the page that confirms the user's identity, and then back. Unlike allauth's own middleware, the
        submitted form is not kept: it would be stored in the session with the request's headers."""
        if not isinstance(error, ReauthenticationRequired):
            return None
        methods = get_adapter().get_reauthentication_methods(request.user)
        url = methods[0]["url"] if methods else reverse("log_in")
        if request.method == "POST":
            messages.info(request, "Confirm that it is you. Then repeat what you were doing: nothing has been changed.")
        return redirect(f"{url}?{urlencode({'next': request.get_full_path()})}")


def _has_idled(request: HttpRequest) -> bool:
    """Return whether the session's last use of the staff's site is too long ago; else note this one."""
    now = clock.process_seconds()
    seen_at = request.session.get(_SEEN_AT)
    if settings.STAFF_IDLE_SECONDS and seen_at is not None and now - seen_at > settings.STAFF_IDLE_SECONDS:
        return True
    if seen_at is None or now - seen_at > _SEEN_EVERY_SECONDS:
        request.session[_SEEN_AT] = now
    return False
