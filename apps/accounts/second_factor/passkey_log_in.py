"""The log-in with a passkey. Its challenge is in a signed cookie: allauth keeps it in the session, so each anonymous
request for a challenge would store a session.

A cookie could be sent twice, so the passkey's row has the challenges that it has answered, and accepts none again.
"""

import hashlib
import json
from typing import Any
from urllib.parse import urlencode

from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal.auth import STATE_SESSION_KEY
from allauth.mfa.webauthn.views import LoginWebAuthnView
from django.core.signing import BadSignature, TimestampSigner
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from apps.kernel import clock

COOKIE = "passkey"
COOKIE_PATH = "/accounts/log-in"
CHALLENGE_SECONDS = 300
_signer = TimestampSigner(salt="passkey challenge")


class LogInWithPasskey(LoginWebAuthnView):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Move the challenge from the cookie to the session, and back, so that it is never stored."""
        was_modified = request.session.modified
        known = request.session.pop(STATE_SESSION_KEY, None)  # Of another page: a second factor, or a new passkey.
        if request.method == "POST" and (state := _state_of_cookie(request)):
            request.session[STATE_SESSION_KEY] = state
        response = super().dispatch(request, *args, **kwargs)
        state = request.session.pop(STATE_SESSION_KEY, None)
        if known is not None:
            request.session[STATE_SESSION_KEY] = known
        if request.method == "GET" and not was_modified:
            request.session.modified = False
        if request.method == "GET" and state is not None:
            _set_cookie(request, response, state)
        elif COOKIE in request.COOKIES:
            response.delete_cookie(COOKIE, path=COOKIE_PATH, samesite="Strict")
        return response

    def form_invalid(self, form: Any) -> HttpResponse:
        """Return to the log-in page, which shows the error and keeps where to go afterwards."""
        response = super().form_invalid(form)
        target = self.request.POST.get("next", "")
        if target:
            response.headers["Location"] += f"?{urlencode({'next': target})}"
        return response

    def form_valid(self, form: Any) -> HttpResponse:
        if not _use_challenge(form.cleaned_data["credential"], _state_of_cookie(self.request)):
            form.add_error("credential", "This log-in was used before. Try again.")
            return self.form_invalid(form)
        return super().form_valid(form)


def _set_cookie(request: HttpRequest, response: HttpResponseBase, state: Any) -> None:
    response.set_cookie(
        COOKIE,
        _signer.sign_object(state),
        max_age=CHALLENGE_SECONDS,
        path=COOKIE_PATH,
        httponly=True,
        samesite="Strict",
        secure=request.is_secure(),
    )


def _state_of_cookie(request: HttpRequest) -> Any:
    """Return the state of the challenge that this browser was given; None without a valid one."""
    try:
        return _signer.unsign_object(request.COOKIES.get(COOKIE, ""), max_age=CHALLENGE_SECONDS)
    except (BadSignature, ValueError):
        return None


def _use_challenge(authenticator: Authenticator, state: Any) -> bool:
    """Record, and commit, that this passkey has answered the challenge; return False if it had before."""
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:32]
    now = clock.process_now().timestamp()
    with transaction.atomic():
        row = Authenticator.objects.select_for_update(no_key=True).get(pk=authenticator.pk)
        answered = row.data.get("answered", {})
        if digest in answered:
            return False
        # A challenge older than its cookie is refused anyway.
        recent = {one: at for one, at in answered.items() if now - at < 2 * CHALLENGE_SECONDS}
        row.data["answered"] = {**recent, digest: now}
        row.save(update_fields=["data"])
    authenticator.data = row.data
    return True
