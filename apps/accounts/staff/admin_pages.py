"""The staff's pages of accounts and of the security log."""

from typing import Any

from allauth.account.models import EmailAddress, EmailConfirmation
from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.http import HttpRequest, HttpResponse

from apps.accounts import pending_address
from apps.accounts.models import SecurityEvent, User
from apps.accounts.staff.reauthentication import (
    SensitiveAdminMixin,
    record_staff_action,
    require_recent_authentication,
)
from apps.kernel.admin_lists import ReadOnlyAdmin

# allauth's pages would let staff edit second factors and confirm addresses.
for model in (EmailAddress, EmailConfirmation, Authenticator):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


@admin.register(User)
class UserAdmin(SensitiveAdminMixin, DjangoUserAdmin):
    readonly_fields = ["last_login", "date_joined", "token_version", "token_version_changed_at"]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Return False for an erased account, which a trigger leaves unchanged."""
        return super().has_change_permission(request, obj) and (obj is None or obj.erased_at is None)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002
        if request.method == "POST":
            require_recent_authentication(request)
        response: HttpResponse = super().user_change_password(request, id, form_url)
        if response.status_code == 302:
            if account := User.objects.filter(pk=id).first():
                pending_address.drop(account)
            record_staff_action(request, f"password set: account {id}")
        return response


@admin.register(SecurityEvent)
class SecurityEventAdmin(ReadOnlyAdmin):
    list_display = ["at", "kind", "name", "address", "detail"]
    list_filter = ["kind", "at"]
    search_fields = ["=name"]
    search_help_text = "A complete account name."

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("account")
