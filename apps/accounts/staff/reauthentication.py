"""Recent authentication: refunds, reissues, keys and the account's own credentials need a log-in, or a confirmation of
the password or second factor, within REAUTHENTICATION_SECONDS."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.account.internal.flows.login import get_authentication_records
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from apps.accounts import security_log
from apps.kernel import clock
from apps.kernel.admin_lists import DeclaredFiltersMixin

_NAMED_MAX = 10

Action = Callable[..., HttpResponse | None]


def is_recent(request: HttpRequest) -> bool:
    """Return whether the user has authenticated in this session recently enough."""
    if not settings.REAUTHENTICATION_SECONDS:
        return True
    user: Any = request.user
    records = get_authentication_records(request, user) if user.is_authenticated else []
    return bool(records) and clock.process_seconds() - records[-1]["at"] < settings.REAUTHENTICATION_SECONDS


def require_recent_authentication(request: HttpRequest) -> None:
    """Raise ReauthenticationRequired unless the user has authenticated recently. The middleware `AccountSecurity`
    redirects to the page that asks for the password or second factor, and then back."""
    if not is_recent(request):
        raise ReauthenticationRequired


def record_staff_action(request: HttpRequest | None, detail: str) -> None:
    """Write what a member of staff, or without a request an operator's command, has done to the security log."""
    _record(request, security_log.Kind.STAFF_ACTION, detail)


def record_personal_data_read(request: HttpRequest | None, what: str) -> None:
    """Write which page with personal data a member of staff has seen, or without a request what an operator's command
    has printed, to the security log."""
    _record(request, security_log.Kind.PERSONAL_DATA_READ, what)


def _record(request: HttpRequest | None, kind: security_log.Kind, detail: str) -> None:
    security_log.record(request, kind, None if request is None else request.user, detail=detail)


def sensitive_action(action: Action) -> Action:
    """Decorate an admin action, below `admin.action`: it needs a recent authentication, and is recorded once it has
    run. An action that returns a response has only asked for a confirmation."""

    @wraps(action)
    def checked(model_admin: Any, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        require_recent_authentication(request)
        rows = [str(row) for row in queryset[:_NAMED_MAX]]
        response = action(model_admin, request, queryset)
        if response is None:
            record_staff_action(request, f"{action.__name__}: {model_admin.opts.verbose_name} {', '.join(rows)}")
        return response

    return checked


class SensitiveAdminMixin(DeclaredFiltersMixin, admin.ModelAdmin):
    """For rows whose addition, change or deletion needs a recent authentication and is recorded."""

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.method == "POST":
            require_recent_authentication(request)
        return super().changeform_view(request, *args, **kwargs)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        record_staff_action(request, f"added: {self.opts.verbose_name} {obj}")
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        record_staff_action(request, f"changed: {self.opts.verbose_name} {obj}")
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        require_recent_authentication(request)  # Django calls this before it deletes rows, one or several.
        for row in queryset:
            record_staff_action(request, f"deleted: {self.opts.verbose_name} {row}")
        return super().log_deletions(request, queryset)
