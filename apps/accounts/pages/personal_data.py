"""The account's pages on personal data: download everything, and erase the account."""

import json
import threading

from allauth.account.decorators import reauthentication_required
from django import forms
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts import registries, security_log
from apps.accounts.first_error import FocusesFirstError
from apps.accounts.models import User
from apps.accounts.pages import mail
from apps.accounts.pages.adapter import delete_signed_in_cookie
from apps.kernel import rate_limits
from apps.kernel.http import client_address, problems

_making = threading.Lock()


class EraseForm(FocusesFirstError, forms.Form):
    is_sure = forms.BooleanField(
        label="Erase my account and my data. I know that this cannot be undone.",
        error_messages={"required": "Tick this to erase your account."},
    )


@require_safe
@login_required
@reauthentication_required
@never_cache
def download(request: HttpRequest) -> HttpResponse:
    """Return everything that is stored about the user, as a JSON file; the security log and a mail name the
    download. Raises RateLimited after a few files in a minute, and Busy while this process makes another file."""
    user = request.user
    assert isinstance(user, User)
    address = client_address.address_from_environ(request.META)
    wait = rate_limits.check_request("data-file", address, str(user.pk))
    if wait is not None:
        raise problems.RateLimited(wait)
    # One file at a time in each process: it takes a hundredth of a second for each order, and other pages need threads.
    if not _making.acquire(blocking=False):
        raise problems.Busy("The file of another account is being made. Try again in a moment.")
    try:
        text = json.dumps(registries.get_personal_data().export(user.pk), indent=2, ensure_ascii=False)
    finally:
        _making.release()
    security_log.record(request, security_log.Kind.PERSONAL_DATA_DOWNLOADED, user)
    _send_mail(request, "data_downloaded", user.email, {"user": user})
    response = HttpResponse(text, content_type="application/json")
    response.headers["Content-Disposition"] = 'attachment; filename="fairgate-data.json"'
    return response


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@reauthentication_required
@never_cache
def erase(request: HttpRequest) -> HttpResponse:
    """Erase the user's data and account, and log out. If it is much data, the account is closed and the data is erased
    after the request. If some data is still needed, explain which, and erase nothing."""
    user = request.user
    assert isinstance(user, User)
    source = registries.get_personal_data()
    needed = ["This account belongs to staff: an administrator closes it."] if user.is_staff else []
    needed = needed or source.find_needed(user.pk)
    kept = source.find_kept(user.pk)
    form = EraseForm(request.POST or None)
    if request.method == "POST" and not needed and form.is_valid():
        email, is_confirmed = user.email, mail.has_confirmed(user.email)
        erasure = source.erase(user.pk)
        needed = [*erasure.needed]
        if not needed:
            name = "account_erased" if erasure.is_complete else "account_closed"
            _send_mail(request, name, email, {}, is_confirmed=is_confirmed)
            user.refresh_from_db()
            logout(request)
            response = render(request, "accounts/erased.html", {"kept": kept, "is_complete": erasure.is_complete})
            delete_signed_in_cookie(response)
            return response
    status = 409 if request.method == "POST" and needed else 200
    return render(request, "accounts/erase.html", {"form": form, "needed": needed, "kept": kept}, status=status)


def _send_mail(
    request: HttpRequest, name: str, email: str, context: dict[str, object], *, is_confirmed: bool | None = None
) -> None:
    if email:
        address = client_address.address_from_environ(request.META)
        mail.schedule(name, email, context, address, is_confirmed=is_confirmed)
